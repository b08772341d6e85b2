"""Key of one attempt of a task, by which its events, its outbox entries and its run are found.

Tests: ``tests/delivery/test_outbox.py``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Annotated

import msgspec


@dataclass(frozen=True)
class AttemptKey:
    """Key of one attempt (try number) of a task run.

    :param task_id: empty for the end of a DAG run, which belongs to no task.
    :param map_index: -1 for a task that is not mapped.
    :param try_number: 1 for the first attempt.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: Annotated[int, msgspec.Meta(ge=-1, le=10**15)]
    try_number: Annotated[int, msgspec.Meta(ge=0, le=10**15)]

    @property
    def instance(self) -> str:
        """Name of the task instance. It is safe in paths, and its hash makes it unique, since ids
        may hold anything.
        """
        return _name(self.dag_id, self.task_id, self.run_id, self.map_index)

    @property
    def task(self) -> str:
        """Name of the task, the same for all of its runs. It is safe in paths, too."""
        return _name(self.dag_id, self.task_id)

    @staticmethod
    def dag_prefix(dag_id: str) -> str:
        """Return the beginning of the names of a DAG's task instances. DAGs with similar ids may
        share it.
        """
        return f"{_slug(dag_id)}."


@lru_cache(maxsize=64)  # an outbox asks several times for each entry
def _name(dag_id: str, task_id: str, run_id: str | None = None, map_index: int = -1) -> str:
    # As json.dumps writes a list of them, which takes five times as long; a listing of an outbox
    # asks for thousands.
    dag, task = encode_basestring_ascii(dag_id), encode_basestring_ascii(task_id)
    text = (
        f"[{dag}, {task}]"
        if run_id is None
        else f"[{dag}, {encode_basestring_ascii(run_id)}, {task}, {map_index}]"
    )
    digits = hashlib.sha256(text.encode()).hexdigest()[:20]
    return f"{_slug(dag_id)}.{_slug(task_id)}-{digits}"


_UNSAFE = re.compile("[^A-Za-z0-9]+")


def _slug(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-")[:40] or "_"

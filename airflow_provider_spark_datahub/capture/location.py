"""Where the OpenLineage events and the Spark event log of one task try are written."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import astuple
from pathlib import Path

from airflow_provider_spark_datahub.attempt_key import AttemptKey

_PART_LENGTH = 60
_HASH_LENGTH = 16
_HOSTILE = re.compile(r"[^A-Za-z0-9_-]+")


class RelativeEventsRootError(ValueError):
    """The folder for event files is relative.

    OpenLineage's file transport dies of a ``NullPointerException`` on a bare relative name, and a relative name means
    another folder for the driver than for the worker.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(f"the folder for events, {str(root)!r}, is a relative path: give an absolute one")


def event_file(root: Path, key: AttemptKey, ti_id: str = "") -> Path:
    """The event file of one try: ``<root>/<dag>/<run>/<task>/[map3-]try2-<hash>.ndjson``.

    One file per try, since two writers tear each other's lines. Ids may hold anything (``:``, ``+``, ``/``, ``..``):
    every path part is reduced to ``[A-Za-z0-9_-]`` and cut, and the hash of the exact identity keeps files apart.

    :param ti_id: Airflow's id of the task instance, new for every attempt; empty if there is none.
    :raises RelativeEventsRootError: if ``root`` is not absolute.
    """
    if not root.is_absolute():
        raise RelativeEventsRootError(root)
    exact = json.dumps([*astuple(key), ti_id]).encode("ascii")
    short_hash = hashlib.sha256(exact).hexdigest()[:_HASH_LENGTH]
    mapped = f"map{key.map_index}-" if key.map_index >= 0 else ""
    folder = root.joinpath(*map(_slug, (key.dag_id, key.run_id, key.task_id)))
    return folder / f"{mapped}try{key.try_number}-{short_hash}.ndjson"


def fresh(path: Path) -> Path:
    """``path``, or the first of ``<stem>-2``, ``<stem>-3``, ... that does not exist.

    A file that is there already was left by an earlier execution with the same identity (a cleared task), and the
    file transport would append to it.
    """
    if not path.exists():
        return path
    candidates = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
    return next(candidate for candidate in candidates if not candidate.exists())


def event_log_folder(events_file: Path) -> Path:
    """Where Spark's own event log of the same try goes: a folder beside its event file, which the caller creates.

    :param events_file: from :func:`event_file` and :func:`fresh`; a fresh file gives a fresh folder.
    """
    return events_file.with_suffix(".eventlog")


def _slug(text: str) -> str:
    return _HOSTILE.sub("_", text)[:_PART_LENGTH].strip("_-") or "x"

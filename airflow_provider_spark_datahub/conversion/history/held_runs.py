"""Fingerprints of the runs that DataHub holds: those of other hosts, and those that an outbox has forgotten.

Tests: ``tests/system/test_changing_shop.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion.events import parse_time_ms
from airflow_provider_spark_datahub.conversion.history.changes import Fingerprint, SilentTasks, Use
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey

_TASK = re.compile(r"urn:li:dataJob:\(urn:li:dataFlow:\(airflow,([^,]+),[^,]+\),([^,]+)\)")


class HeldRun(msgspec.Struct, frozen=True):
    """Run that DataHub holds: of a DAG, a task, or Spark. Times are in ms since the epoch.

    :param template: URN of its DataFlow or DataJob, and :attr:`parent` that of the run above it.
    :param attempt: number of its last attempt; 0 if it is not known.
    """

    urn: str
    template: str = ""
    parent: str = ""
    properties: dict[str, str] = {}
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    start_ms: int = 0
    end_ms: int = 0
    attempt: int = 0
    succeeded: bool = True

    @property
    def key(self) -> AttemptKey | None:
        """Key of its last attempt; ``None`` if it is not a task's."""
        task, properties = _TASK.fullmatch(self.template), self.properties
        if task is None or "run_id" not in properties:
            return None
        names = properties.get("dag_id", task[1]), properties["run_id"], properties.get("task_id", task[2])
        index = properties.get("map_index", "")
        return AttemptKey(*names, int(index) if index.isdecimal() else -1, self.attempt)

    @staticmethod
    def fingerprints(runs: Mapping[str, HeldRun]) -> dict[str, Fingerprint]:
        """Return a fingerprint of each task run, of all its attempts together: DataHub does not keep them apart.

        :param runs: by URN, with those above and below the task runs.
        """
        below: dict[str, tuple[AttemptKey, list[HeldRun]]] = {}
        for urn, run in runs.items():
            if (key := run.key) is not None:
                below[urn] = key, []
        for run in sorted(runs.values(), key=lambda run: run.end_ms):
            above, passed = runs.get(run.parent), {run.urn}
            while above is not None and above.urn not in below and above.urn not in passed:
                passed.add(above.urn)
                above = runs.get(above.parent)
            if above is not None and above.urn in below and run.urn not in below:
                below[above.urn][1].append(run)
        return {urn: _fingerprint(key, runs[urn], parts) for urn, (key, parts) in below.items()}


class _Described(msgspec.Struct):
    """Use of a dataset, as a property of a Spark run."""

    version: str = ""
    earlier: str = ""
    rows: int | None = None
    bytes: int | None = None
    inferred: bool = False
    replaces: bool = False


def _fingerprint(key: AttemptKey, task: HeldRun, parts: Collection[HeldRun]) -> Fingerprint:
    inputs, outputs = dict[str, Use](), dict[str, Use]()
    for run in parts:
        for urn in run.inputs:
            _use(run, f"input:{urn}").add_to(inputs, urn, is_read=True)
        for urn in run.outputs:
            use = structs.replace(_use(run, f"output:{urn}"), start_ms=run.start_ms, end_ms=run.end_ms)
            # The bytes of several writes together are those of none.
            outputs[urn] = structs.replace(outputs[urn].plus(use), size=None) if urn in outputs else use
    # What another attempt read and wrote, or a Spark run that DataHub no longer has.
    inputs = dict.fromkeys(task.inputs, Use()) | inputs
    outputs = dict.fromkeys(task.outputs, Use()) | outputs
    times = [run for run in (task, *parts) if run.end_ms]
    start_ms, end_ms = min((run.start_ms for run in times), default=0), max((run.end_ms for run in times), default=0)
    logical_ms, silent = parse_time_ms(task.properties.get("logical_date")), SilentTasks.of_properties(task.properties)
    known = key, start_ms, end_ms, task.succeeded, "", inputs, outputs
    # Of columns, DataHub knows only those of the job's last run.
    return Fingerprint(*known, hidden=tuple(inputs), logical_ms=logical_ms, silent=silent)


def _use(run: HeldRun, name: str) -> Use:
    try:
        described = msgspec.json.decode(run.properties.get(name, "{}"), type=_Described)
    except msgspec.DecodeError:
        return Use()
    texts = [] if described.inferred else [described.earlier, described.version]
    versions = tuple(version for text in filter(None, texts) for version in text.split(", "))
    return Use(versions, described.rows, described.bytes, replaces=described.replaces)

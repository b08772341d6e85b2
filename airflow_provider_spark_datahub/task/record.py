"""Record of one attempt in the outbox, written before the submit: enough to make its lineage if the task is killed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import msgspec

from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult, TaskAttempt
from airflow_provider_spark_datahub.delivery.outbox import is_gone, machine
from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Record of an attempt: where its events are, and which process works on it.

    The names of the fields are the keys of its JSON in the outbox.

    :param event_log: folder of Spark's own event log; :attr:`own_event_log` is whether it belongs to this job alone.
    :param spark_succeeded: ``None`` until the end is known.
    :param openlineage_connection: of a backend that also gets the raw events.
    :param machine: see :mod:`~airflow_provider_spark_datahub.delivery.outbox.lease`.
    """

    task_try: TaskAttempt
    settings: LineageSettings
    events_file: str
    event_log: str | None
    own_event_log: bool
    machine: str
    process: int
    spark_succeeded: bool | None = None
    openlineage_connection: str | None = None

    @classmethod
    def begun(
        cls,
        attempt: TaskAttempt,
        settings: LineageSettings,
        events_file: Path,
        log: SparkEventLog,
        backend: str | None = None,
    ) -> Self:
        """Return the record of an attempt of this process, before its job is submitted."""
        folder = str(log.folder) if log.folder else None
        return cls(attempt, settings, str(events_file), folder, log.is_own, machine(), os.getpid(), None, backend)

    def ended(self, end_ms: int, result: AttemptResult, *, spark_succeeded: bool) -> Self:
        """Return the record of the ended attempt. Whoever makes its lineage from it makes the same lineage."""
        return replace(self, task_try=self.task_try.ended(end_ms, result), spark_succeeded=spark_succeeded)

    def with_end(self) -> Self:
        """Return the record with an end: FAILURE at the time of the last event, if the attempt recorded none."""
        if self.task_try.end_ms is not None:
            return self
        try:
            seconds = Path(self.events_file).stat().st_mtime
        except OSError:
            seconds = (self.task_try.start_ms or 0) / 1000
        return self.ended(round(seconds * 1000), "FAILURE", spark_succeeded=False)

    def to_obj(self) -> dict[str, Any]:
        """Return the record as JSON."""
        obj: dict[str, Any] = msgspec.to_builtins(self)
        return obj

    @classmethod
    def from_obj(cls, obj: Any) -> Self:
        """Return the record of which :meth:`to_obj` wrote the JSON.

        :raises ValueError: if it is something else.
        """
        return msgspec.convert(obj, cls)

    @property
    def is_over(self) -> bool:
        """Whether the attempt has ended, or its process is known to be gone from this machine."""
        return self.spark_succeeded is not None or is_gone(self.machine, self.process)

    @property
    def spark_event_log(self) -> SparkEventLog:
        """Spark's own event log of the attempt."""
        return SparkEventLog(Path(self.event_log) if self.event_log else None, is_own=self.own_event_log)

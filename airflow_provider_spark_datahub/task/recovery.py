"""What the outbox keeps of a try from before the submit, so that its lineage can be made whatever becomes of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from airflow_provider_spark_datahub.capture import CollectionReport, Outcome
from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.conversion.run_tree import TaskTry, TryResult
from airflow_provider_spark_datahub.task.job_events import JobEvents, SparkEventLog
from airflow_provider_spark_datahub.task.raw_events import keep_events

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Conversion, Proposal
    from airflow_provider_spark_datahub.delivery.outbox import Entry, Finish


@dataclass(frozen=True, slots=True)
class TryRecord:
    """A try, where its events are, and who is at work on it.

    :param event_log: folder of Spark's own event log; :attr:`own_event_log` says whether it is of this job alone.
    :param spark_succeeded: ``None`` until the end is known.
    :param openlineage_connection: of a backend that is to get the raw events, too.
    :param machine: see :mod:`~airflow_provider_spark_datahub.delivery.outbox.lease`.
    """

    task_try: TaskTry
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
        task_try: TaskTry,
        settings: LineageSettings,
        events_file: Path,
        log: SparkEventLog,
        openlineage_connection: str | None = None,
    ) -> Self:
        """The record of a try of this process, before its job is submitted."""
        from airflow_provider_spark_datahub.delivery.outbox import machine

        folder = str(log.folder) if log.folder else None
        return cls(
            task_try,
            settings,
            str(events_file),
            folder,
            log.is_own,
            machine(),
            os.getpid(),
            openlineage_connection=openlineage_connection,
        )

    def ended(self, end_ms: int, result: TryResult, *, spark_succeeded: bool) -> Self:
        """The same, of a try that is over: from here on, anybody may make its lineage, and makes the same."""
        return replace(self, task_try=self.task_try.ended(end_ms, result), spark_succeeded=spark_succeeded)

    def to_obj(self) -> dict[str, Any]:
        """The record as JSON."""
        import msgspec

        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    @classmethod
    def from_obj(cls, obj: Any) -> Self:
        """What :meth:`to_obj` wrote.

        :raises ValueError: it is something else.
        """
        import msgspec

        return msgspec.convert(obj, cls)

    @property
    def is_over(self) -> bool:
        """Whether the try has ended, or its process is gone, as far as this machine can tell."""
        from airflow_provider_spark_datahub.delivery.outbox import is_gone

        return self.spark_succeeded is not None or is_gone(self.machine, self.process)

    def _at_its_end(self) -> Self:
        """Of a try that was killed before its end was recorded: the time of its last event, and that it failed."""
        if self.task_try.end_ms is not None:
            return self
        try:
            moment = Path(self.events_file).stat().st_mtime
        except OSError:
            moment = (self.task_try.start_ms or 0) / 1000
        return self.ended(round(moment * 1000), "FAILURE", spark_succeeded=False)

    def proposals(self, expired: Callable[[], bool]) -> tuple[CollectionReport, list[Proposal]]:
        """Its lineage, from its events.

        :param expired: says True when the time is up.
        """
        record = self._at_its_end()
        log = SparkEventLog.at(Path(self.event_log) if self.event_log else None, is_own=self.own_event_log)
        events = JobEvents(self.settings, Path(self.events_file), log)
        report, conversion = events.finish(bool(record.spark_succeeded), expired)
        return report, try_proposals(record.task_try, conversion, self.settings)


def try_proposals(task_try: TaskTry, conversion: Conversion, settings: LineageSettings) -> list[Proposal]:
    """All that is told of a try that is over: its place in the run tree, and its job's lineage below it."""
    from airflow_provider_spark_datahub.conversion.run_tree import below, task_proposals

    conversion.jobs = below(conversion.jobs, task_try, [session.urn for session in conversion.sessions])
    return [*task_proposals(task_try, conversion.jobs), *conversion.proposals(settings)]


def finisher(seconds: float, is_over: Callable[[Entry], bool]) -> Finish:
    """For a drain: makes the lineage of unfinished entries whose try is over.

    :param seconds: for each.
    :param is_over: what else tells that a try is over, beside its record and a later try.
    """
    from airflow_provider_spark_datahub.delivery import Deadline

    def finish(entry: Entry, followed: bool) -> Entry | None:
        deadline = Deadline.after(seconds)
        return finish_entry(entry, lambda: deadline.expired, over=followed or is_over(entry))

    return finish


def finish_entry(entry: Entry, expired: Callable[[], bool], *, over: bool = False) -> Entry | None:
    """Make the lineage of an unfinished entry.

    :param expired: says True when the time is up.
    :param over: its try is known to be over; else its record must say so.
    :returns: the entry with its proposals; ``None`` where it is too early, the time was too short, or the events are
        on another machine.
    :raises OutboxError: the outbox refuses.
    :raises EntryFormatError: the entry holds no record of a try.
    """
    from airflow_provider_spark_datahub.delivery.outbox import EntryFormatError, machine

    try:
        record = TryRecord.from_obj(entry.manifest.redo)
    except ValueError as error:
        raise EntryFormatError(f"the outbox's entry {entry} holds no record of a try: {error}") from error
    if not (over or record.is_over):
        return None
    elsewhere = record.machine != machine() and not Path(record.events_file).exists()
    if elsewhere and entry.age < entry.outbox.limits.max_age:
        return None
    report, proposals = record.proposals(expired)
    if report.outcome is Outcome.TIMED_OUT:
        return None
    if record.openlineage_connection:
        keep_events(entry.outbox, entry.manifest.key, record.openlineage_connection, Path(record.events_file), expired)
    return entry.finish(proposals, spark_succeeded=bool(record.spark_succeeded))

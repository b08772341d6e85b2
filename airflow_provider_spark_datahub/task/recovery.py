"""Recovery of attempts whose task was killed: their events are converted later, from the outbox's record of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.capture import Outcome
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.outbox import EntryFormatError, machine
from airflow_provider_spark_datahub.task.job_events import JobEvents, attempt_proposals
from airflow_provider_spark_datahub.task.record import AttemptRecord

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox import Entry, Finish

log = logging.getLogger(__name__)


def entry_recovery(seconds: float, is_over: Callable[[Entry], bool]) -> Finish:
    """Return the function by which a drain converts unfinished entries whose attempt is over.

    :param seconds: for each entry.
    :param is_over: returns whether an attempt is known to be over, beside its record and later attempts.
    """

    def finish(entry: Entry, followed: bool) -> Entry | None:
        deadline = Deadline.after(seconds)
        return recover_entry(entry, lambda: deadline.expired, over=followed or is_over(entry))

    return finish


def recover_entry(entry: Entry, expired: Callable[[], bool], *, over: bool = False) -> Entry | None:
    """Convert the events of an unfinished entry.

    :param expired: returns True when the time is up.
    :param over: the attempt is known to be over; otherwise its record decides.
    :returns: the entry with its proposals; ``None`` if the attempt is not over, the time was too short, or the events
        are on another machine.
    :raises OutboxError: if the outbox refuses.
    :raises EntryFormatError: if the entry holds no record of an attempt.
    """
    try:
        record = AttemptRecord.from_obj(entry.manifest.redo)
    except ValueError as error:
        raise EntryFormatError(f"the outbox's entry {entry} holds no record of an attempt: {error}") from error
    if not (over or record.is_over):
        return None
    elsewhere = record.machine != machine() and not Path(record.events_file).exists()
    if elsewhere and entry.age < entry.outbox.limits.max_age:
        log.debug("Leave %s to %s, where its events are", entry, record.machine)
        return None
    record = record.with_end()
    backend = record.openlineage_connection
    events = JobEvents(record.settings, Path(record.events_file), record.spark_event_log, keep_raw=backend is not None)
    report, conversion = events.finish(bool(record.spark_succeeded), expired)
    if report.outcome is Outcome.TIMED_OUT:
        return None
    proposals = attempt_proposals(record.task_try, conversion, record.settings)
    if backend is not None and events.raw is not None and events.raw.is_whole:
        events.raw.forward(entry.outbox, entry.manifest.key, backend)
    log.debug("Recovered %s: %d proposals", entry, len(proposals))
    return entry.finish(proposals, spark_succeeded=bool(record.spark_succeeded))

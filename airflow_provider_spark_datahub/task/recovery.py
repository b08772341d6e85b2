"""Recovery of attempts whose task was killed, from their records in the outbox."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_spark_datahub.capture import EVENT_FILE, EVENT_FOLDER
from airflow_provider_spark_datahub.conversion import Fingerprint, Use, redact_text, redacted_trace
from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult, TaskAttempt
from airflow_provider_spark_datahub.delivery import Deadline, step_in_time
from airflow_provider_spark_datahub.delivery.outbox import (
    EntryFormatError,
    Histories,
    OutboxError,
    machine,
)
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.files import exists
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.task.submitted import SubmittedJob, UnfinishedAttempt

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import JobLineage
    from airflow_provider_spark_datahub.delivery.outbox import (
        Drain,
        DrainLimits,
        Entry,
        Manifest,
        Outbox,
    )
    from airflow_provider_spark_datahub.task.options import Connections

log = logging.getLogger(__name__)

_SLOWEST_BYTES_A_SECOND = 2_000_000
"""Slowest speed of a conversion that is allowed for: several times slower than any job in
``docs/performance.md``.
"""


class RecoveryError(OutboxError):
    """Unfinished entry whose events cannot be converted, for a reason that may persist."""


def _look(
    job: SubmittedJob, deadline: Deadline, *, with_size: bool, with_end: bool
) -> tuple[bool, int, float | None]:
    """Return whether the events of a job exist, their size and the time of the last one, if they
    are asked for.

    :raises TimeoutError: if a disk does not answer. Requests to a store have timeouts of their own.
    """

    def look() -> tuple[bool, int, float | None]:
        exists = not isinstance(job.events, Path) or job.events.exists()
        return exists, job.size if with_size else 0, job.last_written if with_end else None

    return step_in_time(str(job.events), deadline, look) if isinstance(job.events, Path) else look()


def recover_entry(
    entry: Entry,
    deadline: Deadline,
    *,
    over: bool = False,
    patient: bool = False,
    result: AttemptResult = "FAILURE",
) -> Entry | None:
    """Convert the events of an unfinished entry.

    :param over: the attempt is known to be over, and no later one will reconnect to its job;
        otherwise its record decides, and its event file stays.
    :param patient: allow more time for a large event file, which would otherwise never be
        converted.
    :param result: result of the task run if the attempt recorded none.
    :returns: the entry with its proposals; the entry as it is while its Spark outlives its task on
        this machine; ``None`` if the attempt is not over, the time was too short, or the events are
        on another machine.
    :raises RecoveryError: if the conversion fails; the entry stays as it is.
    :raises OSError: if the outbox refuses, or the events cannot be read at the moment.
    :raises EntryFormatError: if the entry holds no record of an attempt.
    """
    try:
        record = UnfinishedAttempt.from_obj(entry.manifest.redo)
    except ValueError as error:
        raise EntryFormatError(
            f"the outbox's entry {entry} holds no record of an attempt: {error}"
        ) from error
    if not (over or record.spark_succeeded is not None or record.is_killed):
        return None
    if record.orphans():
        log.debug("Left %s: its Spark still runs", entry)
        return entry
    job, has_end = record.job(entry.outbox.open_store), record.task_try.end_ms is not None
    try:
        exists, size, last_written = _look(job, deadline, with_size=patient, with_end=not has_end)
        if not exists and record.machine != machine() and entry.age < entry.outbox.limits.max_age:
            log.debug("Left %s to the machine with its events: %s", entry, record.machine)
            return None
        if not over and not has_end:
            # The next attempt may reconnect to the job, and reads the same events.
            record = replace(record, keep_events=True)
        if patient:
            deadline = replace(deadline, at=deadline.at + size / _SLOWEST_BYTES_A_SECOND)
        if last_written is not None and (later_ms := entry.later_attempt_ms()) is not None:
            # Its Spark may have outlived it, but the state of the task run is that of the last
            # attempt.
            last_written = min(last_written, later_ms / 1000)
        return _converted(entry, record.with_end(last_written, result), job, deadline)
    except (OSError, EntryFormatError):
        raise
    except Exception as error:
        # One attempt's events must not keep those of all others from being delivered.
        log.debug("The conversion of %s failed:\n%s", entry, redacted_trace(error))
        raise RecoveryError(
            f"Could not convert the events of {entry}: {type(error).__name__}: {redact_text(str(error))}. They stay in "
            f"{record.events_file}."
        ) from error


def _converted(
    entry: Entry, record: UnfinishedAttempt, job: SubmittedJob, deadline: Deadline
) -> Entry | None:
    from airflow_provider_spark_datahub.task.job_events import JobEvents

    events, succeeded = JobEvents(job), bool(record.spark_succeeded)
    report = events.collect(deadline)
    lineage = events.lineage_in_time(succeeded, record.task_try, deadline)
    if lineage is None and events.is_unavailable:
        if entry.age < entry.outbox.limits.max_age:
            raise OSError(
                f"{report.sentence}. {entry} keeps its place, and a later drain reads it again"
            )
        lineage = events.lineage(succeeded, record.task_try)
    if lineage is None:
        log.debug("No time was left to convert %s after %s", entry, counted(report.events, "event"))
        return None
    conversion, proposals = lineage
    keep_history(entry.outbox, record.task_try, conversion.jobs, None if succeeded else "")
    if record.keep_events or not report.is_whole:
        entry = entry.update(
            redo={**(entry.manifest.redo or {}), **replace(record, keep_events=True).to_obj()}
        )
    log.debug("Recovered %s: %s", entry, counted(len(proposals), "proposal"))
    return entry.finish(proposals, spark_succeeded=succeeded)


def keep_history(
    outbox: Outbox,
    attempt: TaskAttempt,
    jobs: Sequence[JobLineage],
    failure: str | None,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
) -> list[str]:
    """Keep the fingerprint of an ended attempt, and return what changed since the last green run of
    the task.

    A run that succeeded without lineage is left out: nothing could be compared with it.

    :param failure: what the driver said in the end; ``None`` if Spark succeeded.
    :param inputs: URNs that the jobs may have forgotten, and so are :attr:`outputs`.
    """
    end_ms, logical_ms = attempt.end_ms or 0, attempt.dag_run.logical_ms
    start_ms = end_ms if attempt.start_ms is None else attempt.start_ms
    read, written = (dict.fromkeys(urns, Use()) for urns in (inputs, outputs))
    known = attempt.key, start_ms, end_ms, failure is None, failure or "", read, written
    record = Fingerprint.of(Fingerprint(*known, logical_ms=logical_ms, silent=attempt.silent), jobs)
    histories = Histories(outbox.storage)
    if record.succeeded and not record.datasets:
        return []
    try:
        histories.write(record, max_age=outbox.limits.receipts)
        return histories.changes(record)
    except (OSError, ValueError) as error:
        log.debug("The history of %s cannot be used: %s", attempt.key, error)
        return []


def event_bytes(entry: Entry) -> int:
    """Return the size of the events of an unfinished entry, in bytes; 0 if it is not known."""
    try:
        return UnfinishedAttempt.from_obj(entry.manifest.redo).job(entry.outbox.open_store).size
    except ValueError:
        return 0


def remove_delivered_events(entry: Entry) -> None:
    """Remove the event file, and the event log that is the job's own, of an entry whose lineage is
    delivered.

    They stay if a later version may read more of them.
    """
    if entry.manifest.redo is None:
        return
    try:
        record = UnfinishedAttempt.from_obj(entry.manifest.redo)
        if not record.keep_events:
            job = record.job(entry.outbox.open_store)
            job.remove_events(entry.outbox.deadline, spark_succeeded=bool(record.spark_succeeded))
    except (OSError, ValueError) as error:
        log.debug("Could not remove the event file of %s: %s", entry, error)


def unawaited_events(outbox: Outbox) -> list[str]:
    """Return the event files on this machine that no entry names.

    They were kept, an attempt that the outbox refused wrote them, or a Spark that outlived its
    attempt.

    :param outbox: the only one of the attempts that write there.
    :raises OSError: if the outbox or the folder cannot be read.
    """
    folder = outbox.events_folder
    if folder is None:
        return []
    found = [
        str(path) for path in folder.glob("*/*/*/*") if path.suffix in (EVENT_FILE, EVENT_FOLDER)
    ]
    files = set[str | None](found)
    if files:
        for entry in outbox.entries():
            files -= {entry.manifest.events, str((entry.manifest.redo or {}).get("events_file"))}
    if files:
        files -= {entry.manifest.events for entry in outbox.quarantined()}
    # An attempt may have ended since the files were listed.
    return sorted(file for file in found if file in files and exists(file))


def is_ready(manifest: Manifest, is_over: Callable[[AttemptKey], object]) -> bool:
    """Return whether an entry can be delivered now: it has proposals, or its attempt is known to be
    over.

    :param is_over: returns whether a task instance is known to be over; called only if the entry
        does not show whether the attempt runs.
    """
    if manifest.state != "unfinished":
        return True
    with suppress(ValueError):
        record = UnfinishedAttempt.from_obj(manifest.redo)
        return record.spark_succeeded is not None or (
            not record.runs_here and bool(is_over(manifest.key))
        )
    return True  # it cannot be read: a drain sets it aside


def may_run(manifest: Manifest) -> bool:
    """Return whether the attempt of an entry may still run, judging by the entry and the processes
    of this machine.
    """
    with suppress(ValueError):
        return (
            manifest.state == "unfinished" and not UnfinishedAttempt.from_obj(manifest.redo).is_over
        )
    return False


def drain(
    outbox: Outbox,
    connections: Connections,
    limits: DrainLimits,
    *,
    stopped: Callable[[], bool] = lambda: False,
    converts: Callable[[Entry], bool] = lambda _: True,
    gives_up: Callable[[Entry], bool] = lambda _: False,
    **selection: Any,
) -> Drain:
    """Return a drain that converts the events of killed attempts, and removes events whose lineage
    is delivered.

    :param limits: for the conversion of one entry as for its delivery; a large event file has more
        time.
    :param stopped: when it returns True, no further conversion begins, and the current one ends.
    :param converts: returns whether the events of an entry may be converted now.
    :param gives_up: returns whether an attempt counts as over although nothing shows its end.
    :param selection: ``connection``, ``wanted`` and ``progress`` of :class:`.Drain`.
    """
    from airflow_provider_spark_datahub.delivery.outbox import Drain

    def clock() -> float:
        return math.inf if stopped() else time.monotonic()

    def finish(entry: Entry, followed: bool) -> Entry | None:
        if stopped() or not converts(entry):
            return None
        deadline = Deadline(time.monotonic() + limits.entry_seconds, clock)
        known: list[AttemptResult] = []

        def ask(key: AttemptKey) -> bool:
            known.extend(filter(None, [connections.final_result(key)]))
            return bool(known)

        over = followed or gives_up(entry) or is_ready(entry.manifest, ask)
        # Airflow's result is that of the last attempt.
        is_last = bool(known) and not entry.outbox.receipts.find(entry.name, entry.manifest)[1]
        return recover_entry(
            entry, deadline, over=over, patient=True, result=known[0] if is_last else "FAILURE"
        )

    return Drain(
        outbox,
        connections.open_sink,
        limits,
        finish=finish,
        settled=remove_delivered_events,
        **selection,
    )

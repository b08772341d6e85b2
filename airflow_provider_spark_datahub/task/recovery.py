"""Recovery of attempts whose task was killed.

Each attempt writes a record into the outbox before its submit: enough to convert its events later.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.capture import EVENT_FOLDER, UNREAD, CollectionReport, EventPlace
from airflow_provider_spark_datahub.conversion import LineageSettings, redact_text, redacted_trace
from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult, TaskAttempt
from airflow_provider_spark_datahub.delivery import Deadline, run_with_deadline, step_in_time
from airflow_provider_spark_datahub.delivery.outbox import (
    EntryFormatError,
    OutboxError,
    is_gone,
    machine,
    process_start,
)
from airflow_provider_spark_datahub.printable import counted
from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture import OpenStore
    from airflow_provider_spark_datahub.delivery.outbox import Entry, Manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnfinishedAttempt:
    """Record of an unfinished attempt in the outbox: the place of its events, and the process that works on it.

    The names of the fields are the keys of its JSON in the outbox.

    :param event_log: folder of Spark's own event log; :attr:`own_event_log` is whether it belongs to this job alone.
    :param spark_succeeded: ``None`` until the end is known.
    :param openlineage_connection: of a backend that also gets the raw events.
    :param keep_events: the event file stays even if its lineage is delivered, because not all of it was read.
    :param machine: see :mod:`~airflow_provider_spark_datahub.delivery.outbox.lease`.
    :param process_started: likewise; the number :attr:`process` may belong to another process one day.
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
    keep_events: bool = True
    process_started: int | None = None

    @classmethod
    def begun(
        cls,
        attempt: TaskAttempt,
        settings: LineageSettings,
        events_file: EventPlace,
        log: SparkEventLog,
        backend: str | None = None,
    ) -> Self:
        """Return the record of an attempt of this process, before its job is submitted."""
        folder = str(log.folder) if log.folder else None
        place = str(events_file), folder, log.is_own, machine(), os.getpid()
        return cls(attempt, settings, *place, None, backend, False, process_start(os.getpid()))

    def ended(self, end_ms: int, result: AttemptResult, *, spark_succeeded: bool) -> Self:
        """Return the record of the ended attempt. Every conversion from this record gives the same lineage."""
        return replace(self, task_try=self.task_try.ended(end_ms, result), spark_succeeded=spark_succeeded)

    def with_end(self, last_written: float | None, result: AttemptResult = "FAILURE") -> Self:
        """Return the record with an end at the time of the last event, if the attempt recorded none.

        :param last_written: that time, in seconds since the epoch; ``None`` if there is no event.
        :param result: result of the task run, as far as it is known. The edges of such an attempt are only added:
            somebody may have set the state in Airflow, and Spark was stopped.
        """
        if self.task_try.end_ms is not None:
            return self
        seconds = last_written if last_written is not None else (self.task_try.start_ms or 0) / 1000
        ended = self.ended(round(seconds * 1000), result, spark_succeeded=result == "SUCCESS")
        return replace(ended, task_try=replace(ended.task_try, only_adds=True))

    def to_obj(self) -> Any:
        """Return the record as JSON."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_obj(cls, obj: Any) -> Self:
        """Return the record from its JSON.

        :raises ValueError: if it is something else.
        """
        return msgspec.convert(obj, cls)

    def event_files(self) -> dict[str, Any]:
        """Return where the events of the job are, as JSON, for an attempt that reconnects to it."""
        return {
            "events_file": self.events_file,
            "event_log": self.event_log,
            "own_event_log": self.own_event_log,
            "suffixed_name": self.settings.suffixed_name,
        }

    @property
    def is_over(self) -> bool:
        """Return whether the attempt has ended, or its process is known to be gone from this machine."""
        return self.spark_succeeded is not None or is_gone(self.machine, self.process, self.process_started)

    @property
    def runs_here(self) -> bool:
        """Return whether the attempt's process is known to run on this machine.

        If somebody sets a task's state, Airflow says that it is over some seconds before it is killed and Spark ends.
        """
        return self.machine == machine() and not is_gone(self.machine, self.process, self.process_started)


def event_place(location: str, open_store: OpenStore) -> EventPlace:
    """Return the place of events by its text: a path, a session of a Spark Connect server, or a URI in a store."""
    if "://" not in location:
        return Path(location)
    if location.startswith(capture.SESSION_SCHEME):
        return capture.SessionEvents.parse(location)
    return capture.EventObjects(location, open_store)


_SLOWEST_BYTES_A_SECOND = 2_000_000
"""Slowest speed of a conversion that is allowed for: several times slower than any job in ``docs/performance.md``."""


_BYTES_AN_OBJECT = 20_000
"""Size of a file that takes as long to read as the request for an object, at :data:`_SLOWEST_BYTES_A_SECOND`."""


def event_bytes(entry: Entry) -> int:
    """Return the size of the events of an unfinished entry, in bytes; 0 if it is not known."""
    try:
        record = UnfinishedAttempt.from_obj(entry.manifest.redo)
        return _event_bytes(record, event_place(record.events_file, entry.outbox.open_store))
    except ValueError:
        return 0


def _event_bytes(record: UnfinishedAttempt, events: EventPlace) -> int:
    size = 0
    with suppress(OSError):
        if isinstance(events, Path):
            size += sum(file.stat().st_size for file in _files_of(events))
        else:
            size += sum(_BYTES_AN_OBJECT + size for size in events.sizes().values())
    if record.event_log and record.own_event_log:
        with suppress(OSError):
            size += sum(file.stat().st_size for file in Path(record.event_log).rglob("*"))
    return size


@dataclass(frozen=True, slots=True)
class _Found:
    """Facts about an attempt's events before they are read.

    :param bytes: their size; 0 if it was not requested.
    :param last_written: as for :meth:`UnfinishedAttempt.with_end`.
    """

    exists: bool
    bytes: int
    last_written: float | None

    @classmethod
    def at(cls, events: EventPlace, record: UnfinishedAttempt, deadline: Deadline, *, with_size: bool) -> _Found:
        """Look at the events, and return the facts.

        :raises TimeoutError: if a disk does not answer. Requests to a store have timeouts of their own.
        """

        def look() -> _Found:
            exists, last_written = not isinstance(events, Path) or events.exists(), None
            if record.task_try.end_ms is None:
                with suppress(OSError):
                    last_written = _last_written(events)
            return cls(exists, _event_bytes(record, events) if with_size else 0, last_written)

        return step_in_time(record.events_file, deadline, look) if isinstance(events, Path) else look()


class RecoveryError(OutboxError):
    """Unfinished entry whose events cannot be converted, for a reason that may persist."""


def recover_entry(
    entry: Entry, deadline: Deadline, *, over: bool = False, patient: bool = False, result: AttemptResult = "FAILURE"
) -> Entry | None:
    """Convert the events of an unfinished entry.

    :param over: the attempt is known to be over, and no later one will reconnect to its job; otherwise its record
        decides, and its event file stays.
    :param patient: allow more time for a large event file, which would otherwise never be converted.
    :param result: result of the task run if the attempt recorded none.
    :returns: the entry with its proposals; ``None`` if the attempt is not over, the time was too short, or the events
        are on another machine.
    :raises RecoveryError: if the conversion fails; the entry stays as it is.
    :raises OSError: if the outbox refuses, or the events cannot be read at the moment.
    :raises EntryFormatError: if the entry holds no record of an attempt.
    """
    try:
        record = UnfinishedAttempt.from_obj(entry.manifest.redo)
    except ValueError as error:
        raise EntryFormatError(f"the outbox's entry {entry} holds no record of an attempt: {error}") from error
    if not (over or record.is_over):
        return None
    events = event_place(record.events_file, entry.outbox.open_store)
    try:
        found = _Found.at(events, record, deadline, with_size=patient)
        if not found.exists and record.machine != machine() and entry.age < entry.outbox.limits.max_age:
            log.debug("Left %s to the machine with its events: %s", entry, record.machine)
            return None
        if not over and record.task_try.end_ms is None:
            # The next attempt may reconnect to the job, and reads the same events.
            record = replace(record, keep_events=True)
        if patient:
            deadline = replace(deadline, at=deadline.at + found.bytes / _SLOWEST_BYTES_A_SECOND)
        return _converted(entry, record.with_end(found.last_written, result), events, deadline)
    except (OSError, EntryFormatError):
        raise
    except Exception as error:
        # One attempt's events must not keep those of all others from being delivered.
        log.debug("The conversion of %s failed:\n%s", entry, redacted_trace(error))
        raise RecoveryError(
            f"Could not convert the events of {entry}: {type(error).__name__}: {redact_text(str(error))}. They stay in "
            f"{record.events_file}."
        ) from error


def _converted(entry: Entry, record: UnfinishedAttempt, place: EventPlace, deadline: Deadline) -> Entry | None:
    from airflow_provider_spark_datahub.task.job_events import JobEvents

    backend, succeeded = record.openlineage_connection, bool(record.spark_succeeded)
    event_log = SparkEventLog(
        record.event_log,
        is_own=record.own_event_log,
        events_file=record.events_file,
        open_store=entry.outbox.open_store,
        since_ms=record.task_try.start_ms,
    )
    events = JobEvents(record.settings, place, event_log, keep_raw=backend is not None)
    report = events.collect(deadline)
    lineage = events.lineage_in_time(succeeded, record.task_try, deadline)
    if lineage is None and events.is_unavailable:
        if entry.age < entry.outbox.limits.max_age:
            raise OSError(f"{report.sentence}. {entry} keeps its place, and a later drain reads it again")
        lineage = events.lineage(succeeded, record.task_try)
    if lineage is None:
        log.debug("No time was left to convert %s after %s", entry, counted(report.events, "event"))
        return None
    proposals = lineage[1]
    if record.keep_events or not was_read_completely(report):
        entry = entry.update(redo=replace(record, keep_events=True).to_obj())
    if backend is not None and events.raw is not None and events.raw.is_whole:
        if events.raw.problem:
            log.warning("OpenLineage backend (%s), %s: %s", backend, record.events_file, events.raw.problem)
        events.raw.forward(entry.outbox, entry.manifest.key, backend)
    log.debug("Recovered %s: %s", entry, counted(len(proposals), "proposal"))
    return entry.finish(proposals, spark_succeeded=succeeded)


def was_read_completely(report: CollectionReport) -> bool:
    """Return whether everything in an event file was read, so that the file is not needed any more."""
    return report.outcome not in UNREAD and not report.quarantined_count


def remove_delivered_events(entry: Entry) -> None:
    """Remove the event file, and the event log that is the job's own, of an entry whose lineage is delivered.

    They stay if a later version may read more of them.
    """
    if entry.manifest.redo is None:
        return
    try:
        record = UnfinishedAttempt.from_obj(entry.manifest.redo)
        if record.keep_events or (entry.manifest.rejected and entry.manifest.events == record.events_file):
            return
        event_log = SparkEventLog(record.event_log, is_own=record.own_event_log)
        events = event_place(record.events_file, entry.outbox.open_store)
        remove_events(events, event_log, entry.outbox.deadline)
    except (OSError, ValueError) as error:
        log.debug("Could not remove the event file of %s: %s", entry, error)


def _last_written(events: EventPlace) -> float:
    """Return the time of the last event, in seconds since the epoch; raise OSError if there is none."""
    if isinstance(events, Path):
        return max(path.stat().st_mtime for path in _files_of(events))
    last_ms = events.last_ms()
    if last_ms is None:
        raise FileNotFoundError(str(events))
    return last_ms / 1000


def _files_of(events_file: Path) -> list[Path]:
    return [events_file, *events_file.iterdir()] if events_file.suffix == EVENT_FOLDER else [events_file]


def reservation_file(events_file: Path) -> Path:
    """Return the empty file that keeps the folder of an event file until the job begins to write there.

    OpenLineage makes the folder only once. If another attempt removed the folder at its own end, all events of the job
    would be lost.
    """
    return events_file.with_name(f".{events_file.name}.reserved")


def remove_events(path: EventPlace, event_log: SparkEventLog, deadline: Deadline | None) -> None:
    """Remove an event file or folder of event files, and the folders of its task, DAG run and DAG if they are empty.

    In a store, remove the objects.

    :param event_log: event log of the same job, which is removed if it was written for this attempt alone.
    :param deadline: the disk may take half of the time until then, but at least a second; ``None`` for no limit.
    :raises OSError: if they cannot be removed. After a TimeoutError they may still be removed later.
    """

    def remove() -> None:
        event_log.remove()
        _remove_events(path)

    if deadline is None:
        remove()
        return
    seconds = max(_REMOVAL_SECONDS, deadline.remaining() / 2)
    if not run_with_deadline(Deadline.after(seconds), remove):
        raise TimeoutError(errno.ETIMEDOUT, f"the disk did not answer within {seconds:.1f} s", str(path))


_REMOVAL_SECONDS = 1.0


def _remove_events(path: EventPlace) -> None:
    if not isinstance(path, Path):
        path.remove()
        return
    if path.suffix == EVENT_FOLDER and path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    log.debug("Removed %s", path)
    with suppress(OSError):
        reservation_file(path).unlink(missing_ok=True)
        # Remove only empty folders: other attempts of the run may still write here.
        for folder in list(path.parents)[:3]:
            folder.rmdir()


def is_ready(manifest: Manifest, is_over: Callable[[AttemptKey], object]) -> bool:
    """Return whether an entry can be delivered now: it has proposals, or its attempt is known to be over.

    :param is_over: returns whether a task instance is known to be over; called only if the entry does not show whether
        the attempt runs.
    """
    if manifest.state != "unfinished":
        return True
    with suppress(ValueError):
        record = UnfinishedAttempt.from_obj(manifest.redo)
        return record.spark_succeeded is not None or (not record.runs_here and bool(is_over(manifest.key)))
    return True  # it cannot be read: a drain sets it aside


def may_run(manifest: Manifest) -> bool:
    """Return whether the attempt of an entry may still run, judging by the entry and the processes of this machine."""
    with suppress(ValueError):
        return manifest.state == "unfinished" and not UnfinishedAttempt.from_obj(manifest.redo).is_over
    return False


def drain_callbacks(
    final_result: Callable[[AttemptKey], AttemptResult | None],
    seconds: float,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[Callable[[Entry, bool], Entry | None], Callable[[Entry], None]]:
    """Return the callbacks of a drain: to convert the events of an unfinished entry, and to remove delivered events.

    :param final_result: see :class:`~airflow_provider_spark_datahub.task.options.Connections`.
    :param seconds: time for the conversion of one entry; a large event file has more.
    :param stopped: when it returns True, no further conversion begins, and the current one ends.
    """

    def clock() -> float:
        return math.inf if stopped() else time.monotonic()

    def finish(entry: Entry, followed: bool) -> Entry | None:
        if stopped():
            return None
        deadline = Deadline(time.monotonic() + seconds, clock)
        known: list[AttemptResult] = []

        def ask(key: AttemptKey) -> bool:
            known.extend(filter(None, [final_result(key)]))
            return bool(known)

        over = followed or is_ready(entry.manifest, ask)
        # Airflow's result is that of the last attempt.
        is_last = bool(known) and not entry.outbox.receipts.find(entry.name, entry.manifest)[1]
        return recover_entry(entry, deadline, over=over, patient=True, result=known[0] if is_last else "FAILURE")

    return finish, remove_delivered_events

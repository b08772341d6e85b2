"""A submitted job: the place of its events, and its record in the outbox, from which a killed
attempt is recovered.

Tests: ``tests/task/test_recovery.py``.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture import EVENT_FOLDER, EventPlace, running_submits
from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult, TaskAttempt
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.outbox import is_gone, machine, process_start
from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture import OpenStore

log = logging.getLogger(__name__)

_REMOVAL_SECONDS = 1.0
_BYTES_AN_OBJECT = 20_000
"""Size of a file that takes as long to read as the request for an object, at the slowest speed of a
conversion.
"""


@dataclass(frozen=True)
class SubmittedJob:
    """Job of an attempt as it was submitted, for the states of the attempt after the submit.

    :param settings: settings of the converter, with what the launcher knows of the application's
        name.
    :param events: place of its events; ``None`` if it runs without lineage.
    :param driver_is_here: whether the driver runs on this machine; ``None`` if that is not known.
    :param problem: why it runs without lineage.
    :param is_earlier: whether an earlier attempt submitted it.
    """

    settings: LineageSettings
    events: EventPlace | None = None
    event_log: SparkEventLog = field(default_factory=SparkEventLog)
    driver_is_here: bool | None = None
    problem: str | None = None
    is_earlier: bool = False

    @classmethod
    def found(
        cls,
        files: Mapping[str, Any],
        settings: LineageSettings,
        open_store: OpenStore,
        since_ms: int | None = None,
    ) -> Self:
        """Return the job that an earlier attempt or a record names.

        :param files: as in :attr:`UnfinishedAttempt.event_files`.
        :param since_ms: start of the attempt, in ms since the epoch.
        """
        location = files["events_file"]
        event_log = SparkEventLog(
            files.get("event_log"),
            is_own=bool(files.get("own_event_log")),
            events_file=location,
            open_store=open_store,
            since_ms=since_ms,
        )
        return cls(settings, _event_place(location, open_store), event_log, is_earlier=True)

    @property
    def size(self) -> int:
        """Size of the events and the job's own event log, in bytes, as far as it is known."""
        size = 0
        with suppress(OSError):
            if isinstance(self.events, Path):
                size += sum(file.stat().st_size for file in _files_of(self.events))
            elif self.events is not None:
                size += sum(_BYTES_AN_OBJECT + size for size in self.events.sizes().values())
        with suppress(OSError):
            size += self.event_log.own_size
        return size

    @property
    def last_written(self) -> float | None:
        """Time of the last event, in seconds since the epoch; ``None`` if there is none."""
        with suppress(OSError):
            if isinstance(self.events, Path):
                return max(path.stat().st_mtime for path in _files_of(self.events))
            last_ms = self.events.last_ms() if self.events is not None else None
            if last_ms is None:
                last_ms = self.event_log.own_last_ms
            return last_ms / 1000 if last_ms is not None else None
        return None

    def remove_events(self, deadline: Deadline | None, *, spark_succeeded: bool = True) -> None:
        """Remove the events, and the folders of their task, DAG run and DAG if they are empty.

        An event log that was written for this attempt alone goes with them.

        :param deadline: the disk may take half of the time until then, but at least a second;
            ``None`` for no limit.
        :param spark_succeeded: otherwise a service may start Spark again: Glue's ``MaxRetries``,
            later steps of EMR.
        :raises OSError: if they cannot be removed. After a TimeoutError they may still be removed
            later.
        """
        if deadline is None:
            self._remove(spark_succeeded)
            return
        seconds = max(_REMOVAL_SECONDS, deadline.remaining() / 2)
        if not Deadline.after(seconds).run(lambda: self._remove(spark_succeeded)):
            reason = f"the disk did not answer within {seconds:.1f} s"
            raise TimeoutError(errno.ETIMEDOUT, reason, str(self.events))

    def _remove(self, spark_succeeded: bool) -> None:
        self.event_log.remove(may_start_again=not spark_succeeded)
        events = self.events
        if not isinstance(events, Path):
            if events is not None:
                events.remove()
            return
        if events.suffix == EVENT_FOLDER and events.is_dir():
            shutil.rmtree(events)
        else:
            events.unlink(missing_ok=True)
        log.debug("Removed %s", events)
        with suppress(OSError):
            reservation_file(events).unlink(missing_ok=True)
            # Remove only empty folders: other attempts of the run may still write here.
            for folder in list(events.parents)[:3]:
                folder.rmdir()


@dataclass(frozen=True)
class UnfinishedAttempt:
    """Record of an unfinished attempt in the outbox: the place of its events, and the process that
    works on it.

    The names of the fields are the keys of its JSON in the outbox.

    :param event_log: folder of Spark's own event log; :attr:`own_event_log` is whether it belongs
        to this job alone.
    :param spark_succeeded: ``None`` until the end is known.
    :param keep_events: the event file stays even if its lineage is delivered, because not all of it
        was read.
    :param machine: see :mod:`~airflow_provider_spark_datahub.delivery.outbox.lease`.
    :param process_started: likewise; the number :attr:`process` may belong to another process one
        day.
    """

    task_try: TaskAttempt
    settings: LineageSettings
    events_file: str
    event_log: str | None
    own_event_log: bool
    machine: str
    process: int
    spark_succeeded: bool | None = None
    keep_events: bool = True
    process_started: int | None = None

    @classmethod
    def begun(cls, attempt: TaskAttempt, job: SubmittedJob) -> Self:
        """Return the record of an attempt of this process, before its job is submitted."""
        folder = str(job.event_log.folder) if job.event_log.folder else None
        place = str(job.events), folder, job.event_log.is_own, machine(), os.getpid()
        return cls(attempt, job.settings, *place, None, False, process_start(os.getpid()))

    def ended(self, end_ms: int, result: AttemptResult, *, spark_succeeded: bool) -> Self:
        """Return the record of the ended attempt. Every conversion from this record gives the same
        lineage.
        """
        return replace(
            self, task_try=self.task_try.ended(end_ms, result), spark_succeeded=spark_succeeded
        )

    def with_end(self, last_written: float | None, result: AttemptResult = "FAILURE") -> Self:
        """Return the record with an end at the time of the last event, if the attempt recorded
        none.

        :param last_written: that time, in seconds since the epoch; ``None`` if there is no event.
        :param result: result of the task run, as far as it is known. The edges of such an attempt
            are only added: somebody may have set the state in Airflow, and Spark was stopped.
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

    @property
    def event_files(self) -> dict[str, Any]:
        """Where the events of the job are, as JSON, for :meth:`SubmittedJob.found`."""
        return {
            "events_file": self.events_file,
            "event_log": self.event_log,
            "own_event_log": self.own_event_log,
            "suffixed_name": self.settings.suffixed_name,
        }

    def job(self, open_store: OpenStore) -> SubmittedJob:
        """Return the job of the attempt."""
        return SubmittedJob.found(
            self.event_files, self.settings, open_store, self.task_try.start_ms
        )

    @property
    def is_over(self) -> bool:
        """Return whether the attempt has ended, or its process and its Spark are known to be gone
        from this machine.
        """
        return self.spark_succeeded is not None or (self.is_killed and not self.orphans())

    @property
    def is_killed(self) -> bool:
        """Return whether the attempt recorded no end, and its process is known to be gone from this
        machine.
        """
        return self.spark_succeeded is None and is_gone(
            self.machine, self.process, self.process_started
        )

    def orphans(self) -> list[int]:
        """Return the ids of the processes here in which the Spark of an attempt without a recorded
        end runs.
        """
        if self.spark_succeeded is not None:
            return []
        # Other jobs may write into a folder of logs that is not the job's own.
        return running_submits(self.events_file, (self.own_event_log and self.event_log) or "")

    @property
    def runs_here(self) -> bool:
        """Return whether the attempt's process is known to run on this machine.

        If somebody sets a task's state, Airflow says that it is over some seconds before it is
        killed and Spark ends.
        """
        return self.machine == machine() and not is_gone(
            self.machine, self.process, self.process_started
        )


def _event_place(location: str, open_store: OpenStore) -> EventPlace:
    """Return the place of events by its text: a path, a session of a Spark Connect server, or a URI
    in a store.
    """
    if "://" not in location:
        return Path(location)
    if location.startswith(capture.SESSION_SCHEME):
        return capture.SessionEvents.parse(location)
    return capture.EventObjects(location, open_store)


def _files_of(events: Path) -> list[Path]:
    return [events, *events.iterdir()] if events.suffix == EVENT_FOLDER else [events]


def reservation_file(events_file: Path) -> Path:
    """Return the empty file that keeps the folder of an event file until the job begins to write
    there.

    OpenLineage makes the folder only once. If another attempt removed the folder at its own end,
    all events of the job would be lost.
    """
    return events_file.with_name(f".{events_file.name}.reserved")

"""Spark's own event log of one try: written beside the OpenLineage events, read with them, and removed with them.

The events of one job on their way to lineage: read while it runs, and to their ends when it is over.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.capture import (
    CollectionReport,
    FileFollower,
    LogFollower,
    Outcome,
    Submission,
    event_log_folder,
    follow_events,
    inject_event_log,
    read_event_log,
)

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Conversion, Converter, LineageSettings


class SparkEventLog:
    """Tells of streaming queries what OpenLineage does not: their sinks.

    :ivar problems: why the log, or a part of it, cannot be read; for people.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._folder: Path | None = None
        self._ours = False
        self._follower: LogFollower | None = None

    def inject(self, submission: Submission, events_file: Path, *, local_driver: bool) -> Submission:
        """The submission with an event log, or as it was where there can be none.

        :param events_file: of the try; its log goes beside it.
        """
        injection = inject_event_log(submission, event_log_folder(events_file), local_driver=local_driver)
        if injection.reason:
            self.problems.append(f"no Spark event log: {injection.reason}")
        if injection.folder is not None and injection.ours:
            try:
                # Without its folder, the job would not start.
                injection.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self.problems.append(f"no Spark event log: {injection.folder}: {error.strerror or error}")
                return submission
        self._folder, self._ours = injection.folder, injection.ours
        return injection.submission

    @classmethod
    def at(cls, folder: Path | None, *, is_own: bool) -> SparkEventLog:
        """The log that :meth:`inject` of another process arranged."""
        log = cls()
        log._folder, log._ours = folder, is_own
        return log

    @property
    def folder(self) -> Path | None:
        """Where it is, or will be; ``None`` where there is none."""
        return self._folder

    @property
    def is_own(self) -> bool:
        """Whether the folder is of this job alone."""
        return self._ours

    @property
    def is_written(self) -> bool:
        """Whether the job writes a log that can be read."""
        return self._folder is not None

    def follow(self, converter: Converter, stop: Callable[[], bool]) -> int:
        """Hand the events to the converter that were logged since the last time, while the job runs.

        :param stop: asked between events; what it leaves is for the next time.
        :returns: how many there were.
        """
        if self._folder is None:
            return 0
        self._follower = self._follower or LogFollower(self._folder)
        events = 0
        for event in self._follower.new(self._ids(converter), stop):
            converter.add_log_event(event)
            events += 1
        return events

    def read(self, converter: Converter, expired: Callable[[], bool]) -> bool:
        """Hand the log's events to the converter.

        :param expired: says True when the time is up.
        :returns: whether it was read to its end, or there is none to read.
        """
        if self._folder is None:
            return True
        log = read_event_log(self._folder, application_ids=self._ids(converter), deadline=expired)
        for event in log:
            converter.add_log_event(event)
        self.problems += log.report.problems
        return log.report.complete

    def _ids(self, converter: Converter) -> set[str] | None:
        """The user's own folder has the logs of other applications, too."""
        return None if self._ours else converter.application_ids

    def remove(self) -> None:
        """Remove the log, where it was written for this try alone."""
        if self._folder is not None and self._ours:
            shutil.rmtree(self._folder, ignore_errors=True)


MOST_RUNS = 5000
"""How many runs of a job's queries are kept while it runs: some 1.5 KB each."""
MOST_SINGLE_EVENTS = 200
"""How many events are told at once, where each is a job of its own."""
READ_AGAIN_BYTES = 256 * 1024 * 1024
"""An event file of this size is read again at the end, in some 3 seconds, where queries were forgotten meanwhile."""


class JobEvents:
    """Not for several threads at once.

    :param events_file: ``None`` where the job runs without lineage.
    :param event_log: Spark's own log, whose events belong to the same job.
    """

    def __init__(self, settings: LineageSettings, events_file: Path | None, event_log: SparkEventLog) -> None:
        from airflow_provider_spark_datahub.conversion import Converter

        self._settings = settings
        self._event_log = event_log
        self._converter: Converter = Converter(settings)
        self._file: FileFollower[bytes] | None = follow_events(events_file) if events_file else None
        self._forgotten = False
        self.knows_all = False
        """Whether :meth:`finish` told of all that was ever read, and of no less than :meth:`so_far`."""

    # -- while the job runs

    def so_far(self, stop: Callable[[], bool], *, again: bool = False) -> Iterator[Conversion]:
        """What the job did so far, where there is anything new: once, or (``coalesce_jobs`` off) in several parts.

        :param stop: asked between events; what it leaves is for the next time.
        :param again: also where there is nothing new.
        """
        if self._file is None:
            return
        new = self._file.new(stop)
        most = None if self._settings.coalesce_jobs else MOST_SINGLE_EVENTS
        while (read := self._take(islice(new, most), stop)) or again:
            yield self._converter.so_far(with_log=self._event_log.is_written)
            if most is None or not read:
                return

    def told(self) -> None:
        """What :meth:`so_far` came to has arrived: of a long job's queries, those that are over may be forgotten."""
        if self._converter.run_count > MOST_RUNS:
            self._converter.forget(with_log=self._event_log.is_written)
            self._forgotten = True

    def _take(self, events: Iterator[bytes], stop: Callable[[], bool]) -> int:
        read = 0
        for event in events:
            self._add(event)
            read += 1
        # After the events: it must know of every query that they tell of.
        return read + self._event_log.follow(self._converter, stop)

    def _add(self, event: bytes) -> None:
        self._converter.add(event)
        if not self._settings.reads_event_log:
            self._converter.keep_few()

    # -- when it is over

    @property
    def can_finish(self) -> bool:
        """Whether :meth:`finish` needs nothing that was told or forgotten already."""
        if not self._settings.coalesce_jobs:
            return False
        read = self._file.report.bytes_read if self._file else 0
        return not self._forgotten or (read > READ_AGAIN_BYTES and not self._settings.capture_operations)

    def finish(self, succeeded: bool, expired: Callable[[], bool]) -> tuple[CollectionReport, Conversion]:
        """Read what is left, and convert everything.

        :param succeeded: what spark-submit said.
        :param expired: says True when the time is up.
        """
        from airflow_provider_spark_datahub.conversion import Ending

        report = CollectionReport()
        if self._file is not None:
            for event in self._file.rest(expired):
                self._add(event)
            report = self._file.report
        self._converter.restart_log()
        log_complete = self._event_log.read(self._converter, expired)
        self.knows_all = report.outcome in (Outcome.COMPLETE, Outcome.TORN) and log_complete and not self._forgotten
        complete = report.outcome is Outcome.COMPLETE and not report.quarantined_count
        return report, self._converter.finish(Ending(succeeded, events_complete=complete), log_complete=log_complete)

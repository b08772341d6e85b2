"""Conversion of one job's events to proposals, while the job runs and when it has ended.

Tests: ``tests/task/test_running.py`` and ``tests/task/test_ended.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic

from airflow_provider_spark_datahub.capture import CollectionReport, Outcome, checked_text, follow
from airflow_provider_spark_datahub.conversion import (
    Conversion,
    Converter,
    Ending,
    OutOfTimeError,
    Proposal,
    time_limit,
)
from airflow_provider_spark_datahub.conversion.run_tree import TaskAttempt
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.task.submitted import SubmittedJob

log = logging.getLogger(__name__)

_MAX_KEPT_RUNS = 5000
"""Runs of a job's queries that are kept in memory while it runs, at about 1.5 KB each."""
_MAX_SINGLE_EVENTS = 200
"""Number of events that are converted at once without ``coalesce_jobs``, when each event is a job
of its own.
"""
_READ_AGAIN_BYTES = 256 * 1024 * 1024
"""Largest event file that is read again at the end if queries were forgotten meanwhile; this takes
about 3 seconds.
"""

_GRACE_SECONDS = 2.0
"""Seconds for which a read may go on after its deadline. The read checks the deadline itself,
within events, too.
"""
_STUCK = "a read of them has not ended"
"""Detail of a report on events if a read did not end in time."""


def _hand_over(
    events: Iterator[bytes],
    report: CollectionReport,
    add: Callable[[bytes], object],
    deadline: Deadline,
) -> None:
    """Hand the events of a reader to ``add`` until the deadline, which also ends the conversion of
    an event.
    """
    try:
        with time_limit(lambda: deadline.expired):
            for event in events:
                add(event)
    except OutOfTimeError:
        report.outcome, report.detail = Outcome.TIMED_OUT, f"within event {report.events}"


class JobEvents:
    """Reader and converter of one job's events. Not safe for several threads at once.

    :ivar saw_everything: whether :meth:`finish` converts all events of the job, including those
        that :meth:`snapshot` has already converted.
    :ivar out_of_time: whether :meth:`collect` left events unread, or the time ended within the
        conversion of an event.
    :ivar is_stuck: whether :meth:`collect` still waits for a disk, so that nothing can be
        converted.
    """

    def __init__(self, job: SubmittedJob) -> None:
        self._settings = job.settings
        self._event_log = job.event_log
        self._converter = Converter(job.settings)
        self._file = follow(job.events, checked_text) if job.events else None
        self._forgotten = False
        self.saw_everything = self.out_of_time = self.is_stuck = False
        self._log_complete = True
        self.has_dropped = False

    # -- while the job runs

    def snapshot(self, stop: Callable[[], bool], *, again: bool = False) -> Iterator[Conversion]:
        """Yield the lineage up to now if there are new events: once, or in several parts without
        ``coalesce_jobs``.

        :param stop: called between events; True leaves the rest for the next call.
        :param again: yield the lineage even if there are no new events.
        """
        if self._file is None:
            return
        new = self._file.new(stop)
        limit = None if self._settings.coalesce_jobs else _MAX_SINGLE_EVENTS
        while (events := self._add_new(islice(new, limit), stop)) or again:
            log.debug(
                "Followed the job: %s, %d bytes read",
                counted(events, "new event"),
                self._file.report.bytes_read,
            )
            yield self._converter.snapshot(with_log=self._event_log.is_followed)
            if limit is None or not events:
                return

    def mark_delivered(self) -> None:
        """Forget completed queries of a long job. Call this when the lineage of :meth:`snapshot`
        was delivered.
        """
        if self._converter.run_count > _MAX_KEPT_RUNS:
            self._converter.discard_reported(with_log=self._event_log.is_followed)
            self._forgotten = True

    def _add_new(self, events: Iterator[bytes], stop: Callable[[], bool]) -> int:
        count = 0
        for event in events:
            self._converter.add(event)
            count += 1
        # Read the log after the events: it must contain every query that the events name.
        return count + self._event_log.follow(self._converter, stop)

    # -- when it is over

    @property
    def _report(self) -> CollectionReport:
        return self._file.report if self._file else CollectionReport()

    @property
    def can_finish(self) -> bool:
        """Return whether :meth:`finish` works without reading converted or forgotten events again."""
        if not self._settings.coalesce_jobs:
            return False
        size = self._file.report.bytes_read if self._file else 0
        return not self._forgotten or size > _READ_AGAIN_BYTES

    def collect(self, deadline: Deadline) -> CollectionReport:
        """Read the remaining events until the deadline (:attr:`out_of_time`).

        If a disk or a store does not answer, stop waiting a little later (:attr:`is_stuck`).
        """
        reports: list[CollectionReport] = []
        grace = Deadline.after(deadline.remaining() + _GRACE_SECONDS)
        if not grace.run(lambda: reports.append(self._collect(deadline))):
            self.out_of_time = self.is_stuck = True
            # A new report, since the reader that is left behind may still change its own.
            return CollectionReport(outcome=Outcome.TIMED_OUT, detail=_STUCK)
        return reports[0]

    def _collect(self, deadline: Deadline) -> CollectionReport:
        started = monotonic()
        report = self._report
        if self._file is not None:
            _hand_over(
                self._file.rest(lambda: deadline.expired), report, self._converter.add, deadline
            )
        log.debug(
            "Collected %s, %d bytes, %s in %d ms: %s", counted(report.events, "event"), report.bytes_read,
            counted(report.quarantined_count, "unusable line"), (monotonic() - started) * 1000, report.sentence,
        )  # fmt: skip
        self._converter.restart_log()
        self._log_complete = self._event_log.read(self._converter, lambda: deadline.expired)
        if self._event_log.is_unavailable:
            report.outcome, report.detail = Outcome.UNAVAILABLE, self._event_log.problems[-1]
        self.out_of_time = report.outcome is Outcome.TIMED_OUT or (
            not self._log_complete and deadline.expired
        )
        self.saw_everything = (
            (report.outcome in (Outcome.COMPLETE, Outcome.TORN) or self._has_log_alone)
            and self._log_complete
            and not self._forgotten
        )
        return report

    @property
    def is_unavailable(self) -> bool:
        """Return whether the disk or the store with the events failed, so that they may be read
        later.
        """
        return self._report.outcome is Outcome.UNAVAILABLE

    @property
    def _has_log_alone(self) -> bool:
        """Return whether Spark's event log is the only source: a job without the listener leaves no
        event file.
        """
        return self._report.outcome is Outcome.MISSING and self._event_log.folder is not None

    def lineage_in_time(
        self, succeeded: bool, attempt: TaskAttempt, deadline: Deadline
    ) -> tuple[Conversion, list[Proposal]] | None:
        """Convert everything that was read, and make the proposals of the attempt.

        :param succeeded: whether spark-submit succeeded.
        :returns: ``None`` if the time is too short (:attr:`out_of_time`), or if the events cannot
            be read at the moment (:attr:`is_unavailable`).
        """
        if self.out_of_time or self.is_unavailable:
            return None
        try:
            with time_limit(lambda: deadline.expired):
                return self.lineage(succeeded, attempt)
        except OutOfTimeError:
            self.out_of_time = True
            self._report.outcome, self._report.detail = (
                Outcome.TIMED_OUT,
                "they were read, but not converted",
            )
            return None

    def lineage(self, succeeded: bool, attempt: TaskAttempt) -> tuple[Conversion, list[Proposal]]:
        """Convert and make proposals as :meth:`lineage_in_time` does, however long it takes."""
        conversion = self.finish(succeeded)
        return conversion, self.proposals(attempt, conversion)

    def finish(self, succeeded: bool) -> Conversion:
        """Convert everything that was read, however long it takes.

        :param succeeded: whether spark-submit succeeded.
        """
        started = monotonic()
        report = self._report
        complete = report.outcome is Outcome.COMPLETE and not report.quarantined_count
        if self._has_log_alone:
            complete = self._log_complete
        ending = Ending(succeeded, events_complete=complete and not self.has_dropped)
        conversion = self._converter.finish(ending, log_complete=self._log_complete)
        log.debug(
            "Converted to %s, %s, %s in %d ms", counted(len(conversion.jobs), "job"),
            counted(len(conversion.inputs), "input"), counted(len(conversion.outputs), "output"),
            (monotonic() - started) * 1000,
        )  # fmt: skip
        return conversion

    def proposals(self, attempt: TaskAttempt, conversion: Conversion) -> list[Proposal]:
        """Return the proposals of an attempt: its place in the run tree, and the lineage of its job
        below it.
        """
        conversion.jobs = attempt.attach(
            conversion.jobs, self._settings, [each.urn for each in conversion.sessions]
        )
        return [*attempt.proposals(conversion.jobs), *conversion.proposals(self._settings)]

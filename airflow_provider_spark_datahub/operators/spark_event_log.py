"""Spark's own event log of one try: written beside the OpenLineage events, read with them, and removed with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.capture.event_log import read_event_log
from airflow_provider_spark_datahub.capture.follow import LogFollower
from airflow_provider_spark_datahub.capture.inject import inject_event_log
from airflow_provider_spark_datahub.capture.location import event_log_folder
from airflow_provider_spark_datahub.capture.submission import Submission

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.convert import Converter


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

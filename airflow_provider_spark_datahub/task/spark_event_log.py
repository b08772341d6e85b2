"""Spark's own event log of one attempt: written beside the OpenLineage events, read with them, removed with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.capture import (
    EventLog,
    LogFollower,
    Submission,
    event_log_folder,
    inject_event_log,
)

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Converter


class SparkEventLog:
    """Event log of a job, which names the sinks of streaming queries that OpenLineage does not report.

    :param folder: of the log; ``None`` if there is none, or :meth:`inject` is still to be called.
    :param is_own: whether the folder belongs to this job alone.
    :ivar problems: why the log, or a part of it, cannot be read.
    """

    def __init__(self, folder: str | None = None, *, is_own: bool = False) -> None:
        self.problems: list[str] = []
        self.folder = Path(folder) if folder else None
        self.is_own = is_own
        self._follower: LogFollower | None = None

    def inject(self, submission: Submission, events_file: Path, *, local_driver: bool) -> Submission:
        """Return the submission with an event log beside the events file, or unchanged if there can be none."""
        injection = inject_event_log(submission, event_log_folder(events_file), local_driver=local_driver)
        if injection.reason:
            self.problems.append(f"no Spark event log: {injection.reason}")
        if injection.folder is not None and injection.ours:
            try:
                # The job would not start without its folder.
                injection.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self.problems.append(f"no Spark event log: {injection.folder}: {error.strerror or error}")
                return submission
        self.folder, self.is_own = injection.folder, injection.ours
        return injection.submission

    def follow(self, converter: Converter, stop: Callable[[], bool]) -> int:
        """Hand events that were logged since the last call to the converter, while the job runs.

        :param stop: called between events; True leaves the rest for the next call.
        :returns: the number of events.
        """
        if self.folder is None:
            return 0
        self._follower = self._follower or LogFollower(self.folder)
        events = 0
        for event in self._follower.new(self._application_ids(converter), stop):
            converter.add_log_event(event)
            events += 1
        return events

    def read(self, converter: Converter, expired: Callable[[], bool]) -> bool:
        """Hand all events of the log to the converter. Return False if the log was not read to its end."""
        if self.folder is None:
            return True
        events = EventLog(self.folder, application_ids=self._application_ids(converter), deadline=expired)
        for event in events:
            converter.add_log_event(event)
        self.problems += events.problems
        return events.complete

    def _application_ids(self, converter: Converter) -> set[str] | None:
        """Return the applications to read; the user's own folder holds the logs of others, too."""
        return None if self.is_own else converter.application_ids

    def remove(self) -> None:
        """Remove the log if it was written for this attempt alone."""
        if self.folder is not None and self.is_own:
            shutil.rmtree(self.folder, ignore_errors=True)

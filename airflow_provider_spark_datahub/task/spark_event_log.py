"""Spark's own event log of one attempt: removed after reading if it was enabled for lineage, else
kept.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture import event_log_folder, inject_event_log
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.foundation.files import (
    PRIVATE_ACCESS,
    FileAccess,
    make_folder,
    refusal,
)

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture import LogFollower, LogPlace, OpenStore, Submission
    from airflow_provider_spark_datahub.conversion import Converter

log = logging.getLogger(__name__)

_MOST_BYTES = 1024 * 1024 * 1024
"""Bytes of a job's own log on the disk at which it is given up: some 300,000 of Spark's tasks,
uncompressed.
"""
_WROTE_NONE = "Spark wrote none"
EMPTY_LOG = "Spark left no event log in "
_CLOSING_SECONDS = 10.0
_LOOK_SECONDS = 0.3
_LEAST_LEFT_BYTES = 512 * 1024 * 1024


class SparkEventLog:
    """Event log of a job.

    :param folder: folder of the log, or its address in an object store; ``None`` before
        :meth:`inject`.
    :param is_own: whether the folder belongs to this job alone.
    :param events_file: the attempt's event file, whose path marks its log among others in the
        user's folder.
    :param since_ms: start of the attempt, in ms since the epoch.
    :ivar missing: why the job has no log that can be read here; empty if it has one, or was to have
        none.
    :ivar problems: why a part of the log was not read.
    :ivar is_unavailable: whether the store of the job's own log failed, so that all of it may be
        read later.
    """

    def __init__(
        self,
        folder: str | None = None,
        *,
        is_own: bool = False,
        events_file: str | None = None,
        open_store: OpenStore | None = None,
        since_ms: int | None = None,
    ) -> None:
        self._attempt = events_file
        self._open_store, self._since_ms = open_store, since_ms
        self.missing = ""
        self.problems: list[str] = []
        self.is_unavailable = False
        self.folder = self._place(folder) if folder else None
        self.is_own = is_own
        self._follower: LogFollower | None = None
        self._given_up = ""

    def _place(self, folder: str) -> LogPlace | None:
        if "://" not in folder:
            return Path(folder)
        # Listing a whole bucket would take too long.
        is_prefix = bool(urlsplit(folder).path.strip("/"))
        return (
            capture.LogObjects(folder, self._open_store, self._since_ms)
            if self._open_store and is_prefix
            else None
        )

    def inject(
        self,
        submission: Submission,
        events_file: Path,
        *,
        local_driver: bool,
        store: tuple[str, str] | None = None,
        attempt: str | None = None,
        connection: str | None = None,
        followed: bool = False,
        access: FileAccess = PRIVATE_ACCESS,
    ) -> Submission:
        """Return the submission with an event log next to the event file, or unchanged if there can
        be none.

        :param store: addresses of the attempt's folder in an object store, as the driver and as the
            worker reach it; ``None`` if a driver elsewhere has none.
        :param attempt: marks the attempt's log among others; ``None`` for the path of the events
            file.
        :param connection: id of the connection to the store of the user's log; empty for the
            store's defaults, ``None`` to leave such a log unread.
        :param followed: the log is read while the job runs, so that it must not be compressed.
        :param access: of the folders that are made. Spark's own log is not redacted.
        """
        injection = inject_event_log(
            submission,
            event_log_folder(events_file),
            local_driver=local_driver,
            store=store[0] if store else None,
            reads_stores=connection is not None,
            compress=not (followed and local_driver) and find_spec("zstandard") is not None,
        )
        self.folder, self.missing = injection.folder, injection.reason
        if injection.uri and connection is not None:
            self.folder = self._place(_through(injection.uri, connection))
            if self.folder is None:
                self.missing = (
                    f"{injection.uri} names a whole bucket, or no client of the store is here"
                )
        if injection.ours:
            place = injection.folder or self._place(store[1] if store else "")
            try:
                # The job would not start without its folder.
                self._make(place, access)
            except OSError as error:
                self.missing, self.folder = f"{place}: {refusal(error)}", None
                return submission
            self.folder, self.is_own = place, True
        self._attempt = attempt or str(events_file)
        if self.folder is None or self.is_own:
            return injection.submission
        properties = {**injection.submission.properties, capture.ATTEMPT_PROPERTY: self._attempt}
        return replace(injection.submission, properties=properties)

    def _make(self, place: LogPlace | None, access: FileAccess) -> None:
        if isinstance(place, Path):
            make_folder(place, sync=False, access=access)
        elif place is None:
            raise FileNotFoundError("no client of the store is here")
        else:
            place.make()

    @property
    def why_empty(self) -> str:
        """Return why there is nothing in the job's own log in a store; empty if there is something,
        or it was not read.

        The text begins with :data:`EMPTY_LOG`.
        """
        if self.missing != _WROTE_NONE or not isinstance(self.folder, capture.LogObjects):
            return ""
        return f"{EMPTY_LOG}{self.folder}: its application did not start, must not write there, or logs elsewhere"

    @property
    def own_size(self) -> int:
        """Size of the job's own log, in bytes; raises OSError if its place does not answer."""
        if not self.is_own or self.folder is None:
            return 0
        if isinstance(self.folder, Path):
            return sum(file.stat().st_size for file in self.folder.rglob("*"))
        return sum(self.folder.sizes().values())

    @property
    def own_last_ms(self) -> int | None:
        """Time of the last file of the job's own log in a store, in ms since the epoch; ``None`` if
        there is none.
        """
        return (
            self.folder.last_ms()
            if self.is_own and isinstance(self.folder, capture.LogObjects)
            else None
        )

    @property
    def is_followed(self) -> bool:
        """Return whether :meth:`follow` has found the log: some can only be read at the end."""
        return self._follower is not None and self._follower.found

    def follow(self, converter: Converter, stop: Callable[[], bool]) -> int:
        """Hand new events to the converter while the job runs, and return their number.

        :param stop: called between events; True leaves the rest for the next call.
        """
        if not isinstance(self.folder, Path) or self._given_up:
            # A store shows a file only after Spark has closed it, mostly at the end of the job.
            return 0
        self._follower = self._follower or capture.LogFollower(self.folder)
        events = 0
        for event in self._follower.new(self._application_ids(converter), stop):
            converter.add_log_event(event)
            events += 1
        return events

    def bound(self) -> None:
        """Give the job's own log up, and free its blocks, if it has grown too large or the disk is
        nearly full.

        Spark goes on writing: whoever calls this again frees what it wrote since.
        """
        if not (isinstance(self.folder, Path) and self.is_own):
            return
        with suppress(OSError):
            files = [
                path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink()
            ]
            used = sum(path.stat().st_blocks for path in files) * 512
            left = shutil.disk_usage(self.folder).free
            if not self._given_up and (used > _MOST_BYTES or (left < _LEAST_LEFT_BYTES and used)):
                self._given_up = (
                    f"given up at {used >> 20} MiB, with {left >> 20} MiB left on its disk"
                )
                log.warning("Spark's event log in %s was %s.", self.folder, self._given_up)
            for path in files if self._given_up else ():
                os.truncate(path, 0)

    def read(self, converter: Converter, expired: Callable[[], bool]) -> bool:
        """Hand all events of the log to the converter; return False if the log was not read to its
        end.

        A log that Spark never wrote is :attr:`missing`: the lineage is then that of the listener.
        """
        if self.folder is None:
            return True
        if self._given_up:
            self.missing = self._given_up
            return bool(converter.application_ids) and not self.is_followed
        application_ids = self._application_ids(converter)
        # Without OpenLineage events, the log of this attempt is found by its mark.
        attempt = self._attempt if application_ids is not None and not application_ids else None
        events = capture.EventLog(
            self.folder,
            application_ids=None if attempt else application_ids,
            deadline=expired,
            attempt=attempt,
        )
        for event in events:
            converter.add_log_event(event)
        self.problems += events.problems
        self.is_unavailable = (
            events.is_unavailable and isinstance(self.folder, capture.LogObjects) and self.is_own
        )
        if events.logs or events.problems:
            return events.complete
        self.missing = _WROTE_NONE if self.is_own else f"there is none of this job in {self.folder}"
        return bool(converter.application_ids) and not self.is_followed

    def _application_ids(self, converter: Converter) -> set[str] | None:
        """Return the ids of the applications to read, since the user's own folder has logs of
        others, too.
        """
        return None if self.is_own else converter.application_ids

    def await_close(self, deadline: Deadline) -> None:
        """Wait until a killed driver elsewhere has closed the job's own log: services answer before
        it has ended.

        :param deadline: half of the time until then may be taken, and some seconds.
        """
        until = Deadline.after(min(_CLOSING_SECONDS, deadline.remaining() / 2))
        with suppress(OSError):  # the log is not read then, which says why
            while (
                self.is_own
                and isinstance(self.folder, capture.LogObjects)
                and not self.folder.is_closed()
            ):
                if until.expired:
                    return
                time.sleep(_LOOK_SECONDS)

    def remove(self, *, may_start_again: bool = False) -> None:
        """Remove the log if it was written for this attempt alone.

        :param may_start_again: a service may start Spark with this log again, which needs the
            folder in its store.
        :raises OSError: if an object store refuses.
        """
        if self.folder is None or not self.is_own:
            return
        if isinstance(self.folder, Path):
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.folder.remove(keep_folder=may_start_again)


def _through(uri: str, connection: str) -> str:
    """Return an address in a store that names the connection to it, and nothing else before the
    bucket.
    """
    parts = urlsplit(uri)
    bucket = parts.netloc.rpartition("@")[2]
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    return f"{scheme}://{connection}{'@' if connection else ''}{bucket}/{parts.path.strip('/')}"

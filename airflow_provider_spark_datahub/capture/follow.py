"""Follows files that a running job writes: what was appended since, in complete lines and in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from airflow_provider_spark_datahub.capture.collect import (
    CollectionReport,
    CollectLimits,
    LineReader,
    Outcome,
    OutOfTimeError,
    Position,
    checked_text,
)
from airflow_provider_spark_datahub.capture.event_log import LogLimits, find_logs, followable_name, reduced_event

T = TypeVar("T")


class FileFollower(Generic[T]):
    """Reads a growing file, each line once. Nothing that is wrong with the file is an exception.

    The file is opened anew each time: a file system of the network shows then what another machine appended.

    :param parse: makes an event of a line, or raises :class:`BadLineError
        <airflow_provider_spark_datahub.capture.collect.BadLineError>`.
    :ivar report: over all that was read; its outcome is that of :meth:`rest`.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T], limits: CollectLimits | None = None) -> None:
        self.report = CollectionReport()
        self._path = path
        self._parse = parse
        self._limits = limits or CollectLimits()
        self._at = Position()
        self._file: tuple[int, int] | None = None
        self._replaced = False

    def moved(self, path: Path) -> None:
        """The file has another name now."""
        self._path = path

    def new(self, stop: Callable[[], bool]) -> Iterator[T]:
        """The events of the lines that were completed since; none while there is no file, or it cannot be read.

        :param stop: asked between lines; what it leaves is for the next time.
        """
        try:
            yield from self._read(stop, growing=True)
        except (OSError, OutOfTimeError):
            return

    def rest(self, deadline: Callable[[], bool]) -> Iterator[T]:
        """All other events, the last line included: nobody writes the file any more. The report is final then.

        :param deadline: says True when the time is up; asked between lines.
        """
        report = self.report
        report.outcome = Outcome.COMPLETE
        try:
            yield from self._read(deadline, growing=False)
        except FileNotFoundError:
            self._replaced = self._at.offset > 0
            report.outcome, report.detail = Outcome.MISSING, str(self._path)
        except OSError as error:
            report.outcome, report.detail = Outcome.UNREADABLE, f"{self._path}: {error.strerror or error}"
        except OutOfTimeError:
            report.outcome, report.detail = Outcome.TIMED_OUT, f"{self._path}, after {self._at.line} lines"
        if report.outcome is Outcome.COMPLETE and not report.events:
            report.outcome, report.detail = Outcome.EMPTY, str(self._path)
        if self._replaced and report.outcome not in (Outcome.UNREADABLE, Outcome.TIMED_OUT):
            report.outcome, report.detail = Outcome.REPLACED, str(self._path)

    def _read(self, stop: Callable[[], bool], *, growing: bool) -> Iterator[T]:
        with self._path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            file = status.st_dev, status.st_ino
            if status.st_size < self._at.offset or (self._at.offset and file != self._file):
                self._at, self._replaced = Position(), True
            self._file = file
            stream.seek(self._at.offset)
            reader = LineReader(self._parse, self.report, self._limits, stop)
            yield from reader.read_lines(stream, str(self._path), self._at, growing=growing)


def follow_events(path: Path) -> FileFollower[bytes]:
    """Follows the event file of a try; each event is its JSON text in UTF-8, checked but not decoded."""
    return FileFollower(path, checked_text())


class LogFollower:
    """Follows the event logs in a folder, as far as they are written uncompressed.

    :param folder: as in :func:`~airflow_provider_spark_datahub.capture.event_log.read_event_log`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._limits = LogLimits()
        self._parts: dict[str, FileFollower[dict[str, Any]]] = {}

    def new(self, application_ids: Collection[str] | None, stop: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """The wanted events that were logged since, decoded and reduced.

        :param application_ids: only these applications' logs; ``None`` for a folder of this try alone.
        :param stop: asked between lines; what it leaves is for the next time.
        """
        try:
            logs = find_logs(self._folder, application_ids)
        except OSError:
            # Not there yet, or not readable: the end of the try tells of it.
            return
        for part in (part for log in logs for part in log.parts):
            name = followable_name(part)
            if name is None:
                continue
            follower = self._parts.get(name)
            if follower is None:
                limits = CollectLimits(self._limits.max_event_bytes, max_quarantined=0)
                follower = self._parts[name] = FileFollower(part, reduced_event(self._limits), limits)
            follower.moved(part)
            yield from (event for event in follower.new(stop) if event)

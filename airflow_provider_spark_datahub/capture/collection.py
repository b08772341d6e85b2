"""Collection of an attempt's events from where its driver left them: a file, a folder, a store, or a Connect server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from airflow_provider_spark_datahub.capture.event_lines import (
    EVENT_FILE,
    EVENT_FOLDER,
    CollectionReport,
    CollectLimits,
    FileFollower,
    Outcome,
    worst,
)

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture.connect_session import SessionEvents
    from airflow_provider_spark_datahub.capture.event_objects import EventObjects

T = TypeVar("T")
Event = TypeVar("Event", covariant=True)


class Follower(Protocol[Event]):
    """Reader of growing events. :ivar report: see :class:`FileFollower`."""

    report: CollectionReport

    def new(self, stop: Callable[[], bool], /) -> Iterator[Event]:
        """Yield the events that were written since; none if they are missing or unreadable."""

    def rest(self, deadline: Callable[[], bool], /) -> Iterator[Event]:
        """Yield all remaining events after the writer has ended. The report is final then."""


EventPlace: TypeAlias = "Path | EventObjects | SessionEvents"
"""An attempt's event file, folder of event files (:data:`EVENT_FOLDER`), objects in a store, or Connect session."""


def follow(place: EventPlace, parse: Callable[[bytes], T]) -> Follower[T]:
    """Return the reader of an attempt's events."""
    if not isinstance(place, Path):
        return place.follow(parse)
    return _FolderFollower(place, parse) if place.suffix == EVENT_FOLDER else FileFollower(place, parse)


class _FolderFollower(Generic[T]):
    """Reader of a growing folder of event files, one for each Spark, in the order of their names.

    :param parse: returns the event of a line, or raises :class:`BadLineError`.
    :ivar report: counts of everything that was read; its outcome, set by :meth:`rest`, is the worst of the files'.
    """

    def __init__(self, folder: Path, parse: Callable[[bytes], T], limits: CollectLimits | None = None) -> None:
        self.report = CollectionReport()
        self._folder = folder
        self._parse = parse
        self._limits = limits
        self._followers: dict[Path, FileFollower[T]] = {}

    def new(self, stop: Callable[[], bool]) -> Iterator[T]:
        """Yield the events that were written since, as :meth:`FileFollower.new` does."""
        for follower in self._found():
            yield from follower.new(stop)

    def rest(self, deadline: Callable[[], bool]) -> Iterator[T]:
        """Yield all remaining events after the writers have ended, as :meth:`FileFollower.rest` does."""
        report = self.report
        endings = [(Outcome.COMPLETE, "")]
        followers = self._found()
        for follower in followers:
            yield from follower.rest(deadline)
            endings.append((report.outcome, report.detail))
            if report.outcome is Outcome.TIMED_OUT:
                break
        report.outcome, report.detail = worst(endings)
        if not followers:
            report.outcome, report.detail = Outcome.MISSING, f"no Spark of this task wrote into {self._folder}"

    def _found(self) -> list[FileFollower[T]]:
        for path in sorted(self._folder.glob(f"*{EVENT_FILE}")):
            if path not in self._followers:
                follower = self._followers[path] = FileFollower(path, self._parse, self._limits)
                follower.report = self.report
        return list(self._followers.values())

"""Events of one attempt in an object store: one object for each event, as OpenLineage's S3
transport writes them.

An object's name is its event's time, in ms since the epoch: ``1795345511935.json``. The transport
refuses a second event of the same millisecond, which is lost.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from airflow_provider_spark_datahub.capture import event_lines
from airflow_provider_spark_datahub.foundation.memory import batches_of

log = logging.getLogger(__name__)
T = TypeVar("T")

_EVENT_OBJECT = re.compile(r"(?P<ms>\d+)\.json")
_BATCH_OBJECTS = 64
"""Objects that are requested at the same time."""
_BATCH_BYTES = 32 * 1024 * 1024


class ObjectStore(Protocol):
    """Objects of a store below a prefix, by names relative to it.

    Requests raise OSError, and end in bounded time.
    """

    def describe(self, name: str = "") -> str:
        """Return the address of an object, or of the prefix, for people."""

    def stored(self, folder: str) -> Mapping[str, int]:
        """Return the size of each object below ``folder``, in bytes; empty if there is none."""

    def modified_ms(self, name: str) -> int | None:
        """Return the store's time of an object, in ms since the epoch; ``None`` if it is not known."""

    def read_all(self, names: Sequence[str]) -> Sequence[bytes | Exception]:
        """Return the content of each object, or why it cannot be read."""

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from ``start`` to ``end`` at most."""

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object."""

    def remove(self, name: str) -> None:
        """Remove an object; nothing happens if it is gone."""


OpenStore = Callable[[str], ObjectStore]
"""Returns the store at a URI, e.g. ``s3://connection@bucket/prefix``; raises OSError if it cannot
be opened.
"""


@dataclass(frozen=True)
class StoreFolder:
    """Folder in an object store.

    :param uri: its address, as :data:`OpenStore` takes it; without secrets.
    """

    uri: str
    open_store: OpenStore

    def __str__(self) -> str:
        return self.uri

    @property
    def folder(self) -> str:
        """Last part of the address."""
        return self.uri.rstrip("/").rpartition("/")[2]

    def store(self) -> ObjectStore:
        """Return the store that holds :attr:`folder`.

        :raises OSError: if it cannot be opened.
        """
        return self.open_store(self.uri.rstrip("/").rpartition("/")[0])

    def sizes(self) -> dict[str, int]:
        """Return the size of each object, in bytes, by its name in the store.

        :raises OSError: if the store does not answer.
        """
        return dict(self.store().stored(self.folder))


class EventObjects(StoreFolder):
    """Place of one attempt's events in a store."""

    @classmethod
    def below(cls, location: str, relative: str, open_store: OpenStore) -> EventObjects:
        """Return the place of an attempt's events below a URI.

        :param relative: path of its event file, relative to the folder for events.
        """
        return cls(
            f"{location.rstrip('/')}/{relative.rpartition('.')[0]}{event_lines.EVENT_FOLDER}",
            open_store,
        )

    def follow(self, parse: Callable[[bytes], T]) -> _ObjectFollower[T]:
        """Return the reader of the events."""
        return _ObjectFollower(self, parse)

    def last_ms(self) -> int | None:
        """Return the time of the last event, in ms since the epoch; ``None`` if there is none.

        :raises OSError: if the store does not answer.
        """
        return max(
            (ms for name in self.sizes() if (ms := _time_of(name)) is not None), default=None
        )

    def remove(self) -> None:
        """Remove the events. Objects of other names stay, since this attempt did not write them.

        :raises OSError: if the store refuses.
        """
        store = self.store()
        for name in store.stored(self.folder):
            if _time_of(name) is not None:
                store.remove(name)
        log.debug("Removed the events in %s", self)


def _time_of(name: str) -> int | None:
    """Return the time in the name of an event's object, in ms; ``None`` for any other object."""
    matched = _EVENT_OBJECT.fullmatch(name.partition("/")[2])
    return int(matched["ms"]) if matched else None


@dataclass
class _ObjectFollower(event_lines.Follower[T]):
    """Reader of objects, in the order of their events' times; the report counts an object as a
    line.
    """

    _unit = "object"

    _place: EventObjects
    _seen: set[str] = field(default_factory=set)
    _store: ObjectStore | None = None

    def _read(self, stop: Callable[[], bool], *, final: bool) -> Iterator[T]:
        """List until nothing is new if ``final``: not every store lists an object at once.

        Before, an object that holds no event is left for later: some stores show it before it is
        complete.
        """
        before = -1
        while before != len(self._seen):
            before = len(self._seen)
            yield from self._read_listed(stop, final=final)
            if not final:
                return
        if not self._seen:
            raise FileNotFoundError

    def _read_listed(self, stop: Callable[[], bool], *, final: bool) -> Iterator[T]:
        self._check(stop)
        self._store = self._store or self._place.store()
        sizes = self._store.stored(self._place.folder)
        unread = [name for name in sizes if name not in self._seen and not name.endswith("/")]
        events = []
        for name in unread:
            if _time_of(name) is None:
                self._quarantine(
                    name,
                    "not read: its name is not <ms>.json, as OpenLineage names an event's object",
                )
            elif sizes[name] > self._max_event_bytes:
                self._quarantine(
                    name, f"{sizes[name]} bytes long, the limit is {self._max_event_bytes}"
                )
            else:
                events.append(name)
        events.sort(key=lambda name: _time_of(name) or 0)
        for batch in batches_of(events, sizes.__getitem__, _BATCH_BYTES, _BATCH_OBJECTS):
            self._check(stop)
            for name, content in zip(batch, self._store.read_all(batch), strict=True):
                yield from self._event_of(name, content, final=final)

    def _event_of(self, name: str, content: bytes | Exception, *, final: bool) -> Iterator[T]:
        if isinstance(content, FileNotFoundError):
            return  # removed since the listing
        if isinstance(content, Exception):
            kind = PermissionError if isinstance(content, PermissionError) else OSError
            raise kind(f"{self._described(name)}: {content}") from content
        try:
            # Line feeds are only white space in JSON, but later steps need one event per line.
            event = self._parse(content.replace(b"\r", b" ").replace(b"\n", b" "))
        except event_lines.BadLineError as problem:
            if final:
                self._quarantine(name, str(problem))
            return
        self._seen.add(name)
        self.report.lines += 1
        self.report.events += 1
        self.report.bytes_read += len(content)
        yield event

    def _quarantine(self, name: str, reason: str) -> None:
        self._seen.add(name)
        self.report.lines += 1
        self.report.quarantine(self._described(name), 1, reason)

    def _described(self, name: str) -> str:
        return self._store.describe(name) if self._store else name

"""Events of one group packed together: what the index of an archive consists of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from airflow_provider_spark_datahub.conversion.archive import ArchivedEvent
from airflow_provider_spark_datahub.spark.packing import Packing, merged

CHUNK_BYTES = 256 * 1024
"""Of events in a chunk, before it is closed."""
HELD_BYTES = 48 * 1024 * 1024
"""Of events in all open chunks of a task."""

_packing = Packing(ArchivedEvent)


class Chunk(NamedTuple):
    """Events of one group, sorted.

    :param group: see ``grouping.py``.
    :param time_ms: of the first event, likewise :attr:`file` and :attr:`offset`.
    :param until_ms: of the last event.
    :param size: of the events, unpacked, in bytes.
    """

    group: str
    time_ms: int
    file: str
    offset: int
    until_ms: int
    events: int
    size: int
    payload: bytes


def pack(group: str, events: list[ArchivedEvent]) -> Chunk:
    """A chunk of some events, of which there must be one at least."""
    events.sort()
    first, last = events[0], events[-1]
    size, payload = _packing.pack(events)
    return Chunk(group, first.time_ms, first.file, first.offset, last.time_ms, len(events), size, payload)


def unpack(chunk: Chunk) -> list[ArchivedEvent]:
    """The events of a chunk, sorted."""
    return _packing.unpack(chunk.size, chunk.payload)


class OpenChunks:
    """Packs a stream of events of many groups, in bounded memory."""

    def __init__(self) -> None:
        self._open: dict[str, list[ArchivedEvent]] = {}
        self._sizes: dict[str, int] = {}
        self._held = 0

    def add(self, group: str, event: ArchivedEvent) -> Iterator[Chunk]:
        """Take one event; gives the chunks that are full by it."""
        size = len(event.text)
        self._open.setdefault(group, []).append(event)
        self._sizes[group] = self._sizes.get(group, 0) + size
        self._held += size
        if self._sizes[group] >= CHUNK_BYTES:
            yield self._close(group)
        while self._held >= HELD_BYTES:
            # The one that was opened first: its application is most likely over.
            yield self._close(next(iter(self._open)))

    def rest(self) -> Iterator[Chunk]:
        """The chunks that are still open."""
        while self._open:
            yield self._close(next(iter(self._open)))

    def _close(self, group: str) -> Chunk:
        self._held -= self._sizes.pop(group)
        return pack(group, self._open.pop(group))


def events_of(chunks: Iterable[Chunk]) -> Iterator[ArchivedEvent]:
    """The events of one group in their order, of which only those of chunks that overlap are held in memory.

    :param chunks: of one group, sorted by their first events.
    """
    return merged(((chunk.time_ms, chunk.file, chunk.offset), partial(unpack, chunk)) for chunk in chunks)

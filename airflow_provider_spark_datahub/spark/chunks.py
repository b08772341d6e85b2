"""Events of one group packed together, so that Spark moves few small rows instead of many large ones.

OpenLineage repeats most of an event in the next one: fifty of them, compressed together, are a fiftieth of their size.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import pyarrow as pa

from airflow_provider_spark_datahub.conversion.archive import ArchivedEvent

CHUNK_BYTES = 256 * 1024
"""Of events in a chunk, before it is closed."""
HELD_BYTES = 48 * 1024 * 1024
"""Of events in all open chunks of a task."""

_codec = pa.Codec("zstd", compression_level=1)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[ArchivedEvent]).decode


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
    packed = _encode(events)
    payload = _codec.compress(packed, asbytes=True)
    return Chunk(group, first.time_ms, first.file, first.offset, last.time_ms, len(events), len(packed), payload)


def unpack(chunk: Chunk) -> list[ArchivedEvent]:
    """The events of a chunk, sorted."""
    return _decode(_codec.decompress(chunk.payload, chunk.size))


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
    heap: list[tuple[ArchivedEvent, int, Iterator[ArchivedEvent]]] = []
    for number, chunk in enumerate(chunks):
        yield from _before((chunk.time_ms, chunk.file, chunk.offset), heap)
        rest = iter(unpack(chunk))
        heapq.heappush(heap, (next(rest), number, rest))
    yield from _before(None, heap)


def _before(
    limit: tuple[int, str, int] | None, heap: list[tuple[ArchivedEvent, int, Iterator[ArchivedEvent]]]
) -> Iterator[ArchivedEvent]:
    while heap and (limit is None or heap[0][0][:3] < limit):
        event, number, rest = heap[0]
        if len(heap) == 1 and limit is None:
            heap.clear()
            yield event
            yield from rest
            return
        yield event
        following = next(rest, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following, number, rest))

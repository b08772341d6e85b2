"""Python's garbage collector in the workers of Spark.

Rows of a task as Arrow record batches of bounded size.

Many small rows as few large ones, so that Spark moves, sorts and stores little; and their order again afterwards.

OpenLineage repeats most of an event in the next one, and aspects repeat each other's names: fifty of them, compressed
together, are a fiftieth or a tenth of their size.

Events of one group packed together: what the index of an archive consists of.

Links between groups packed together, and of those of a whole archive the few that join groups.

Versions of aspects packed together: what the second step leaves to the third.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from types import GenericAlias
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from airflow_provider_spark_datahub.conversion.archive import ArchivedEvent, EventHead, Link, Version, joining, links_of

_BATCH_BYTES = 1024 * 1024
_BATCH_ROWS = 10_000
_ROW_BYTES = 64
"""What a row takes beside its texts, roughly."""


def batches_of(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows, one by one, as batches of some megabytes; what is held in memory is one batch.

    :param rows: values in the order of the schema.
    """
    held: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        held.append(row)
        size += _ROW_BYTES + sum(len(value) for value in row if type(value) is str or type(value) is bytes)
        if size >= _BATCH_BYTES or len(held) >= _BATCH_ROWS:
            yield _batch(held, schema)
            held, size = [], 0
    if held:
        yield _batch(held, schema)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of batches, one by one."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _batch(rows: list[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


T = TypeVar("T", bound=tuple[Any, ...])
Key = tuple[Any, ...]

# A higher level takes longer than what it saves takes to move.
_codec = pa.Codec("zstd", compression_level=-1)
_encode = msgspec.msgpack.Encoder().encode


class Packing(Generic[T]):
    """Packs lists of tuples of one type.

    :param kind: the type: a ``NamedTuple``.
    """

    def __init__(self, kind: type[T]) -> None:
        self._decode: Callable[[bytes], list[T]] = msgspec.msgpack.Decoder(GenericAlias(list, (kind,))).decode

    def pack(self, values: list[T]) -> tuple[int, bytes]:
        """The values compressed, and their size before, in bytes."""
        packed = _encode(values)
        return len(packed), _codec.compress(packed, asbytes=True)

    def unpack(self, size: int, payload: bytes) -> list[T]:
        """What :meth:`pack` was given.

        :param size: what it told, likewise :attr:`payload`.
        """
        return self._decode(_codec.decompress(payload, size))


def merged(lists: Iterable[tuple[Key, Callable[[], list[T]]]]) -> Iterator[T]:
    """The values of sorted lists in their order, of which only those that overlap are held in memory.

    :param lists: of each how its first value begins, by which they are sorted, and what gives it.
    """
    heap: list[tuple[T, int, Iterator[T]]] = []
    for number, (key, unpacked) in enumerate(lists):
        yield from _before(key, heap)
        rest = iter(unpacked())
        heapq.heappush(heap, (next(rest), number, rest))
    yield from _before(None, heap)


def _before(limit: Key | None, heap: list[tuple[T, int, Iterator[T]]]) -> Iterator[T]:
    length = len(limit) if limit is not None else 0
    while heap and (limit is None or heap[0][0][:length] < limit):
        value, number, rest = heap[0]
        yield value
        if len(heap) == 1 and limit is None:
            heap.clear()
            yield from rest
            return
        following = next(rest, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following, number, rest))


CHUNK_BYTES = 256 * 1024
"""Of events in a chunk, before it is closed."""
HELD_CHUNK_BYTES = 48 * 1024 * 1024
"""Of events in all open chunks of a task."""

_chunk_packing = Packing(ArchivedEvent)


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
    size, payload = _chunk_packing.pack(events)
    return Chunk(group, first.time_ms, first.file, first.offset, last.time_ms, len(events), size, payload)


def unpack(chunk: Chunk) -> list[ArchivedEvent]:
    """The events of a chunk, sorted."""
    return _chunk_packing.unpack(chunk.size, chunk.payload)


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
        while self._held >= HELD_CHUNK_BYTES:
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


BUCKETS = 1024
"""Links that may join groups are in the same one: in memory are those of one."""
LINK_SCHEMA = pa.schema([("kind", pa.string()), ("run_id", pa.string()), ("group", pa.string())])
HELD_HEADS = 50_000
"""Of how many different heads of events a task holds the links."""

_link_packing = Packing(Link)


class PackedLinks(NamedTuple):
    """Links of one bucket.

    :param size: of the links, unpacked, in bytes.
    """

    bucket: int
    size: int
    payload: bytes


class OpenLinks:
    """Packs the links that events tell, most of them once per task."""

    def __init__(self) -> None:
        self._heads: set[tuple[Any, ...]] = set()

    def add(self, head: EventHead) -> Iterator[PackedLinks]:
        """Take the head of an event; gives what is full by it."""
        # But for its time: most events of a run have the same.
        self._heads.add(head[1:])
        if len(self._heads) >= HELD_HEADS:
            yield from self.rest()

    def rest(self) -> Iterator[PackedLinks]:
        """All that is held."""
        buckets: dict[int, set[Link]] = {}
        for rest in self._heads:
            for link in links_of(EventHead(0, *rest)):
                buckets.setdefault(bucket_of(link.run_id), set()).add(link)
                if link.kind == "child":
                    # It may be the group's run that makes the two one.
                    buckets.setdefault(bucket_of(link.group), set()).add(link)
        self._heads.clear()
        for bucket, links in sorted(buckets.items()):
            yield PackedLinks(bucket, *_link_packing.pack(sorted(links)))


def bucket_of(run_id: str) -> int:
    """The bucket of a run's links."""
    return zlib.crc32(run_id.encode()) % BUCKETS


def joining_links(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step that gives the links that join groups, as far as one bucket can tell.

    :param batches: the columns of :class:`PackedLinks`, those of one bucket together.
    """
    rows = (PackedLinks(*row) for row in rows_of(batches))
    buckets = (_unpacked(here) for _, here in groupby(rows, key=itemgetter(0)))
    yield from batches_of((link for links in buckets for link in joining(links)), LINK_SCHEMA)


def untold_runs(links: Collection[Link]) -> frozenset[str]:
    """The runs that children name which belong to them by their own group's run: the bucket of that could not know
    in which groups they are.

    :param links: what :func:`joining_links` gave.
    """
    told = {link.run_id for link in links if link.kind != "child"}
    return frozenset(link.run_id for link in links if link.kind == "child") - told


def links_of_runs(run_ids: frozenset[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step that gives the links of some runs, but not those of children, from the same rows."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        links = _unpacked(PackedLinks(*row) for row in rows_of(batches))
        yield from batches_of((link for link in links if link.run_id in run_ids and link.kind != "child"), LINK_SCHEMA)

    return step


def _unpacked(rows: Iterable[PackedLinks]) -> Iterator[Link]:
    for row in rows:
        yield from _link_packing.unpack(row.size, row.payload)


PACKED_BYTES = 64 * 1024
"""Of versions in a row, roughly. As many as there are tasks may be open at the same time."""
HELD_VERSION_BYTES = 32 * 1024 * 1024
"""Of versions that a task holds before it sorts and packs them."""
_VERSION_BYTES = 500
"""What a version takes beside its content."""

_version_packing = Packing(Version)


class PackedVersions(NamedTuple):
    """Versions of places of one bucket, sorted.

    :param bucket: all versions of a place are in the same one.
    :param place: of the first version, likewise :attr:`time_ms`, :attr:`run_id` and :attr:`number`.
    :param size: of the versions, unpacked, in bytes.
    """

    bucket: int
    place: str
    time_ms: int
    run_id: str
    number: int
    size: int
    payload: bytes


class OpenVersions:
    """Packs a stream of versions, in bounded memory.

    :param buckets: how many there are.
    """

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._places: dict[str, list[Version]] = {}
        self._size = 0

    def add(self, version: Version) -> Iterator[PackedVersions]:
        """Take one version; gives what is full by it."""
        self._places.setdefault(version.place, []).append(version)
        self._size += _size_of(version)
        if self._size >= HELD_VERSION_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[PackedVersions]:
        """All that is held."""
        places, self._places, self._size = self._places, {}, 0
        in_order = sorted((zlib.crc32(place.encode()) % self._buckets, place) for place in places)
        for bucket, here in groupby(in_order, key=itemgetter(0)):
            versions = chain.from_iterable(sorted(places.pop(place)) for _, place in here)
            yield from _packed(bucket, versions)


def _packed(bucket: int, versions: Iterable[Version]) -> Iterator[PackedVersions]:
    together: list[Version] = []
    size = 0
    for version in versions:
        together.append(version)
        size += _size_of(version)
        if size >= PACKED_BYTES:
            yield _pack(bucket, together)
            together, size = [], 0
    if together:
        yield _pack(bucket, together)


def _size_of(version: Version) -> int:
    return _VERSION_BYTES + len(version.content)


def _pack(bucket: int, versions: list[Version]) -> PackedVersions:
    return PackedVersions(bucket, *versions[0][:4], *_version_packing.pack(versions))


def versions_of(rows: Iterable[PackedVersions]) -> Iterator[Version]:
    """The versions in their order, bucket by bucket, of which only those of rows that overlap are held in memory.

    :param rows: those of one bucket together, sorted by their first versions.
    """
    for _, here in groupby(rows, key=itemgetter(0)):
        yield from merged((row[1:5], partial(_version_packing.unpack, row.size, row.payload)) for row in here)

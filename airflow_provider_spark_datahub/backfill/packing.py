"""Rows of the Spark job: many events, links or aspect versions are packed into few large rows.

Packing reduces the data that Spark moves, sorts and stores. OpenLineage repeats most of an event in the next one, and
aspects repeat each other's names. So fifty of them, compressed together, shrink to a fiftieth (events) or a tenth
(aspects) of their size. Each kind of row has a packer, which works in bounded memory, and a function that unpacks
sorted rows as a stream in order.
"""

from __future__ import annotations

import gc
import heapq
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from types import GenericAlias
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from airflow_provider_spark_datahub.conversion import archive
from airflow_provider_spark_datahub.foundation.batches import batches_of

Row = tuple[Any, ...]
Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for ``mapInArrow``."""

_BATCH_BYTES = 1024 * 1024
_BATCH_ROWS = 10_000
_ROW_BYTES = 64  # approximate size of a row without its texts
_RARE_THRESHOLDS = (100_000, 20, 100)
"""Number of new objects, and of collections of the next younger generation, that start a collection."""

_T = TypeVar("_T", bound=Row)

# A higher level takes longer than it saves.
_codec = pa.Codec("zstd", compression_level=-1)
_encode = msgspec.msgpack.Encoder().encode


def _batches_of(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of a megabyte or so. One batch at a time is in memory.

    :param rows: values in the order of the schema.
    """
    for held in batches_of(rows, _row_size, _BATCH_BYTES, _BATCH_ROWS):
        yield _batch(held, schema)


def _row_size(row: Sequence[Any]) -> int:
    return _ROW_BYTES + sum(len(value) for value in row if type(value) is str or type(value) is bytes)


@contextmanager
def _gc_slowed() -> Iterator[None]:
    """Collect rarely in a Spark worker that converts group after group, and never the objects that existed before."""
    before = gc.get_threshold()
    if not gc.get_freeze_count():
        gc.freeze()
    gc.set_threshold(*_RARE_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def as_step(convert: Callable[[Iterator[Row]], Iterable[Sequence[Any]]], schema: pa.Schema) -> Step:
    """Return a step of the job that converts rows to rows of a schema."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _gc_slowed():
            yield from _batches_of(convert(_rows_of(batches)), schema)

    return step


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _batch(rows: list[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Packing(Generic[_T]):
    """Compression of lists of one ``NamedTuple`` type."""

    def __init__(self, kind: type[_T]) -> None:
        self._decode: Callable[[bytes], list[_T]] = msgspec.msgpack.Decoder(GenericAlias(list, (kind,))).decode

    def pack(self, values: list[_T]) -> tuple[int, bytes]:
        """Return the size of the values in bytes, and the values compressed."""
        packed = _encode(values)
        return len(packed), _codec.compress(packed, asbytes=True)

    def unpack(self, size: int, payload: bytes) -> list[_T]:
        return self._decode(_codec.decompress(payload, size))


def _merged(lists: Iterable[tuple[Row, Callable[[], list[_T]]]]) -> Iterator[_T]:
    """Yield the values of sorted lists in order. Only lists that overlap are in memory.

    :param lists: the beginning of each list's first value, by which the lists are sorted, and a function to unpack it.
    """
    heap: list[tuple[_T, int, Iterator[_T]]] = []
    for number, (key, unpack) in enumerate(lists):
        yield from _before(key, heap)
        rest = iter(unpack())
        heapq.heappush(heap, (next(rest), number, rest))
    yield from _before(None, heap)


def _before(limit: Row | None, heap: list[tuple[_T, int, Iterator[_T]]]) -> Iterator[_T]:
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


# -- events

_CHUNK_BYTES = 256 * 1024
"""Size of the events at which a chunk is full."""
_HELD_CHUNK_BYTES = 48 * 1024 * 1024
"""Size of the events in all open chunks of a task."""

_chunk_packing = _Packing(archive.ArchivedEvent)


class Chunk(NamedTuple):
    """Events of one group, sorted.

    :param group: see :class:`EventHead`.
    :param time_ms: the time of the first event, likewise :attr:`file` and :attr:`offset`.
    :param until_ms: the time of the last event.
    :param size: the size of the events, unpacked, in bytes.
    """

    group: str
    time_ms: int
    file: str
    offset: int
    until_ms: int
    events: int
    size: int
    payload: bytes

    @classmethod
    def pack(cls, group: str, events: list[archive.ArchivedEvent]) -> Chunk:
        """Return a chunk of at least one event."""
        events.sort()
        first, last = events[0], events[-1]
        size, payload = _chunk_packing.pack(events)
        return cls(group, first.time_ms, first.file, first.offset, last.time_ms, len(events), size, payload)

    def unpack(self) -> list[archive.ArchivedEvent]:
        """Return the events, sorted."""
        return _chunk_packing.unpack(self.size, self.payload)

    @staticmethod
    def merged(chunks: Iterable[Chunk]) -> Iterator[archive.ArchivedEvent]:
        """Yield the events of one group in order. Only chunks that overlap are in memory.

        :param chunks: the chunks of one group, sorted by their first events.
        """
        return _merged(((chunk.time_ms, chunk.file, chunk.offset), chunk.unpack) for chunk in chunks)


class ChunkPacker:
    """Packer of a stream of events of many groups, in bounded memory."""

    def __init__(self) -> None:
        self._open: dict[str, list[archive.ArchivedEvent]] = {}
        self._sizes: dict[str, int] = {}
        self._held = 0

    def add(self, group: str, event: archive.ArchivedEvent) -> Iterator[Chunk]:
        """Add an event, and yield the chunks that are now full."""
        size = len(event.text)
        self._open.setdefault(group, []).append(event)
        self._sizes[group] = self._sizes.get(group, 0) + size
        self._held += size
        if self._sizes[group] >= _CHUNK_BYTES:
            yield self._close(group)
        while self._held >= _HELD_CHUNK_BYTES:
            # The application of the oldest open chunk is most likely over.
            yield self._close(next(iter(self._open)))

    def rest(self) -> Iterator[Chunk]:
        """Yield the chunks that are still open."""
        while self._open:
            yield self._close(next(iter(self._open)))

    def _close(self, group: str) -> Chunk:
        self._held -= self._sizes.pop(group)
        return Chunk.pack(group, self._open.pop(group))


# -- links between groups

_BUCKETS = 1024
"""Number of buckets of links. Links that may join groups are in the same bucket, which fits into memory."""
LINK_SCHEMA = pa.schema([("kind", pa.string()), ("run_id", pa.string()), ("group", pa.string())])
_HELD_HEADS = 50_000
"""Number of distinct event heads that a task holds before it packs their links."""

_link_packing = _Packing(archive.Link)


class PackedLinks(NamedTuple):
    """Links of one bucket.

    :param size: the size of the links, unpacked, in bytes.
    """

    bucket: int
    size: int
    payload: bytes

    @staticmethod
    def joining(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Select the links that join groups, as far as one bucket shows: a step of the job.

        :param batches: packed links, those of one bucket together.
        """
        rows = (PackedLinks(*row) for row in _rows_of(batches))
        buckets = (_unpacked(bucket_rows) for _, bucket_rows in groupby(rows, key=itemgetter(0)))
        yield from _batches_of((link for links in buckets for link in archive.joining_links(links)), LINK_SCHEMA)

    @staticmethod
    def of_runs(run_ids: frozenset[str]) -> Step:
        """Return a step that selects the links of some runs, except those of their children, from the same rows."""

        def selected(rows: Iterator[Row]) -> Iterator[archive.Link]:
            links = _unpacked(PackedLinks(*row) for row in rows)
            return (link for link in links if link.run_id in run_ids and link.kind != "child")

        return as_step(selected, LINK_SCHEMA)


class LinkPacker:
    """Packer of the links of events, which packs most links once per task."""

    def __init__(self) -> None:
        self._heads: set[Row] = set()

    def add(self, head: archive.EventHead) -> Iterator[PackedLinks]:
        """Add the head of an event, and yield packed links if too many are held."""
        # Most events of a run have the same head, except for the time.
        self._heads.add(head[1:])
        if len(self._heads) >= _HELD_HEADS:
            yield from self.rest()

    def rest(self) -> Iterator[PackedLinks]:
        """Yield the links that are still held."""
        buckets: dict[int, set[archive.Link]] = {}
        for rest in self._heads:
            for link in archive.EventHead(0, *rest).links():
                buckets.setdefault(_link_bucket(link.run_id), set()).add(link)
                if link.kind == "child":
                    # The run that gave the child's group its name may join the two.
                    buckets.setdefault(_link_bucket(link.group), set()).add(link)
        self._heads.clear()
        for bucket, links in sorted(buckets.items()):
            yield PackedLinks(bucket, *_link_packing.pack(sorted(links)))


def _link_bucket(run_id: str) -> int:
    return zlib.crc32(run_id.encode()) % _BUCKETS


def unresolved_runs(links: Collection[archive.Link]) -> frozenset[str]:
    """Return the parents whose own groups are missing in the links.

    Some children belong to their parents because of their own group's run. The bucket of that run does not show the
    groups of the parent.

    :param links: the links that :meth:`PackedLinks.joining` selected.
    """
    resolved = {link.run_id for link in links if link.kind != "child"}
    return frozenset(link.run_id for link in links if link.kind == "child") - resolved


def _unpacked(rows: Iterable[PackedLinks]) -> Iterator[archive.Link]:
    for row in rows:
        yield from _link_packing.unpack(row.size, row.payload)


# -- versions of aspects

_PACKED_BYTES = 64 * 1024
"""Approximate size of the versions in a row. As many rows as there are tasks may be open at the same time."""
_HELD_VERSION_BYTES = 32 * 1024 * 1024
"""Size of the versions that a task holds before it sorts and packs them."""
_VERSION_BYTES = 500  # approximate size of a version without its content

_version_packing = _Packing(archive.AspectVersion)


class PackedVersions(NamedTuple):
    """Versions of places of one bucket, sorted.

    :param bucket: all versions of a place are in the same bucket.
    :param place: the place of the first version, likewise :attr:`time_ms`, :attr:`run_id` and :attr:`number`.
    :param size: the size of the versions, unpacked, in bytes.
    """

    bucket: int
    place: str
    time_ms: int
    run_id: str
    number: int
    size: int
    payload: bytes

    @staticmethod
    def merged(rows: Iterable[PackedVersions]) -> Iterator[archive.AspectVersion]:
        """Yield the versions in order, bucket by bucket. Only rows that overlap are in memory.

        :param rows: the rows of one bucket together, sorted by their first versions.
        """
        for _, bucket_rows in groupby(rows, key=itemgetter(0)):
            yield from _merged(
                (row[1:5], partial(_version_packing.unpack, row.size, row.payload)) for row in bucket_rows
            )


class VersionPacker:
    """Packer of a stream of versions, in bounded memory."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._places: dict[str, list[archive.AspectVersion]] = {}
        self._size = 0

    def add(self, version: archive.AspectVersion) -> Iterator[PackedVersions]:
        """Add a version, and yield packed versions if too many are held."""
        self._places.setdefault(version.place, []).append(version)
        self._size += _size_of(version)
        if self._size >= _HELD_VERSION_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[PackedVersions]:
        """Yield the versions that are still held."""
        places, self._places, self._size = self._places, {}, 0
        in_order = sorted((zlib.crc32(place.encode()) % self._buckets, place) for place in places)
        for bucket, pairs in groupby(in_order, key=itemgetter(0)):
            versions = chain.from_iterable(sorted(places.pop(place)) for _, place in pairs)
            for together in batches_of(versions, _size_of, _PACKED_BYTES):
                yield PackedVersions(bucket, *together[0][:4], *_version_packing.pack(together))


def _size_of(version: archive.AspectVersion) -> int:
    return _VERSION_BYTES + len(version.content)

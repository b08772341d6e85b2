"""Versions of aspects packed together: what the second step leaves to the third."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

from airflow_provider_spark_datahub.conversion.latest import Version
from airflow_provider_spark_datahub.spark.packing import Packing, merged

PACKED_BYTES = 64 * 1024
"""Of versions in a row, roughly. As many as there are tasks may be open at the same time."""
HELD_BYTES = 32 * 1024 * 1024
"""Of versions that a task holds before it sorts and packs them."""
_VERSION_BYTES = 500
"""What a version takes beside its content."""

_packing = Packing(Version)


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
        if self._size >= HELD_BYTES:
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
    return PackedVersions(bucket, *versions[0][:4], *_packing.pack(versions))


def versions_of(rows: Iterable[PackedVersions]) -> Iterator[Version]:
    """The versions in their order, bucket by bucket, of which only those of rows that overlap are held in memory.

    :param rows: those of one bucket together, sorted by their first versions.
    """
    for _, here in groupby(rows, key=itemgetter(0)):
        yield from merged((row[1:5], partial(_packing.unpack, row.size, row.payload)) for row in here)

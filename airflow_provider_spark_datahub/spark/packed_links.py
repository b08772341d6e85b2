"""Links between groups packed together, and of those of a whole archive the few that join groups."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from airflow_provider_spark_datahub.conversion.event_heads import EventHead
from airflow_provider_spark_datahub.conversion.grouping import Link, joining, links_of
from airflow_provider_spark_datahub.spark.packing import Packing
from airflow_provider_spark_datahub.spark.record_batches import batches_of, rows_of

BUCKETS = 1024
"""Links that may join groups are in the same one: in memory are those of one."""
LINK_SCHEMA = pa.schema([("kind", pa.string()), ("run_id", pa.string()), ("group", pa.string())])
HELD_HEADS = 50_000
"""Of how many different heads of events a task holds the links."""

_packing = Packing(Link)


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
            yield PackedLinks(bucket, *_packing.pack(sorted(links)))


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
        yield from _packing.unpack(row.size, row.payload)

"""Second and third step: the chunks of each group as versions of aspects, and of these what is to be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from airflow_provider_spark_datahub.conversion.archive import ArchiveFacts, GroupConversion, Selection
from airflow_provider_spark_datahub.conversion.latest import Version, kept_of
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.spark.chunks import Chunk, events_of
from airflow_provider_spark_datahub.spark.record_batches import batches_of, rows_of

Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` takes."""

VERSION, BAD, COUNT = "version", "bad", "count"

VERSION_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("place", pa.string()),
        ("time_ms", pa.int64()),
        ("run_id", pa.string()),
        ("number", pa.int64()),
        ("submission", pa.string()),
        ("entity_type", pa.string()),
        ("entity_urn", pa.string()),
        ("aspect_name", pa.string()),
        ("change_type", pa.string()),
        ("content", pa.string()),
    ]
)
"""Of a version: all; of what came to nothing: the file as ``place``, the offset as ``time_ms`` and the reason as
``content``; of a count: what is counted as ``place``, and how many as ``time_ms``."""

KEPT_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("place", pa.string()),
        ("time_ms", pa.int64()),
        ("entity_urn", pa.string()),
        ("aspect_name", pa.string()),
        ("change_type", pa.string()),
        ("line", pa.string()),
        ("reason", pa.string()),
    ]
)
"""Of a proposal: all, with its JSON as ``line``; else as in :data:`VERSION_SCHEMA`, with ``reason`` for ``content``."""

_Row = tuple[Any, ...]


def convert_groups(settings: LineageSettings, selection: Selection, facts: ArchiveFacts) -> Step:
    """A step that converts groups.

    It takes the columns of :class:`Chunk`, those of one group together, sorted by their first events.
    """

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chunks = (Chunk(*row) for row in rows_of(batches))
        return batches_of(_converted(chunks, settings, selection, facts), VERSION_SCHEMA)

    return step


def _converted(
    chunks: Iterable[Chunk], settings: LineageSettings, selection: Selection, facts: ArchiveFacts
) -> Iterator[_Row]:
    counts = {"runs": 0, "versions": 0}
    for _, of_group in groupby(chunks, key=itemgetter(0)):
        conversion = GroupConversion(settings, selection, facts)
        for event in events_of(of_group):
            conversion.add(event)
        for version in conversion.finish():
            counts["versions"] += 1
            yield (VERSION, *version)
        for file, offset, reason in conversion.quarantined:
            yield (BAD, file, offset, *[None] * 7, reason)
        counts["runs"] += conversion.jobs
    for name, count in counts.items():
        yield (COUNT, name, count, *[None] * 8)


def keep_latest(selection: Selection) -> Step:
    """A step that keeps what is to be written.

    It takes rows of :data:`VERSION_SCHEMA`, sorted by kind and as versions are.
    """

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches_of(_kept(rows_of(batches), run_history=selection.run_history), KEPT_SCHEMA)

    return step


def _kept(rows: Iterable[_Row], *, run_history: bool) -> Iterator[_Row]:
    for kind, of_kind in groupby(rows, key=itemgetter(0)):
        if kind != VERSION:
            for row in of_kind:
                yield (*row[:3], None, None, None, None, row[-1])
            continue
        for one in kept_of((Version(*row[1:]) for row in of_kind), run_history=run_history):
            proposal = one.proposal
            yield (
                VERSION,
                one.place,
                one.time_ms,
                proposal.entity_urn,
                proposal.aspect_name,
                proposal.change_type,
                proposal.to_json(),
                one.reason,
            )

"""Second and third step: the chunks of each group as versions of aspects, and of these what is to be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from airflow_provider_spark_datahub.backfill.plan import PROPOSAL_COLUMN
from airflow_provider_spark_datahub.conversion.archive import ArchiveFacts, GroupConversion, Selection
from airflow_provider_spark_datahub.conversion.latest import kept_of
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.spark.chunks import Chunk, events_of
from airflow_provider_spark_datahub.spark.packed_versions import OpenVersions, PackedVersions, versions_of
from airflow_provider_spark_datahub.spark.record_batches import batches_of, rows_of
from airflow_provider_spark_datahub.spark.seldom_collected import seldom_collected

Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` takes."""

VERSIONS, BAD, COUNT = "versions", "bad", "count"

CONVERTED_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("bucket", pa.int64()),
        ("place", pa.string()),
        ("time_ms", pa.int64()),
        ("run_id", pa.string()),
        ("number", pa.int64()),
        ("size", pa.int64()),
        ("payload", pa.binary()),
        ("reason", pa.string()),
    ]
)
"""Of versions: see :class:`PackedVersions`; of what came to nothing: the file as ``place``, the offset as ``number``
and the reason; of a count: what is counted as ``place``, and how many as ``number``."""

KEPT_SCHEMA = pa.schema(
    [
        ("entity_urn", pa.string()),
        ("aspect_name", pa.string()),
        ("change_type", pa.string()),
        (PROPOSAL_COLUMN, pa.string()),
        ("time_ms", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""Of a proposal, which is written in JSON."""

_Row = tuple[Any, ...]


def convert_groups(settings: LineageSettings, selection: Selection, facts: ArchiveFacts, buckets: int) -> Step:
    """A step that converts groups.

    It takes the columns of :class:`Chunk`, those of one group together, sorted by their first events.

    :param buckets: how many there are, see :class:`PackedVersions`.
    """

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chunks = (Chunk(*row) for row in rows_of(batches))
        with seldom_collected():
            yield from batches_of(_converted(chunks, settings, selection, facts, buckets), CONVERTED_SCHEMA)

    return step


def _converted(
    chunks: Iterable[Chunk], settings: LineageSettings, selection: Selection, facts: ArchiveFacts, buckets: int
) -> Iterator[_Row]:
    counts = {"runs": 0, "versions": 0, "quarantined": 0}
    versions = OpenVersions(buckets)
    for _, of_group in groupby(chunks, key=itemgetter(0)):
        conversion = GroupConversion(settings, selection, facts)
        for event in events_of(of_group):
            conversion.add(event)
        for version in conversion.finish():
            counts["versions"] += 1
            yield from map(_packed, versions.add(version))
        for file, offset, reason in conversion.quarantined:
            yield (BAD, None, file, None, None, offset, None, None, reason)
        counts["runs"] += conversion.jobs
        counts["quarantined"] += len(conversion.quarantined)
    yield from map(_packed, versions.rest())
    for name, count in counts.items():
        yield (COUNT, None, name, None, None, count, None, None, None)


def _packed(versions: PackedVersions) -> _Row:
    return (VERSIONS, *versions, None)


def keep_latest(selection: Selection) -> Step:
    """A step that keeps what is to be written.

    It takes the columns of :class:`PackedVersions`, those of one bucket together, sorted by their first versions.
    """

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with seldom_collected():
            yield from batches_of(_kept(rows_of(batches), run_history=selection.run_history), KEPT_SCHEMA)

    return step


def _kept(rows: Iterable[_Row], *, run_history: bool) -> Iterator[_Row]:
    versions = versions_of(PackedVersions(*row) for row in rows)
    for one in kept_of(versions, run_history=run_history):
        proposal = one.proposal
        yield (
            proposal.entity_urn,
            proposal.aspect_name,
            proposal.change_type,
            proposal.to_json(),
            one.time_ms,
            one.reason,
        )

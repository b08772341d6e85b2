"""The steps of the Spark job one after the other in this process, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from airflow_provider_spark_datahub.backfill.indexing import EVENTS, LINKS, PROBLEMS, SCHEMA, _index_files
from airflow_provider_spark_datahub.backfill.packing import (
    LINK_SCHEMA,
    Chunk,
    PackedLinks,
    PackedVersions,
    _batches_of,
    _rows_of,
)
from airflow_provider_spark_datahub.backfill.spark_job import (
    _CONVERTED_SCHEMA,
    _KEPT_SCHEMA,
    _VERSIONS,
    _compact_buckets,
    _convert_groups,
)
from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.conversion.archive import ArchiveFacts, ArchiveFilter, Link, merge_groups
from benchmarks.archive_in_memory import ArchiveConversion, convert_archive

Row = dict[str, Any]

FILES = pa.schema([("path", pa.string()), ("content", pa.binary())])


def named(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[Row]:
    return [dict(zip(schema.names, row, strict=True)) for row in _rows_of(batches)]


def indexed(files: Iterable[tuple[str, bytes]]) -> list[Row]:
    return named(_index_files(_batches_of(files, FILES)), SCHEMA)


def columns(rows: Iterable[Row], schema: pa.Schema, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
    """Return rows as a step takes them, in the order in which the job sorts them."""
    chosen = pa.schema([schema.field(name) for name in names])
    return _batches_of(sorted(tuple(row[name] for name in names) for row in rows), chosen)


def converted(
    tasks: Sequence[Iterable[tuple[str, bytes]]], settings: LineageSettings, wanted: ArchiveFilter
) -> list[Row]:
    """Return the rows of the first two steps.

    :param tasks: path and content of the files that each task of the first step reads.
    """
    rows = [row for files in tasks for row in indexed(files)]
    packed = columns((row for row in rows if row["kind"] == LINKS), SCHEMA, PackedLinks._fields)
    shared = merge_groups(Link(*row.values()) for row in named(PackedLinks.joining(packed), LINK_SCHEMA))
    chunks = [row | {"group": shared.get(row["group"], row["group"])} for row in rows if row["kind"] == EVENTS]
    facts = ArchiveFacts(
        max((row["until_ms"] for row in chunks), default=-1),
        frozenset(row["file"] for row in rows if row["kind"] == PROBLEMS),
    )
    convert = _convert_groups(settings, wanted, facts, 5)
    return named(convert(columns(chunks, SCHEMA, Chunk._fields)), _CONVERTED_SCHEMA)


def kept(rows: Iterable[Row], wanted: ArchiveFilter) -> list[Row]:
    """Return the rows that the third step keeps."""
    versions = columns((row for row in rows if row["kind"] == _VERSIONS), _CONVERTED_SCHEMA, PackedVersions._fields)
    return named(_compact_buckets(wanted)(versions), _KEPT_SCHEMA)


def reference(
    files: Iterable[tuple[str, bytes]], settings: LineageSettings, wanted: ArchiveFilter | None = None
) -> ArchiveConversion:
    """Convert the same files with the converter in one process."""
    return convert_archive(_events(files), settings, wanted)


def _events(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, int, bytes]]:
    for path, content in files:
        offset = 0
        for line in content.splitlines(keepends=True):
            yield path, offset, line.strip()
            offset += len(line)

"""The steps of the Spark job one after the other, without Spark: what ``mapInArrow`` is handed, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from airflow_provider_spark_datahub.backfill.indexing import BAD, EVENTS, LINKS, SCHEMA, index_files
from airflow_provider_spark_datahub.backfill.packing import (
    LINK_SCHEMA,
    Chunk,
    PackedLinks,
    PackedVersions,
    batches_of,
    joining_links,
    rows_of,
)
from airflow_provider_spark_datahub.backfill.spark_job import (
    CONVERTED_SCHEMA,
    KEPT_SCHEMA,
    VERSIONS,
    convert_groups,
    keep_latest,
)
from airflow_provider_spark_datahub.conversion.archive.conversion import (
    ArchiveConversion,
    ArchiveFacts,
    Selection,
    convert_archive,
)
from airflow_provider_spark_datahub.conversion.archive.grouping import Link, joined, united
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

Row = dict[str, Any]

FILES = pa.schema([("path", pa.string()), ("content", pa.binary())])


def named(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[Row]:
    return [dict(zip(schema.names, row, strict=True)) for row in rows_of(batches)]


def indexed(files: Iterable[tuple[str, bytes]]) -> list[Row]:
    return named(index_files(batches_of(files, FILES)), SCHEMA)


def columns(rows: Iterable[Row], schema: pa.Schema, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
    """Rows as a step takes them, sorted as Spark is told to sort them."""
    chosen = pa.schema([schema.field(name) for name in names])
    return batches_of(sorted(tuple(row[name] for name in names) for row in rows), chosen)


def converted(
    tasks: Sequence[Iterable[tuple[str, bytes]]], settings: LineageSettings, selection: Selection
) -> list[Row]:
    """What the first two steps come to.

    :param tasks: path and content of the files that each task of the first step reads.
    """
    rows = [row for files in tasks for row in indexed(files)]
    packed = columns((row for row in rows if row["kind"] == LINKS), SCHEMA, PackedLinks._fields)
    shared = united(joined(Link(*row.values()) for row in named(joining_links(packed), LINK_SCHEMA)))
    chunks = [row | {"group": shared.get(row["group"], row["group"])} for row in rows if row["kind"] == EVENTS]
    facts = ArchiveFacts(
        max((row["until_ms"] for row in chunks), default=-1),
        frozenset(row["file"] for row in rows if row["kind"] == BAD),
    )
    convert = convert_groups(settings, selection, facts, 5)
    return named(convert(columns(chunks, SCHEMA, Chunk._fields)), CONVERTED_SCHEMA)


def kept(rows: Iterable[Row], selection: Selection) -> list[Row]:
    """What the third step keeps of that."""
    versions = columns((row for row in rows if row["kind"] == VERSIONS), CONVERTED_SCHEMA, PackedVersions._fields)
    return named(keep_latest(selection)(versions), KEPT_SCHEMA)


def reference(
    files: Iterable[tuple[str, bytes]], settings: LineageSettings, selection: Selection | None = None
) -> ArchiveConversion:
    """The same by the converter in one process."""
    return convert_archive(_events(files), settings, selection)


def _events(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, int, bytes]]:
    for path, content in files:
        offset = 0
        for line in content.splitlines(keepends=True):
            yield path, offset, line.strip()
            offset += len(line)

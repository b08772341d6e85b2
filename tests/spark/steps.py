"""The steps of the Spark job one after the other, without Spark: what ``mapInArrow`` is handed, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from airflow_provider_spark_datahub.conversion.archive import (
    ArchiveConversion,
    ArchiveFacts,
    Selection,
    convert_archive,
)
from airflow_provider_spark_datahub.conversion.grouping import Link, joined, united
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.spark.converting import (
    KEPT_SCHEMA,
    VERSION_SCHEMA,
    convert_groups,
    keep_latest,
)
from airflow_provider_spark_datahub.spark.indexing import BAD, EVENTS, SCHEMA, index_files
from airflow_provider_spark_datahub.spark.record_batches import batches_of, rows_of

Row = dict[str, Any]

FILES = pa.schema([("path", pa.string()), ("content", pa.binary())])


def named(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[Row]:
    return [dict(zip(schema.names, row, strict=True)) for row in rows_of(batches)]


def indexed(files: Iterable[tuple[str, bytes]]) -> list[Row]:
    return named(index_files(batches_of(files, FILES)), SCHEMA)


def kept(tasks: Sequence[Iterable[tuple[str, bytes]]], settings: LineageSettings, selection: Selection) -> list[Row]:
    """What the job keeps.

    :param tasks: path and content of the files that each task of the first step reads.
    """
    rows = [row for files in tasks for row in indexed(files)]
    links = [Link(row["kind"], row["text"], row["group"]) for row in rows if row["kind"] not in (EVENTS, BAD)]
    shared = united(joined(links))
    chunks = [row for row in rows if row["kind"] == EVENTS]
    facts = ArchiveFacts(
        max((row["until_ms"] for row in chunks), default=-1),
        frozenset(row["file"] for row in rows if row["kind"] == BAD),
    )
    schema = pa.schema([field for field in SCHEMA if field.name not in ("kind", "text")])
    inputs = [(shared.get(row["group"], row["group"]), *list(row.values())[2:-1]) for row in chunks]
    converted = convert_groups(settings, selection, facts)(batches_of(sorted(inputs), schema))
    versions = sorted(rows_of(converted), key=lambda row: [str(row[0]), *row[1:5]] if row[0] == "version" else [row[0]])
    return named(keep_latest(selection)(batches_of(versions, VERSION_SCHEMA)), KEPT_SCHEMA)


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

"""The steps of the Spark job one after the other in this process, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from airflow_provider_spark_datahub.backfill.steps import (
    CONVERTED,
    EVENTS,
    Step,
    compact_versions,
    convert_groups,
    read_files,
)
from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.conversion.archive import (
    ArchivedEvent,
    ArchiveFacts,
    ArchiveFilter,
    AspectVersion,
    Link,
    merge_groups,
)
from tests.conversion.archive_in_memory import ArchiveConversion, convert_archive

Row = dict[str, Any]

FILES = pa.schema([("path", pa.string()), ("content", pa.binary())])
_GROUPED = pa.schema([EVENTS.field(name) for name in ("group", *ArchivedEvent._fields)])


def mapped(rows: Iterable[Sequence[Any]], schema: pa.Schema, step: Step) -> list[Row]:
    """Return the rows that a step makes of others."""
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], schema
    )
    return [row for made in step([batch]) for row in made.to_pylist()]


def read(files: Iterable[tuple[str, bytes]]) -> list[Row]:
    return mapped(files, FILES, read_files())


def converted(
    tasks: Sequence[Iterable[tuple[str, bytes]]], settings: LineageSettings, wanted: ArchiveFilter
) -> list[Row]:
    """Return the rows of the first two steps.

    :param tasks: path and content of the files that each task of the first step reads.
    """
    rows = [row for files in tasks for row in read(files)]
    events = [row for row in rows if row["reason"] is None]
    shared = merge_groups(Link(**link) for row in events for link in row["links"])
    groups = [row | {"group": shared.get(row["group"], row["group"])} for row in events]
    facts = ArchiveFacts(
        max((row["time_ms"] for row in events), default=-1),
        frozenset(row["file"] for row in rows if row["reason"] is not None),
    )
    in_order = sorted(tuple(row[name] for name in _GROUPED.names) for row in groups)
    return mapped(in_order, _GROUPED, convert_groups(settings, wanted, facts))


def kept(rows: Iterable[Row], wanted: ArchiveFilter) -> list[Row]:
    """Return the rows that the third step keeps."""
    versions = sorted(
        tuple(row[name] for name in AspectVersion._fields)
        for row in rows
        if row["place"] is not None
    )
    schema = pa.schema([CONVERTED.field(name) for name in AspectVersion._fields])
    return mapped(versions, schema, compact_versions(wanted))


def reference(
    files: Iterable[tuple[str, bytes]],
    settings: LineageSettings,
    wanted: ArchiveFilter | None = None,
) -> ArchiveConversion:
    """Convert the same files with the converter in one process."""
    return convert_archive(_events(files), settings, wanted)


def _events(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, int, bytes]]:
    for path, content in files:
        offset = 0
        for line in content.splitlines(keepends=True):
            yield path, offset, line.strip()
            offset += len(line)

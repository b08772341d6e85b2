"""The conversion of an archive as a Spark job: index, group, convert, keep the latest.

Events move once, packed by group; a group is converted as a stream, so that no application is too large for an
executor; what is left of it moves once more, packed again, to where the other versions of the same aspects are. What
two of these steps leave to the next is written to a folder, so that no executor that is lost costs more than its step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (how everybody calls it)
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_provider_spark_datahub.conversion.archive import ArchiveFacts, Selection
from airflow_provider_spark_datahub.conversion.event_heads import NO_TIME
from airflow_provider_spark_datahub.conversion.grouping import Link, LinkKind, joined, united
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.spark import converting
from airflow_provider_spark_datahub.spark.archive_files import ArchiveFiles, file_parts
from airflow_provider_spark_datahub.spark.chunks import Chunk
from airflow_provider_spark_datahub.spark.indexing import BAD, EVENTS, LINKS, SCHEMA, bad_row, index_files, index_lines
from airflow_provider_spark_datahub.spark.packed_links import (
    LINK_SCHEMA,
    PackedLinks,
    joining_links,
    links_of_runs,
    untold_runs,
)
from airflow_provider_spark_datahub.spark.packed_versions import PackedVersions

_TASK_BYTES = 128 * 1024 * 1024
_MANY_TASKS = 2000
_EVENTS_PER_LINK_TASK = 1_000_000
_TASKS_PER_PART = 4
_BUCKETS_PER_PART = 4
"""So that parts are about as large as each other, and of a part only a fraction is in memory."""
_CONFIGURATION = {
    # Chunks, files and proposals are large values: a batch is bounded by its bytes, not by its rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 1024 * 1024),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # This one reads thousands of rows at a time, however large they are.
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.compression.codec": "zstd",
}


@dataclass(frozen=True, slots=True)
class Index:
    """What the first reading of an archive found.

    :param rows: see :data:`indexing.SCHEMA`.
    :param events: how many.
    :param size: of the events, unpacked, in bytes.
    :param facts: of the archive as a whole.
    """

    rows: DataFrame
    events: int
    size: int
    facts: ArchiveFacts

    @property
    def quarantined(self) -> DataFrame:
        """``file``, ``offset`` and ``reason`` of what could not be read."""
        return self.rows.where(F.col("kind") == BAD).select("file", "offset", "reason")


class ArchiveJob:
    """Converts an archive.

    :param work: a folder for what is kept between steps, in a file system that all executors see.
    :param parts: of how many partitions the result is; by the size of the archive where it is not told.
    """

    def __init__(
        self, spark: SparkSession, settings: LineageSettings, selection: Selection, work: str, parts: int | None = None
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._selection = selection
        self._work = work
        self._parts = parts
        for key, value in _CONFIGURATION.items():
            spark.conf.set(key, value)

    def read(self, files: ArchiveFiles) -> None:
        """Read all files once."""
        schema = from_arrow_schema(SCHEMA)
        rows = files.whole.mapInArrow(index_files, schema)
        if files.lines is not None:
            rows = rows.unionByName(files.lines.mapInArrow(index_lines, schema))
        if files.too_large:
            reason = "a compressed file of more than 2 GB cannot be read: split it"
            bad = [bad_row(file, 0, reason) for file in files.too_large]
            rows = rows.unionByName(self._spark.createDataFrame(bad, schema))
        with file_parts(self._spark, files.part_bytes):
            rows.write.mode("overwrite").parquet(f"{self._work}/index")

    def index(self) -> Index:
        """What :meth:`read` has written."""
        rows = self._spark.read.schema(from_arrow_schema(SCHEMA)).parquet(f"{self._work}/index")
        is_chunk = F.col("kind") == EVENTS
        (sums,) = rows.agg(
            F.coalesce(F.sum(F.when(is_chunk, F.col("events"))), F.lit(0)).alias("events"),
            F.coalesce(F.sum(F.when(is_chunk, F.col("size"))), F.lit(0)).alias("size"),
            F.coalesce(F.max("until_ms"), F.lit(NO_TIME)).alias("until_ms"),
            F.collect_set(F.when(F.col("kind") == BAD, F.col("file"))).alias("damaged"),
        ).collect()
        return Index(rows, sums["events"], sums["size"], ArchiveFacts(sums["until_ms"], frozenset(sums["damaged"])))

    def convert(self, index: Index) -> None:
        """Convert all groups."""
        tasks, parts = self._tasks_and_parts(index)
        chunks = self._in_groups(index).repartition(tasks, "group")
        chunks = chunks.sortWithinPartitions("group", "time_ms", "file", "offset")
        convert = converting.convert_groups(self._settings, self._selection, index.facts, _BUCKETS_PER_PART * parts)
        rows = chunks.mapInArrow(convert, from_arrow_schema(converting.CONVERTED_SCHEMA))
        rows.write.mode("overwrite").parquet(f"{self._work}/converted")

    def converted(self) -> DataFrame:
        """What :meth:`convert` has written: see :data:`converting.CONVERTED_SCHEMA`."""
        return self._spark.read.schema(from_arrow_schema(converting.CONVERTED_SCHEMA)).parquet(
            f"{self._work}/converted"
        )

    def kept(self, index: Index) -> DataFrame:
        """What is to be written, see :data:`converting.KEPT_SCHEMA`: all of a place in one partition, in its order."""
        versions = self.converted().where(F.col("kind") == converting.VERSIONS).select(*PackedVersions._fields)
        versions = versions.repartition(self._tasks_and_parts(index)[1], "bucket")
        versions = versions.sortWithinPartitions("bucket", "place", "time_ms", "run_id", "number")
        keep = converting.keep_latest(self._selection)
        return versions.mapInArrow(keep, from_arrow_schema(converting.KEPT_SCHEMA))

    def _tasks_and_parts(self, index: Index) -> tuple[int, int]:
        cores: int = self._spark.sparkContext.defaultParallelism
        tasks = index.size // _TASK_BYTES
        if tasks > _MANY_TASKS:
            # What a task leaves to a part must stay worth packing: both get larger with the archive.
            tasks = math.isqrt(tasks * _MANY_TASKS)
        tasks = max(cores, tasks)
        return tasks, self._parts or max(cores, tasks // _TASKS_PER_PART)

    def _in_groups(self, index: Index) -> DataFrame:
        """The chunks under the final names of their groups, without groups that cannot hold what is wanted."""
        chunks = index.rows.where(F.col("kind") == EVENTS).select(*Chunk._fields)
        shared = united(joined(self._links(index)))
        if shared:
            names = self._spark.createDataFrame(list(shared.items()), "group string, shared string")
            known = chunks.join(names, "group", "left")
            chunks = known.withColumn("group", F.coalesce("shared", "group")).select(*Chunk._fields)
        since_ms, until_ms = self._selection.since_ms, self._selection.until_ms
        if since_ms is None and until_ms is None:
            return chunks
        # A group may hold several runs; which of them are wanted is told when they are converted.
        spans = chunks.groupBy("group").agg(F.min("time_ms").alias("first"), F.max("until_ms").alias("last"))
        if since_ms is not None:
            spans = spans.where(F.col("last") >= since_ms)
        if until_ms is not None:
            spans = spans.where(F.col("first") < until_ms)
        return chunks.join(spans, "group", "left_semi")

    def _links(self, index: Index) -> list[Link]:
        """Those links that join groups."""
        rows = index.rows.where(F.col("kind") == LINKS).select(*PackedLinks._fields)
        tasks = 1 + index.events // _EVENTS_PER_LINK_TASK
        buckets = rows.repartition(tasks, "bucket").sortWithinPartitions("bucket")
        schema = from_arrow_schema(LINK_SCHEMA)
        links = set(_collected(buckets.mapInArrow(joining_links, schema)))
        if untold := untold_runs(links):
            links.update(_collected(rows.mapInArrow(links_of_runs(untold), schema)))
        return sorted(links)


def _collected(links: DataFrame) -> Iterator[Link]:
    return (Link(cast("LinkKind", row[0]), row[1], row[2]) for row in links.collect())

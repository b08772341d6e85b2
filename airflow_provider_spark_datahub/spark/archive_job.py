"""The conversion of an archive as a Spark job: index, group, convert, keep the latest.

Events move once, packed by group; a group is converted as a stream, so that no application is too large for an
executor; what is left of it moves once more, to where the other versions of the same aspects are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (how everybody calls it)
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_provider_spark_datahub.conversion.archive import ArchiveFacts, Selection
from airflow_provider_spark_datahub.conversion.event_heads import NO_TIME
from airflow_provider_spark_datahub.conversion.grouping import Link, LinkKind, joined, united
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.spark.archive_files import ArchiveFiles
from airflow_provider_spark_datahub.spark.chunks import Chunk
from airflow_provider_spark_datahub.spark.converting import (
    KEPT_SCHEMA,
    VERSION_SCHEMA,
    convert_groups,
    keep_latest,
)
from airflow_provider_spark_datahub.spark.indexing import BAD, EVENTS, SCHEMA, index_files, index_lines

_TASK_BYTES = 128 * 1024 * 1024
_CONFIGURATION = {
    # Chunks and files are large values: a batch is bounded by its bytes, not by its rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 1024 * 1024),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
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
        return self.rows.where(F.col("kind") == BAD).select("file", "offset", F.col("text").alias("reason"))


class ArchiveJob:
    """Converts an archive.

    :param work: a folder for what is kept between steps, in a file system that all executors see.
    """

    def __init__(self, spark: SparkSession, settings: LineageSettings, selection: Selection, work: str) -> None:
        self._spark = spark
        self._settings = settings
        self._selection = selection
        self._work = work
        for key, value in _CONFIGURATION.items():
            spark.conf.set(key, value)

    def known_index(self) -> Index | None:
        """The index that an earlier run of this job has written to its end."""
        try:
            rows = self._spark.read.parquet(f"{self._work}/index")
        except AnalysisException:
            return None
        return self._described(rows)

    def index(self, files: ArchiveFiles) -> Index:
        """Read all files once."""
        schema = from_arrow_schema(SCHEMA)
        rows = files.whole.mapInArrow(index_files, schema)
        if files.lines is not None:
            rows = rows.unionByName(files.lines.mapInArrow(index_lines, schema))
        if files.too_large:
            reason = "a compressed file of more than 2 GB cannot be read: split it"
            bad = [(BAD, None, None, file, 0, None, None, None, None, reason) for file in files.too_large]
            rows = rows.unionByName(self._spark.createDataFrame(bad, schema))
        rows.write.mode("overwrite").parquet(f"{self._work}/index")
        return self._described(self._spark.read.parquet(f"{self._work}/index"))

    def _described(self, rows: DataFrame) -> Index:
        (sums,) = rows.agg(F.sum("events"), F.sum("size"), F.max("until_ms")).collect()
        damaged = rows.where(F.col("kind") == BAD).select("file").distinct().collect()
        until_ms = NO_TIME if sums[2] is None else sums[2]
        facts = ArchiveFacts(until_ms, frozenset(row[0] for row in damaged))
        return Index(rows, sums[0] or 0, sums[1] or 0, facts)

    def kept(self, index: Index, parts: int | None = None) -> DataFrame:
        """What is to be written, and what was counted: see :data:`converting.KEPT_SCHEMA`.

        Every place is in one partition, in which its rows are together and in order.

        :param parts: how many partitions; by the size of the archive where it is not told.
        """
        cores = self._spark.sparkContext.defaultParallelism
        tasks = max(cores, index.size // _TASK_BYTES)
        chunks = self._in_groups(index).repartition(tasks, "group")
        chunks = chunks.sortWithinPartitions("group", "time_ms", "file", "offset")
        convert = convert_groups(self._settings, self._selection, index.facts)
        versions = chunks.mapInArrow(convert, from_arrow_schema(VERSION_SCHEMA))
        versions = versions.repartition(parts or max(cores, tasks // 4), "place")
        versions = versions.sortWithinPartitions("kind", "place", "time_ms", "run_id", "number")
        return versions.mapInArrow(keep_latest(self._selection), from_arrow_schema(KEPT_SCHEMA))

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

    def _links(self, index: Index) -> Iterable[Link]:
        """Those links that join groups, which few do: a run's events are in one group nearly always."""
        links = index.rows.where(~F.col("kind").isin(EVENTS, BAD))
        links = links.select("kind", F.col("text").alias("run_id"), "group").repartition("run_id").distinct()
        runs, children = links.where(F.col("kind") != "child"), links.where(F.col("kind") == "child")
        several = runs.select("run_id", "group").distinct().groupBy("run_id").count().where(F.col("count") > 1)
        applications = runs.where(F.col("kind") == "application").select("run_id")
        queries = several.select("run_id").union(runs.where(F.col("kind") == "query").select("run_id"))
        children = children.join(applications, "run_id", "left_semi").union(
            children.join(queries.withColumnRenamed("run_id", "group"), "group", "left_semi").select(*children.columns)
        )
        needed = queries.union(children.select("run_id")).distinct()
        for found in (runs.join(needed, "run_id", "left_semi"), children):
            for row in found.select("kind", "run_id", "group").toLocalIterator():
                yield Link(cast("LinkKind", row[0]), row[1], row[2])

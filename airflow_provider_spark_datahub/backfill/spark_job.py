"""Conversion of an archive as a Spark job: read the files, group the events, convert the groups,
compact the aspects.

Spark's shuffle brings the events of a group together, and later the versions of an aspect. Its sort
spills to the disk, and each step (see :mod:`.steps`) works on a stream, so that no application is
too large for an executor. The results of the first two steps are stored, so that a job that was
killed continues there.

``spark-submit`` starts it: ``spark_job.py PLAN``, with the plan as one line of JSON.

Tests: ``tests/backfill/test_backfill_job.py``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import (
    Column,
    DataFrame,
    Row,
    SparkSession,
    functions as F,  # noqa: N812 (its customary name)
)
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_provider_spark_datahub.backfill import plan as folder, steps
from airflow_provider_spark_datahub.backfill.plan import PROPOSAL_COLUMN, BackfillPlan, PlanError
from airflow_provider_spark_datahub.capture import COMPRESSED
from airflow_provider_spark_datahub.conversion import SettingsError, archive
from airflow_provider_spark_datahub.foundation.text import counted

_CONFIGURATION = {
    # Files, events and proposals are large values: a batch is bounded by its bytes, or else by few
    # rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 1024 * 1024),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # The vectorized reader reads thousands of rows at a time, however large they are.
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # An archive may have one small object for each event.
    "spark.sql.files.openCostInBytes": str(64 * 1024),
}
_TABLES = {
    # Large texts are all different: a dictionary costs as much as writing them, and saves nothing.
    **{
        f"parquet.enable.dictionary#{name}": "false"
        for name in ("text", "content", PROPOSAL_COLUMN)
    },
    "parquet.compression.codec.zstd.level": "1",
    # The size of a page and of a group of rows is checked from the first row on, not from the
    # hundredth.
    "parquet.page.size.row.check.min": "1",
    "parquet.block.size.row.check.min": "1",
}
_EXIT_USAGE = 2
_LISTED_REASONS = 20
_QUARANTINE_FILES = 8
_EVENT_BYTES_PER_TASK = 128 * 1024 * 1024
_MANY_TASKS = 2000
_TASKS_PER_PART = 4


def _sum(values: Column | str) -> Column:
    return F.coalesce(F.sum(values), F.lit(0))


def _write(rows: DataFrame, path: str) -> None:
    rows.write.mode("overwrite").options(**_TABLES).parquet(path)


# -- the job of a plan


class _BackfillJob:
    """Conversion of a plan. A folder that is already converted stays as it is."""

    def __init__(self, spark: SparkSession, plan: BackfillPlan) -> None:
        self._spark = spark
        self._plan = plan
        self._wanted = plan.archive_filter()
        self._files = _HadoopFiles(spark)
        self._seconds: dict[str, float] = {}
        for key, value in _CONFIGURATION.items():
            spark.conf.set(key, value)

    def run(self) -> dict[str, Any]:
        """Convert the archive, or continue an interrupted run of the same plan, and return the
        summary.

        :raises PlanError: if the folder holds the results of another plan.
        """
        path = self._plan.path(folder.PLAN_FILE)
        stored_plan = self._files.read(path)
        if stored_plan is None:
            self._files.write(path, self._plan.to_json())
        else:
            self._plan.check_folder(stored_plan)
        summary = self._files.read(self._plan.path(folder.CONVERTED_FILE))
        if summary is not None:
            _report("the archive has been converted already")
            return dict(json.loads(summary))
        return self._convert()

    def _convert(self) -> dict[str, Any]:
        source = self._step("reading", self._read_files)
        events = self._table("events", steps.EVENTS)
        facts = _event_facts(events)
        _report(f"{counted(facts['events'], 'event')}, {facts['size'] / 1e6:.1f} MB")
        self._step("converting", partial(self._convert_groups, events, facts))
        started = time.monotonic()
        converted = self._table("converted", steps.CONVERTED)
        counts = converted.agg(
            _sum("runs").alias("runs"),
            F.count("place").alias("versions"),
            (F.count("reason") + facts["problems"]).alias("quarantined"),
        ).collect()[0]
        reasons = self._quarantine(events, converted) if counts["quarantined"] else {}
        aspects = self._keep_latest(converted, facts)
        self._seconds["writing"] = time.monotonic() - started
        summary = {
            **source,
            "events": facts["events"],
            "event_bytes": facts["size"],
            **counts.asDict(),
            "proposals": sum(aspects.values()),
            "proposals_by_aspect": aspects,
            "quarantined_by_reason": reasons,
            "seconds": {step: round(lasted, 1) for step, lasted in self._seconds.items()},
        }
        self._files.write(self._plan.path(folder.SUMMARY), json.dumps(summary, indent=2))
        if not self._plan.dry_run:
            self._files.write(self._plan.path(folder.CONVERTED_FILE), json.dumps(summary, indent=2))
            self._files.delete(self._plan.path(folder.WORK))
        return summary

    def _step(self, name: str, carry_out: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """Carry out a step, unless an earlier run of this plan has done so, and return its result."""
        marker = self._plan.path(f"{folder.WORK}/{name}.json")
        record = self._files.read(marker)
        if record is not None:
            _report(f"{name} has been done already")
        else:
            _report(name)
            started = time.monotonic()
            record = json.dumps(
                {"result": carry_out() or {}, "seconds": time.monotonic() - started}
            )
            self._files.write(marker, record)
        done = json.loads(record)
        self._seconds[name] = done["seconds"]
        return dict(done["result"])

    def _table(self, name: str, schema: pa.Schema) -> DataFrame:
        return self._spark.read.schema(from_arrow_schema(schema)).parquet(
            self._plan.path(f"{folder.WORK}/{name}")
        )

    def _read_files(self) -> dict[str, Any]:
        files = _ArchiveFiles.find(self._spark, self._plan.sources)
        _report(f"{counted(files.count, 'file')}, {files.size / 1e6:.1f} MB")
        self._spark.conf.set("spark.sql.files.maxPartitionBytes", files.bytes_per_task)
        _write(files.events(), self._plan.path(f"{folder.WORK}/events"))
        self._spark.conf.unset("spark.sql.files.maxPartitionBytes")
        return {"files": files.count, "bytes": files.size}

    def _convert_groups(self, events: DataFrame, facts: Row) -> None:
        _write(events.select(F.inline("links")).distinct(), self._plan.path(f"{folder.WORK}/links"))
        readable = events.where("reason IS NULL").select("group", *archive.ArchivedEvent._fields)
        of_archive = archive.ArchiveFacts(facts["until_ms"], frozenset(facts["damaged"]))
        convert = steps.convert_groups(self._plan.settings(), self._wanted, of_archive)
        converted = (
            _in_time(_in_groups(readable, self._table("links", steps.LINKS)), self._wanted)
            .repartition(self._tasks(facts), "group")
            .sortWithinPartitions("group", "time_ms", "file", "offset")
            .mapInArrow(convert, from_arrow_schema(steps.CONVERTED))
        )
        _write(converted, self._plan.path(f"{folder.WORK}/converted"))

    def _keep_latest(self, converted: DataFrame, facts: Row) -> dict[str, int]:
        """Write the parts, and return the number of proposals of each aspect.

        Each partition is a part, so that the proposals of an entity stay together and in order.
        """
        parts = self._plan.parts or max(self._cores, self._tasks(facts) // _TASKS_PER_PART)
        proposals = (
            converted.where("place IS NOT NULL")
            .select(*archive.AspectVersion._fields)
            .repartition(parts, "place")
            .sortWithinPartitions("place", "time_ms", "run_id", "number")
            .mapInArrow(steps.compact_versions(self._wanted), from_arrow_schema(steps.KEPT))
            .withColumn("event_time", F.timestamp_millis("time_ms"))
            .select(
                "entity_urn", "aspect_name", "change_type", PROPOSAL_COLUMN, "event_time", "reason"
            )
        )
        if not self._plan.dry_run:
            path = self._plan.path(folder.PROPOSALS)
            _write(proposals, path)
            proposals = self._spark.read.schema(proposals.schema).parquet(path)
        return dict(sorted(map(tuple, proposals.groupBy("aspect_name").count().collect())))

    def _quarantine(self, events: DataFrame, converted: DataFrame) -> dict[str, int]:
        """Write the lines and datasets that could not be converted, and return the most frequent
        reasons.
        """
        problems = [
            rows.where("reason IS NOT NULL").select("file", "offset", "reason")
            for rows in (events, converted)
        ]
        quarantine = problems[0].union(problems[1])
        quarantine.coalesce(_QUARANTINE_FILES).write.mode("overwrite").json(
            self._plan.path(folder.QUARANTINE)
        )
        frequent = (
            quarantine.groupBy("reason")
            .count()
            .orderBy(F.desc("count"), "reason")
            .limit(_LISTED_REASONS)
        )
        return dict(map(tuple, frequent.collect()))

    @property
    def _cores(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def _tasks(self, facts: Row) -> int:
        tasks: int = facts["size"] // _EVENT_BYTES_PER_TASK
        if tasks > _MANY_TASKS:
            # Each task of one step sends a piece to each of the next. Both grow, so that the pieces
            # do not get tiny.
            tasks = math.isqrt(tasks * _MANY_TASKS)
        return max(self._cores, tasks)


# -- read

_WHOLE_FILE_BYTES = 32 * 1024 * 1024
"""A larger file is read in parts unless it is compressed: a compressed file can be read only from
its beginning.
"""
_MAX_COMPRESSED_BYTES = 2**31 - 2**20  # larger content does not fit into one value of Spark's
_TOO_LARGE = "a compressed file of more than 2 GB cannot be read: split it"
# How much larger events may be than their compressed file, to estimate the sizes of tasks.
_COMPRESSION = 20
_BYTES_PER_READING_TASK = 256 * 1024 * 1024
_FILES_PER_TASK = 10_000
_TASKS_PER_CORE = 4


@dataclass(frozen=True)
class _ArchiveFiles:
    """Files of an archive. Those that are large and not compressed are read line by line, the
    others whole.

    :param size: their size as they are stored, in bytes.
    :param whole: path and content of each file that is read as a whole.
    :param large: files whose lines are read.
    :param too_large: files that cannot be read.
    :param bytes_per_task: so that each core gets several tasks, and no task takes minutes.
    """

    count: int
    size: int
    whole: DataFrame
    large: list[str]
    too_large: list[str]
    bytes_per_task: int

    @classmethod
    def find(cls, spark: SparkSession, sources: Sequence[str]) -> _ArchiveFiles:
        """Return the files below folders in any layout, except names that start with a dot or an
        underscore.

        :param sources: folders, files or globs, in any file system that this Spark knows.
        """
        # binaryFile lists files, and opens them only if their content is selected.
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        files = reader.load(list(sources))
        path, length = F.col("path"), F.col("length")
        compressed = reduce(Column.__or__, map(path.endswith, COMPRESSED))
        facts = files.agg(
            F.count("*").alias("count"),
            _sum("length").alias("size"),
            _sum(length * F.when(compressed, _COMPRESSION).otherwise(1)).alias("unpacked"),
            F.collect_list(F.when((length > _WHOLE_FILE_BYTES) & ~compressed, path)).alias("large"),
            F.count_if((length > _WHOLE_FILE_BYTES) & compressed).alias("large_compressed"),
            F.collect_list(F.when((length > _MAX_COMPRESSED_BYTES) & compressed, path)).alias(
                "too_large"
            ),
        ).collect()[0]
        # Spark does not read the content of files that a condition on the length alone leaves out.
        whole = files.where(length <= _WHOLE_FILE_BYTES)
        if facts["large_compressed"]:
            archives = reader.option("pathGlobFilter", f"*{{{','.join(COMPRESSED)}}}").load(
                list(sources)
            )
            whole = whole.union(
                archives.where(length.between(_WHOLE_FILE_BYTES + 1, _MAX_COMPRESSED_BYTES))
            )
        tasks = max(
            _TASKS_PER_CORE * spark.sparkContext.defaultParallelism,
            facts["unpacked"] // _BYTES_PER_READING_TASK,
            facts["count"] // _FILES_PER_TASK,
        )
        open_cost = int(_CONFIGURATION["spark.sql.files.openCostInBytes"])
        bytes_per_task = 1 + (facts["size"] + facts["count"] * open_cost) // tasks
        whole = whole.select("path", "content")
        return cls(
            facts["count"], facts["size"], whole, facts["large"], facts["too_large"], bytes_per_task
        )

    def events(self) -> DataFrame:
        """Return the lines of all files: see :data:`steps.EVENTS`."""
        spark, schema = self.whole.sparkSession, from_arrow_schema(steps.EVENTS)
        events = self.whole.mapInArrow(steps.read_files(), schema)
        if self.large:
            # Lines end only with "\n", so that their lengths add up to offsets. The bytes are not
            # changed.
            lines = spark.read.option("lineSep", "\n").text(self.large)
            path = F.regexp_replace("_metadata.file_path", "^file:///", "file:/").alias("path")
            lines = lines.select(path, "_metadata.file_block_start", F.encode("value", "utf-8"))
            events = events.union(lines.mapInArrow(steps.read_parts(), schema))
        if self.too_large:
            problems = [(file, 0, _TOO_LARGE) for file in self.too_large]
            unread = spark.createDataFrame(problems, "file string, offset bigint, reason string")
            events = events.unionByName(unread, allowMissingColumns=True)
        return events


def _event_facts(events: DataFrame) -> Row:
    """Return the number of events and of unreadable lines, their size in bytes, and what archives
    need of them.
    """
    return events.agg(
        F.count("group").alias("events"),
        _sum("size").alias("size"),
        F.count("reason").alias("problems"),
        F.coalesce(F.max("time_ms"), F.lit(archive.NO_TIME)).alias("until_ms"),
        F.collect_set(F.when(F.col("reason").isNotNull(), F.col("file"))).alias("damaged"),
    ).collect()[0]


# -- group


def _in_groups(events: DataFrame, links: DataFrame) -> DataFrame:
    """Give groups that must be converted together one name.

    :param links: those of the events.
    """
    joining = [
        archive.Link(cast("archive.LinkKind", row[0]), row[1], row[2])
        for row in _joining(links).collect()
    ]
    shared = archive.merge_groups(joining)
    if not shared:
        return events
    names = events.sparkSession.createDataFrame(list(shared.items()), "group string, shared string")
    return (
        events.join(names, "group", "left")
        .withColumn("group", F.coalesce("shared", "group"))
        .drop("shared")
    )


def _joining(links: DataFrame) -> DataFrame:
    """Select the few links that join groups: those that :func:`archive.merge_groups` needs of them."""
    of_runs, of_children = links.where("kind != 'child'"), links.where("kind = 'child'")
    runs = of_runs.groupBy("run_id").agg(
        (F.min("group") != F.max("group")).alias("is_split"),
        F.bool_or(F.col("kind") == "application").alias("is_application"),
        F.bool_or(F.col("kind") == "query").alias("is_query"),
    )
    applications = runs.where("is_application").select("run_id")
    queries = runs.where("is_split OR is_query").select(F.col("run_id").alias("group"))
    joined = of_children.join(applications, "run_id", "left_semi").unionByName(
        of_children.join(queries, "group", "left_semi")
    )
    needed = (
        runs.where("is_split")
        .select("run_id")
        .union(joined.select("run_id"))
        .union(joined.select("group"))
    )
    return (
        of_runs.join(needed, "run_id", "left_semi")
        .unionByName(joined)
        .select(*archive.Link._fields)
    )


def _in_time(events: DataFrame, wanted: archive.ArchiveFilter) -> DataFrame:
    """Leave out groups outside the wanted times. If one has several runs, the conversion decides
    which are wanted.
    """
    if wanted.since_ms is None and wanted.until_ms is None:
        return events
    spans = events.groupBy("group").agg(
        F.min("time_ms").alias("first"), F.max("time_ms").alias("last")
    )
    if wanted.since_ms is not None:
        spans = spans.where(F.col("last") >= wanted.since_ms)
    if wanted.until_ms is not None:
        spans = spans.where(F.col("first") < wanted.until_ms)
    return events.join(spans, "group", "left_semi")


# -- small files of the driver


class _HadoopFiles:
    """Text files in any file system that Spark knows, read and written through Hadoop."""

    def __init__(self, spark: SparkSession) -> None:
        # Python reaches Hadoop's file systems only through the JVM.
        self._context: Any = spark.sparkContext

    def read(self, path: str) -> str | None:
        system, file = self._system_and_path(path)
        if not system.exists(file):
            return None
        stream = system.open(file)
        try:
            return str(self._context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write the text of a file: completely or not at all, if the file system can rename.

        :raises OSError: if the file system refuses to rename.
        """
        system, file = self._system_and_path(path)
        draft = self._path(f"{path}.draft")
        stream = system.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.delete(file, False)
        if not system.rename(draft, file):
            raise OSError(f"{path} cannot be written: its file system did not rename {path}.draft")

    def delete(self, path: str) -> None:
        system, file = self._system_and_path(path)
        system.delete(file, True)

    def _system_and_path(self, path: str) -> tuple[Any, Any]:
        file = self._path(path)
        return file.getFileSystem(self._context._jsc.hadoopConfiguration()), file

    def _path(self, path: str) -> Any:
        return self._context._jvm.org.apache.hadoop.fs.Path(path)


def _main(plan_text: str) -> int:
    spark = SparkSession.builder.getOrCreate()
    try:
        summary = _BackfillJob(spark, BackfillPlan.from_json(plan_text)).run()
    except (PlanError, SettingsError) as error:
        _report(str(error))
        return _EXIT_USAGE
    finally:
        spark.stop()
    proposals, runs = counted(summary["proposals"], "proposal"), counted(summary["runs"], "run")
    _report(f"{proposals} from {runs}, {summary['quarantined']} quarantined")
    return 0


def _report(line: str) -> None:
    """Write a line about the progress, for people."""
    print(f"backfill: {line}", file=sys.stderr, flush=True)  # noqa: T201 (a program of its own)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))

"""Conversion of an archive as a Spark job: index the files, convert the groups of events, compact the aspects.

Events move once, packed by group. A group is converted as a stream, so that no application is too large for an
executor. The aspects move once more, packed again, to the other versions of the same aspects. Each step writes its
result to a folder, so that a lost executor costs no more than one step.

Tests: ``tests/backfill/test_backfill_job.py``.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 (its customary name)
)
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_provider_spark_datahub.backfill import packing, plan as folder
from airflow_provider_spark_datahub.backfill.indexing import EVENTS, LINKS, PROBLEMS, SCHEMA, ArchiveFiles
from airflow_provider_spark_datahub.backfill.plan import PROPOSAL_COLUMN, BackfillPlan
from airflow_provider_spark_datahub.conversion import LineageSettings, archive
from airflow_provider_spark_datahub.foundation.text import counted

_LISTED_REASONS = 20
_QUARANTINE_FILES = 8
_PARTS = {
    # Proposals are all different: a dictionary costs as much as writing them, and saves nothing.
    f"parquet.enable.dictionary#{PROPOSAL_COLUMN}": "false",
    "parquet.compression.codec.zstd.level": "1",
}

# -- the job of a plan


class BackfillJob:
    """Conversion of a plan. A folder that is already converted stays as it is.

    :param report: takes lines about the progress, for people.
    """

    def __init__(self, spark: SparkSession, plan: BackfillPlan, report: Callable[[str], None]) -> None:
        self._spark = spark
        self._plan = plan
        self._report = report
        self._files = _HadoopFiles(spark)
        self._archive = _ArchiveJob(spark, plan)
        self._seconds: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        """Convert the archive, or continue an interrupted run of the same plan, and return the summary.

        :raises PlanError: if the folder holds the results of another plan.
        """
        path = self._plan.path(folder.PLAN_FILE)
        known = self._files.read(path)
        if known is None:
            self._files.write(path, self._plan.to_json())
        else:
            self._plan.check_folder(known)
        summary = self._files.read(self._plan.path(folder.CONVERTED_FILE))
        if summary is not None:
            self._report("the archive has been converted already")
            return dict(json.loads(summary))
        return self._convert()

    def _convert(self) -> dict[str, Any]:
        source = self._step("reading", self._read)
        index = self._archive.index()
        self._report(f"{counted(index.events, 'event')}, {index.size / 1e6:.1f} MB")
        self._step("converting", partial(self._archive.convert, index))
        converted = self._archive.converted()
        counts = _counts(converted)
        unreadable = index.rows.where(F.col("kind") == PROBLEMS).select("file", "offset", "reason")
        quarantine = unreadable.union(converted.where(F.col("kind") == PROBLEMS).select("place", "number", "reason"))
        reasons = _reasons(quarantine if counts["quarantined"] or index.facts.damaged else None)
        started = time.monotonic()
        quarantine.coalesce(_QUARANTINE_FILES).write.mode("overwrite").json(self._plan.path(folder.QUARANTINE))
        kept = self._archive.kept(index)
        aspects = _aspects(kept if self._plan.dry_run else self._written(kept))
        self._seconds["writing"] = time.monotonic() - started
        events = {"events": index.events, "event_bytes": index.size}
        seconds = {step: round(lasted, 1) for step, lasted in self._seconds.items()}
        summary = {**source, **events, **counts, **aspects, **reasons, "seconds": seconds}
        self._files.write(self._plan.path(folder.SUMMARY), json.dumps(summary, indent=2))
        if not self._plan.dry_run:
            self._files.write(self._plan.path(folder.CONVERTED_FILE), json.dumps(summary, indent=2))
            self._files.delete(self._plan.path(folder.WORK))
        return summary

    def _step(self, name: str, carry_out: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """Carry out a step, unless an earlier run of this plan has done so, and return its result."""
        marker = self._plan.path(f"{folder.WORK}/{name}.json")
        known = self._files.read(marker)
        if known is not None:
            self._report(f"{name} has been done already")
        else:
            self._report(name)
            started = time.monotonic()
            known = json.dumps({"result": carry_out() or {}, "seconds": time.monotonic() - started})
            self._files.write(marker, known)
        done = json.loads(known)
        self._seconds[name] = done["seconds"]
        return dict(done["result"])

    def _read(self) -> dict[str, Any]:
        files = ArchiveFiles.find(self._spark, self._plan.sources)
        self._report(f"{counted(files.count, 'file')}, {files.size / 1e6:.1f} MB")
        self._archive.read(files)
        return {"files": files.count, "bytes": files.size}

    def _written(self, kept: DataFrame) -> DataFrame:
        """Write the parts, one per partition, so that the proposals of an entity stay together and in order."""
        path = self._plan.path(folder.PROPOSALS)
        columns = ["entity_urn", "aspect_name", "change_type", PROPOSAL_COLUMN, "event_time", "reason"]
        table = kept.withColumn("event_time", F.timestamp_millis("time_ms")).select(*columns)
        table.write.mode("overwrite").options(**_PARTS).parquet(path)
        return self._spark.read.schema(table.schema).parquet(path)


def _counts(converted: DataFrame) -> dict[str, Any]:
    counts = converted.where(F.col("kind") == _COUNT).groupBy("place").agg(F.sum("number"))
    return {"runs": 0, "versions": 0, "quarantined": 0} | {row[0]: row[1] for row in counts.collect()}


def _aspects(kept: DataFrame) -> dict[str, Any]:
    aspects = {row[0]: row[1] for row in kept.groupBy("aspect_name").count().collect()}
    return {"proposals": sum(aspects.values()), "proposals_by_aspect": dict(sorted(aspects.items()))}


def _reasons(quarantine: DataFrame | None) -> dict[str, Any]:
    if quarantine is None:
        return {"quarantined": 0, "quarantined_by_reason": {}}
    by_reason = quarantine.groupBy("reason").count()
    count = by_reason.agg(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0]
    frequent = by_reason.orderBy(F.desc("count"), "reason").limit(_LISTED_REASONS).collect()
    return {"quarantined": count, "quarantined_by_reason": {row[0]: row[1] for row in frequent}}


# -- the three steps as DataFrames

_TASK_BYTES = 128 * 1024 * 1024
_MANY_TASKS = 2000
_EVENTS_PER_LINK_TASK = 1_000_000
_TASKS_PER_PART = 4
_BUCKETS_PER_PART = 4  # for parts of similar sizes, and a fraction of a part in memory
_CONFIGURATION = {
    # Chunks, files and proposals are large values: a batch is bounded by its bytes, not by its rows.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 1024 * 1024),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # The vectorized reader reads thousands of rows at a time, however large they are.
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.compression.codec": "zstd",
}


@dataclass(frozen=True, slots=True)
class _Index:
    """The index of an archive. The size is that of the unpacked events, in bytes."""

    rows: DataFrame
    events: int
    size: int
    facts: archive.ArchiveFacts


class _ArchiveJob:
    """The steps of the conversion. Their results are in the plan's work folder, which all executors see."""

    def __init__(self, spark: SparkSession, plan: BackfillPlan) -> None:
        self._spark = spark
        self._settings = plan.settings()
        self._wanted = plan.archive_filter()
        self._work = plan.path(folder.WORK)
        self._parts = plan.parts
        for key, value in _CONFIGURATION.items():
            spark.conf.set(key, value)

    def read(self, files: ArchiveFiles) -> None:
        files.write_index(f"{self._work}/index")

    def index(self) -> _Index:
        rows = self._spark.read.schema(from_arrow_schema(SCHEMA)).parquet(f"{self._work}/index")
        is_chunk = F.col("kind") == EVENTS
        (sums,) = rows.agg(
            F.coalesce(F.sum(F.when(is_chunk, F.col("events"))), F.lit(0)).alias("events"),
            F.coalesce(F.sum(F.when(is_chunk, F.col("size"))), F.lit(0)).alias("size"),
            F.coalesce(F.max("until_ms"), F.lit(archive.NO_TIME)).alias("until_ms"),
            F.collect_set(F.when(F.col("kind") == PROBLEMS, F.col("file"))).alias("damaged"),
        ).collect()
        return _Index(
            rows, sums["events"], sums["size"], archive.ArchiveFacts(sums["until_ms"], frozenset(sums["damaged"]))
        )

    def convert(self, index: _Index) -> None:
        tasks, parts = self._tasks_and_parts(index)
        chunks = self._in_groups(index).repartition(tasks, "group")
        chunks = chunks.sortWithinPartitions("group", "time_ms", "file", "offset")
        convert = _convert_groups(self._settings, self._wanted, index.facts, _BUCKETS_PER_PART * parts)
        rows = chunks.mapInArrow(convert, from_arrow_schema(_CONVERTED_SCHEMA))
        rows.write.mode("overwrite").parquet(f"{self._work}/converted")

    def converted(self) -> DataFrame:
        return self._spark.read.schema(from_arrow_schema(_CONVERTED_SCHEMA)).parquet(f"{self._work}/converted")

    def kept(self, index: _Index) -> DataFrame:
        """Return the proposals to write (see :data:`_KEPT_SCHEMA`): those of a place in one partition, in order."""
        versions = self.converted().where(F.col("kind") == _VERSIONS).select(*packing.PackedVersions._fields)
        versions = versions.repartition(self._tasks_and_parts(index)[1], "bucket")
        versions = versions.sortWithinPartitions("bucket", "place", "time_ms", "run_id", "number")
        return versions.mapInArrow(_compact_buckets(self._wanted), from_arrow_schema(_KEPT_SCHEMA))

    def _tasks_and_parts(self, index: _Index) -> tuple[int, int]:
        cores: int = self._spark.sparkContext.defaultParallelism
        tasks = index.size // _TASK_BYTES
        if tasks > _MANY_TASKS:
            # Each task writes to each part. Both grow with the archive, so that these pieces stay worth packing.
            tasks = math.isqrt(tasks * _MANY_TASKS)
        tasks = max(cores, tasks)
        return tasks, self._parts or max(cores, tasks // _TASKS_PER_PART)

    def _in_groups(self, index: _Index) -> DataFrame:
        """Return the chunks with the final names of their groups, without groups outside the wanted times."""
        chunks = index.rows.where(F.col("kind") == EVENTS).select(*packing.Chunk._fields)
        shared = archive.merge_groups(self._links(index))
        if shared:
            names = self._spark.createDataFrame(list(shared.items()), "group string, shared string")
            known = chunks.join(names, "group", "left")
            chunks = known.withColumn("group", F.coalesce("shared", "group")).select(*packing.Chunk._fields)
        since_ms, until_ms = self._wanted.since_ms, self._wanted.until_ms
        if since_ms is None and until_ms is None:
            return chunks
        # A group may hold several runs; the conversion decides which of them are wanted.
        spans = chunks.groupBy("group").agg(F.min("time_ms").alias("first"), F.max("until_ms").alias("last"))
        if since_ms is not None:
            spans = spans.where(F.col("last") >= since_ms)
        if until_ms is not None:
            spans = spans.where(F.col("first") < until_ms)
        return chunks.join(spans, "group", "left_semi")

    def _links(self, index: _Index) -> list[archive.Link]:
        rows = index.rows.where(F.col("kind") == LINKS).select(*packing.PackedLinks._fields)
        tasks = 1 + index.events // _EVENTS_PER_LINK_TASK
        buckets = rows.repartition(tasks, "bucket").sortWithinPartitions("bucket")
        schema = from_arrow_schema(packing.LINK_SCHEMA)
        links = set(_collected(buckets.mapInArrow(packing.PackedLinks.joining, schema)))
        if unresolved := packing.unresolved_runs(links):
            links.update(_collected(rows.mapInArrow(packing.PackedLinks.of_runs(unresolved), schema)))
        return sorted(links)


def _collected(links: DataFrame) -> Iterator[archive.Link]:
    return (archive.Link(cast("archive.LinkKind", row[0]), row[1], row[2]) for row in links.collect())


# -- the steps within a task

_VERSIONS, _COUNT = "versions", "count"
"""Kinds of rows, besides :data:`indexing.PROBLEMS`."""

_CONVERTED_SCHEMA = pa.schema(
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
"""Versions have the columns of :class:`PackedVersions`. Problems have the file as ``place``, the offset as ``number``,
and the reason. Counts have the name of the count as ``place``, and its value as ``number``."""

_KEPT_SCHEMA = pa.schema(
    [
        ("entity_urn", pa.string()),
        ("aspect_name", pa.string()),
        ("change_type", pa.string()),
        (PROPOSAL_COLUMN, pa.string()),
        ("time_ms", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""Rows of proposals, with the proposal itself as JSON."""


def _convert_groups(
    settings: LineageSettings, wanted: archive.ArchiveFilter, facts: archive.ArchiveFacts, buckets: int
) -> packing.Step:
    """Return the step that converts groups.

    It takes the columns of :class:`Chunk`. Chunks of one group are together, sorted by their first events.

    :param buckets: the number of buckets, see :class:`PackedVersions`.
    """

    def converted(rows: Iterable[packing.Row]) -> Iterator[packing.Row]:
        counts = {"runs": 0, "versions": 0, "quarantined": 0}
        versions = packing.VersionPacker(buckets)
        for _, chunks in groupby((packing.Chunk(*row) for row in rows), key=itemgetter(0)):
            converter = archive.GroupConverter(settings, wanted, facts)
            for event in packing.Chunk.merged(chunks):
                converter.add(event)
            for version in converter.finish():
                counts["versions"] += 1
                yield from map(_packed, versions.add(version))
            for file, offset, reason in converter.problems:
                yield (PROBLEMS, None, file, None, None, offset, None, None, reason)
            counts["runs"] += converter.job_count
            counts["quarantined"] += len(converter.problems)
        yield from map(_packed, versions.rest())
        for name, count in counts.items():
            yield (_COUNT, None, name, None, None, count, None, None, None)

    return packing.as_step(converted, _CONVERTED_SCHEMA)


def _packed(versions: packing.PackedVersions) -> packing.Row:
    return (_VERSIONS, *versions, None)


def _compact_buckets(wanted: archive.ArchiveFilter) -> packing.Step:
    """Return the step that keeps the proposals to write.

    It takes the columns of :class:`PackedVersions`. Rows of one bucket are together, sorted by their first versions.
    """

    def kept(rows: Iterable[packing.Row]) -> Iterator[packing.Row]:
        versions = packing.PackedVersions.merged(packing.PackedVersions(*row) for row in rows)
        for _, time_ms, proposal, reason in archive.compact_versions(versions, run_history=wanted.run_history):
            urn, aspect_name, change_type = proposal.entity_urn, proposal.aspect_name, proposal.change_type
            yield urn, aspect_name, change_type, proposal.to_json(), time_ms, reason

    return packing.as_step(kept, _KEPT_SCHEMA)


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

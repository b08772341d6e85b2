"""Small files of the driver in any file system that its Spark knows.

Second and third step: the chunks of each group as versions of aspects, and of these what is to be written.

The conversion of an archive as a Spark job: index, group, convert, keep the latest.

Events move once, packed by group; a group is converted as a stream, so that no application is too large for an
executor; what is left of it moves once more, packed again, to where the other versions of the same aspects are. What
two of these steps leave to the next is written to a folder, so that no executor that is lost costs more than its step.

A backfill on the cluster: from the files of an archive to parts that can be delivered, and what was counted.
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

from airflow_provider_spark_datahub.backfill import plan as folder
from airflow_provider_spark_datahub.backfill.indexing import (
    BAD,
    EVENTS,
    LINKS,
    SCHEMA,
    ArchiveFiles,
    bad_row,
    file_parts,
    find_files,
    index_files,
    index_lines,
)
from airflow_provider_spark_datahub.backfill.packing import (
    LINK_SCHEMA,
    Chunk,
    OpenVersions,
    PackedLinks,
    PackedVersions,
    batches_of,
    events_of,
    joining_links,
    links_of_runs,
    rows_of,
    untold_runs,
    versions_of,
)
from airflow_provider_spark_datahub.backfill.plan import PROPOSAL_COLUMN, BackfillPlan, check_plan
from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.conversion.archive import (
    NO_TIME,
    ArchiveFacts,
    GroupConversion,
    Link,
    LinkKind,
    Selection,
    joined,
    kept_of,
    united,
)
from airflow_provider_spark_datahub.gc_tuning import gc_slowed


class HadoopFiles:
    """Reads and writes texts through Hadoop's file systems."""

    def __init__(self, spark: SparkSession) -> None:
        # There is no Python interface to them but the JVM's own.
        self._context: Any = spark.sparkContext

    def read(self, path: str) -> str | None:
        """A file's text, or ``None`` where there is no such file."""
        system, file = self._system_and_path(path)
        if not system.exists(file):
            return None
        stream = system.open(file)
        try:
            return str(self._context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Make a file hold a text: whole or not at all, where the file system can rename."""
        system, file = self._system_and_path(path)
        draft = self._path(f"{path}.draft")
        stream = system.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.delete(file, False)
        system.rename(draft, file)

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing where there is none."""
        system, file = self._system_and_path(path)
        system.delete(file, True)

    def _system_and_path(self, path: str) -> tuple[Any, Any]:
        file = self._path(path)
        return file.getFileSystem(self._context._jsc.hadoopConfiguration()), file

    def _path(self, path: str) -> Any:
        return self._context._jvm.org.apache.hadoop.fs.Path(path)


Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` takes."""

VERSIONS, COUNT = "versions", "count"

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
        with gc_slowed():
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
        with gc_slowed():
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
        convert = convert_groups(self._settings, self._selection, index.facts, _BUCKETS_PER_PART * parts)
        rows = chunks.mapInArrow(convert, from_arrow_schema(CONVERTED_SCHEMA))
        rows.write.mode("overwrite").parquet(f"{self._work}/converted")

    def converted(self) -> DataFrame:
        """What :meth:`convert` has written: see :data:`CONVERTED_SCHEMA`."""
        return self._spark.read.schema(from_arrow_schema(CONVERTED_SCHEMA)).parquet(f"{self._work}/converted")

    def kept(self, index: Index) -> DataFrame:
        """What is to be written, see :data:`KEPT_SCHEMA`: all of a place in one partition, in its order."""
        versions = self.converted().where(F.col("kind") == VERSIONS).select(*PackedVersions._fields)
        versions = versions.repartition(self._tasks_and_parts(index)[1], "bucket")
        versions = versions.sortWithinPartitions("bucket", "place", "time_ms", "run_id", "number")
        keep = keep_latest(self._selection)
        return versions.mapInArrow(keep, from_arrow_schema(KEPT_SCHEMA))

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


_LISTED_REASONS = 20
_QUARANTINE_FILES = 8
_PARTS = {
    # Each proposal is another: to look for it among those before costs as much as to write it.
    f"parquet.enable.dictionary#{PROPOSAL_COLUMN}": "false",
    "parquet.compression.codec.zstd.level": "1",
}


class BackfillJob:
    """Carries out the conversion of a plan, once: a folder that has been converted is left as it is.

    :param tell: takes a line on the progress.
    """

    def __init__(self, spark: SparkSession, plan: BackfillPlan, tell: Callable[[str], None]) -> None:
        self._spark = spark
        self._plan = plan
        self._tell = tell
        self._files = HadoopFiles(spark)
        work = plan.place(folder.WORK)
        self._job = ArchiveJob(spark, plan.settings(), plan.selection(), work, plan.parts)
        self._seconds: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        """Convert; go on where an earlier run of the same plan was interrupted.

        :returns: the summary.
        :raises PlanError: the folder holds the results of another plan.
        """
        self._claim_folder()
        summary = self._files.read(self._plan.place(folder.CONVERTED_FILE))
        if summary is not None:
            self._tell("the archive has been converted already")
            return dict(json.loads(summary))
        return self._convert()

    def _claim_folder(self) -> None:
        place = self._plan.place(folder.PLAN_FILE)
        known = self._files.read(place)
        if known is None:
            self._files.write(place, self._plan.to_json())
        else:
            check_plan(self._plan, known)

    def _convert(self) -> dict[str, Any]:
        found = self._step("reading", self._read)
        index = self._job.index()
        self._tell(f"{index.events} events, {index.size / 1e6:.1f} MB")
        self._step("converting", partial(self._job.convert, index))
        converted = self._job.converted()
        counts = _counts(converted)
        quarantine = index.quarantined.union(
            converted.where(F.col("kind") == BAD).select("place", F.col("number"), "reason")
        )
        reasons = _reasons(quarantine if counts["quarantined"] or index.facts.damaged else None)
        started = time.monotonic()
        quarantine.coalesce(_QUARANTINE_FILES).write.mode("overwrite").json(self._plan.place(folder.QUARANTINE))
        kept = self._job.kept(index)
        aspects = _aspects(kept if self._plan.dry_run else self._written(kept))
        self._seconds["writing"] = time.monotonic() - started
        events = {"events": index.events, "event_bytes": index.size}
        seconds = {step: round(lasted, 1) for step, lasted in self._seconds.items()}
        summary = {**found, **events, **counts, **aspects, **reasons, "seconds": seconds}
        self._files.write(self._plan.place(folder.SUMMARY), json.dumps(summary, indent=2))
        if not self._plan.dry_run:
            self._files.write(self._plan.place(folder.CONVERTED_FILE), json.dumps(summary, indent=2))
            self._files.delete(self._plan.place(folder.WORK))
        return summary

    def _step(self, name: str, carry_out: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """Carry out a step, unless an earlier run of this plan has done so."""
        marker = self._plan.place(f"{folder.WORK}/{name}.json")
        known = self._files.read(marker)
        if known is not None:
            self._tell(f"{name} has been done already")
        else:
            self._tell(name)
            started = time.monotonic()
            told = {"told": carry_out() or {}, "seconds": time.monotonic() - started}
            known = json.dumps(told)
            self._files.write(marker, known)
        done = json.loads(known)
        self._seconds[name] = done["seconds"]
        return dict(done["told"])

    def _read(self) -> dict[str, Any]:
        files = find_files(self._spark, self._plan.sources)
        self._tell(f"{files.count} files, {files.size / 1e6:.1f} MB")
        self._job.read(files)
        return {"files": files.count, "bytes": files.size}

    def _written(self, kept: DataFrame) -> DataFrame:
        """Write the parts: a partition is a file, so that all of an entity stay together, and in their order."""
        place = self._plan.place(folder.PROPOSALS)
        columns = ["entity_urn", "aspect_name", "change_type", PROPOSAL_COLUMN, "event_time", "reason"]
        table = kept.withColumn("event_time", F.timestamp_millis("time_ms")).select(*columns)
        table.write.mode("overwrite").options(**_PARTS).parquet(place)
        return self._spark.read.schema(table.schema).parquet(place)


def _counts(converted: DataFrame) -> dict[str, Any]:
    """How many runs, and versions of aspects."""
    counts = converted.where(F.col("kind") == COUNT).groupBy("place").agg(F.sum("number"))
    return {"runs": 0, "versions": 0, "quarantined": 0} | {row[0]: row[1] for row in counts.collect()}


def _aspects(kept: DataFrame) -> dict[str, Any]:
    """How many proposals, by aspect."""
    aspects = {row[0]: row[1] for row in kept.groupBy("aspect_name").count().collect()}
    return {"proposals": sum(aspects.values()), "proposals_by_aspect": dict(sorted(aspects.items()))}


def _reasons(quarantine: DataFrame | None) -> dict[str, Any]:
    if quarantine is None:
        return {"quarantined": 0, "quarantined_by_reason": {}}
    by_reason = quarantine.groupBy("reason").count()
    count = by_reason.agg(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0]
    frequent = by_reason.orderBy(F.desc("count"), "reason").limit(_LISTED_REASONS).collect()
    return {"quarantined": count, "quarantined_by_reason": {row[0]: row[1] for row in frequent}}

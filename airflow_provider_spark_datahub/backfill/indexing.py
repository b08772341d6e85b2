"""First step of the Spark job: read the files of an archive, and write an index of their events.

The index holds chunks of events by group, links between groups, and unreadable lines. Small and compressed files are
read whole, large ones line by line.

Tests: ``tests/backfill/test_steps.py``.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import (
    Column,
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 (its customary name)
)
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_provider_spark_datahub.backfill import packing
from airflow_provider_spark_datahub.capture import COMPRESSED, BadLineError, DamagedFileError, checked_text, read_lines
from airflow_provider_spark_datahub.conversion import EventError
from airflow_provider_spark_datahub.conversion.archive import ArchivedEvent, EventHead

_WHOLE_FILE_BYTES = 32 * 1024 * 1024
"""A larger file is read in parts unless it is compressed: a compressed file can be read only from its beginning."""
_MAX_COMPRESSED_BYTES = 2**31 - 2**20  # larger content does not fit into one value of Spark's
# How much larger events may be than their compressed file, to estimate the sizes of tasks.
_COMPRESSION = 20
_OPEN_COST_BYTES = 64 * 1024
_LISTING_COST_BYTES = 4 * 1024
_LISTING_TASK_BYTES = 128 * 1024 * 1024
_TASK_BYTES = 256 * 1024 * 1024
_TASK_FILES = 10_000
_TASKS_PER_CORE = 4

EVENTS, LINKS, PROBLEMS = "events", "links", "bad"
"""Kinds of rows."""

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("group", pa.string()),
        ("time_ms", pa.int64()),
        ("file", pa.string()),
        ("offset", pa.int64()),
        ("until_ms", pa.int64()),
        ("events", pa.int64()),
        ("size", pa.int64()),
        ("payload", pa.binary()),
        ("bucket", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""Events have the columns of :class:`Chunk`, links those of :class:`PackedLinks`, unreadable lines ``file``, ``offset``
and ``reason``."""


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """The files of an archive.

    :param size: their size as they are stored, in bytes.
    :param whole: path and content of each file that is read as a whole.
    :param lines: path, offset of the part, and content of each line of large files; ``None`` if there are none.
    :param too_large: files that cannot be read.
    :param part_bytes: bytes that one task reads, including the cost of opening files. Each core gets several tasks, and
        no task takes minutes.
    """

    count: int
    size: int
    whole: DataFrame
    lines: DataFrame | None
    too_large: tuple[str, ...]
    part_bytes: int

    @classmethod
    def find(cls, spark: SparkSession, sources: Sequence[str]) -> ArchiveFiles:
        """Return the files below folders in any layout, except names that start with a dot or an underscore.

        :param sources: folders, files or globs, in any file system that this Spark knows.
        """
        # binaryFile lists files, and opens them only if their content is selected.
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        files = reader.load(list(sources))
        compressed = reduce(Column.__or__, (F.col("path").endswith(suffix) for suffix in COMPRESSED))
        is_large = (F.col("length") > _WHOLE_FILE_BYTES) & ~compressed
        is_too_large = (F.col("length") > _MAX_COMPRESSED_BYTES) & compressed
        unpacked = F.col("length") * F.when(compressed, _COMPRESSION).otherwise(1)
        facts = files.agg(
            F.count("*").alias("count"),
            F.coalesce(F.sum("length"), F.lit(0)).alias("size"),
            F.coalesce(F.sum(unpacked), F.lit(0)).alias("unpacked"),
            F.collect_list(F.when(is_large, F.col("path"))).alias("large"),
            F.count_if((F.col("length") > _WHOLE_FILE_BYTES) & compressed).alias("large_compressed"),
            F.collect_list(F.when(is_too_large, F.col("path"))).alias("too_large"),
        )
        with _task_sizes(spark, _LISTING_TASK_BYTES, _LISTING_COST_BYTES):
            (found,) = facts.collect()
        tasks = max(
            _TASKS_PER_CORE * spark.sparkContext.defaultParallelism,
            found["unpacked"] // _TASK_BYTES,
            found["count"] // _TASK_FILES,
        )
        # Spark does not read the content of files that a condition on the length alone leaves out.
        whole = files.where(F.col("length") <= _WHOLE_FILE_BYTES)
        if found["large_compressed"]:
            compressed_files = reader.option("pathGlobFilter", f"*{{{','.join(COMPRESSED)}}}").load(list(sources))
            whole = whole.union(
                compressed_files.where(F.col("length").between(_WHOLE_FILE_BYTES + 1, _MAX_COMPRESSED_BYTES))
            )
        return cls(
            found["count"],
            found["size"],
            whole.select("path", "content"),
            _lines(spark, found["large"]) if found["large"] else None,
            tuple(sorted(found["too_large"])),
            1 + (found["size"] + found["count"] * _OPEN_COST_BYTES) // tasks,
        )

    def write_index(self, path: str) -> None:
        """Read all files once, and write the rows of the index as Parquet."""
        schema = from_arrow_schema(SCHEMA)
        spark = self.whole.sparkSession
        rows = self.whole.mapInArrow(_index_files, schema)
        if self.lines is not None:
            rows = rows.unionByName(self.lines.mapInArrow(_index_lines, schema))
        if self.too_large:
            reason = "a compressed file of more than 2 GB cannot be read: split it"
            rows = rows.unionByName(
                spark.createDataFrame([_problem(file, 0, reason) for file in self.too_large], schema)
            )
        with _task_sizes(spark, self.part_bytes):
            rows.write.mode("overwrite").parquet(path)


@contextmanager
def _task_sizes(spark: SparkSession, part_bytes: int, open_cost: int = _OPEN_COST_BYTES) -> Iterator[None]:
    """Let each task in the block read about this many bytes.

    :param open_cost: the cost of opening a file, in bytes.
    """
    wanted = {"spark.sql.files.maxPartitionBytes": part_bytes, "spark.sql.files.openCostInBytes": open_cost}
    before = {key: spark.conf.get(key) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, known in before.items():
            spark.conf.set(key, str(known))


def _lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    # Lines end only with "\n", so that their lengths add up to offsets. The bytes are not changed.
    text = spark.read.option("lineSep", "\n").text(list(paths))
    path = F.regexp_replace("_metadata.file_path", "^file:///", "file:/")
    return text.select(
        path.alias("path"), F.col("_metadata.file_block_start").alias("start"), F.encode("value", "utf-8")
    )


def _index_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Index whole files: a step of the job.

    :param batches: path and content of each file.
    """
    return packing.as_step(lambda files: _Index().of_files(files), SCHEMA)(batches)


def _index_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Index parts of large files: a step of the job.

    :param batches: path, offset of the part, and content of each line. Lines of one part are together and in order.
    """
    return packing.as_step(lambda lines: _Index().of_lines(lines), SCHEMA)(batches)


class _Index:
    def __init__(self) -> None:
        self._chunks = packing.ChunkPacker()
        self._links = packing.LinkPacker()

    def of_files(self, files: Iterable[packing.Row]) -> Iterator[packing.Row]:
        for path, content in files:
            offset = 0
            try:
                for offset, line in read_lines(path, io.BytesIO(content)):
                    yield from self._of_line(path, offset, line)
            except DamagedFileError as error:
                yield _problem(path, error.offset, str(error))
        yield from self._rest()

    def of_lines(self, lines: Iterable[packing.Row]) -> Iterator[packing.Row]:
        part, offset = None, 0
        for path, start, line in lines:
            if part != (path, start):
                part, offset = (path, start), start
            if line.strip():
                yield from self._of_line(path, offset, line + b"\n")
            offset += len(line) + 1
        yield from self._rest()

    def _of_line(self, path: str, offset: int, line: bytes) -> Iterator[packing.Row]:
        try:
            head, text = self._read(line)
        except (BadLineError, EventError) as error:
            torn = isinstance(error, BadLineError) and not line.endswith(b"\n")
            yield _problem(path, offset, f"cut off: its writer was killed ({error})" if torn else str(error))
            return
        yield from map(_of_chunk, self._chunks.add(head.group, ArchivedEvent(head.time_ms, path, offset, text)))
        yield from map(_of_links, self._links.add(head))

    def _read(self, line: bytes) -> tuple[EventHead, bytes]:
        """Read the head of an event, and its text as :func:`checked_text` gives it."""
        text = line.strip()
        # Looking for a single backslash first is much faster.
        if not text.isascii() or (b"\\" in text and (b"\\ud" in text or b"\\uD" in text)):
            text = checked_text(line)
        try:
            return EventHead.read(text), text
        except EventError:
            # If the line is not JSON at all, this raises with that reason, which explains more.
            checked_text(line)
            raise

    def _rest(self) -> Iterator[packing.Row]:
        yield from map(_of_chunk, self._chunks.rest())
        yield from map(_of_links, self._links.rest())


def _of_chunk(chunk: packing.Chunk) -> packing.Row:
    return (EVENTS, *chunk, None, None)


def _of_links(links: packing.PackedLinks) -> packing.Row:
    return (LINKS, None, None, None, None, None, None, links.size, links.payload, links.bucket, None)


def _problem(file: str, offset: int, reason: str) -> packing.Row:
    return (PROBLEMS, None, None, file, offset, None, None, None, None, None, reason)

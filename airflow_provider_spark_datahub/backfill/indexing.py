"""The files of an archive as DataFrames: whole, or line by line where they are large.

First step: the files of an archive as chunks of events by group, links between groups, and what is unreadable.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import (
    Column,
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 (its customary name)
)

from airflow_provider_spark_datahub.backfill.packing import (
    Chunk,
    OpenChunks,
    OpenLinks,
    PackedLinks,
    batches_of,
    rows_of,
)
from airflow_provider_spark_datahub.capture import COMPRESSED, BadLineError, DamagedFileError, checked_text, lines_of
from airflow_provider_spark_datahub.conversion import EventError
from airflow_provider_spark_datahub.conversion.archive import ArchivedEvent, EventHead, group_of, read_head
from airflow_provider_spark_datahub.gc_tuning import gc_slowed

WHOLE_FILE_BYTES = 32 * 1024 * 1024
"""A larger file is read in parts, unless it is compressed: its beginning is needed then to read the rest."""
MOST_BYTES = 2**31 - 2**20
"""A compressed file that is larger does not fit into one value of Spark's."""
_COMPRESSION = 20
"""How many times as large events may well be as their compressed file, for the sizes of tasks."""
_OPEN_COST_BYTES = 64 * 1024
_LISTING_COST_BYTES = 4 * 1024
_LISTING_TASK_BYTES = 128 * 1024 * 1024
_TASK_BYTES = 256 * 1024 * 1024
_TASK_FILES = 10_000
_TASKS_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """What an archive consists of.

    :param count: of files.
    :param size: of all of them, as they are stored, in bytes.
    :param whole: path and content of each file that is read as a whole.
    :param lines: path, offset of the part, and content of each line of the large ones; ``None`` where there are none.
    :param too_large: files that cannot be read.
    :param part_bytes: so much of them one task is to read, an opened file counted as :func:`file_parts` does: every
        core has several tasks, and none takes minutes.
    """

    count: int
    size: int
    whole: DataFrame
    lines: DataFrame | None
    too_large: tuple[str, ...]
    part_bytes: int


def find_files(spark: SparkSession, sources: Sequence[str]) -> ArchiveFiles:
    """The files below some folders, whatever their layout; names that start with a dot or an underscore are not.

    :param sources: folders, files or globs, in any file system that this Spark knows.
    """
    # binaryFile lists what there is, and opens nothing before its content is asked for.
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    files = reader.load(list(sources))
    compressed = reduce(Column.__or__, (F.col("path").endswith(suffix) for suffix in COMPRESSED))
    is_large = (F.col("length") > WHOLE_FILE_BYTES) & ~compressed
    is_too_large = (F.col("length") > MOST_BYTES) & compressed
    unpacked = F.col("length") * F.when(compressed, _COMPRESSION).otherwise(1)
    facts = files.agg(
        F.count("*").alias("count"),
        F.coalesce(F.sum("length"), F.lit(0)).alias("size"),
        F.coalesce(F.sum(unpacked), F.lit(0)).alias("unpacked"),
        F.collect_list(F.when(is_large, F.col("path"))).alias("large"),
        F.count_if((F.col("length") > WHOLE_FILE_BYTES) & compressed).alias("large_compressed"),
        F.collect_list(F.when(is_too_large, F.col("path"))).alias("too_large"),
    )
    with file_parts(spark, _LISTING_TASK_BYTES, _LISTING_COST_BYTES):
        (found,) = facts.collect()
    tasks = max(
        _TASKS_PER_CORE * spark.sparkContext.defaultParallelism,
        found["unpacked"] // _TASK_BYTES,
        found["count"] // _TASK_FILES,
    )
    # Only a condition on the length alone keeps Spark from reading the content of what it leaves out.
    whole = files.where(F.col("length") <= WHOLE_FILE_BYTES)
    if found["large_compressed"]:
        compressed_files = reader.option("pathGlobFilter", f"*{{{','.join(COMPRESSED)}}}").load(list(sources))
        whole = whole.union(compressed_files.where(F.col("length").between(WHOLE_FILE_BYTES + 1, MOST_BYTES)))
    return ArchiveFiles(
        found["count"],
        found["size"],
        whole.select("path", "content"),
        _lines(spark, found["large"]) if found["large"] else None,
        tuple(sorted(found["too_large"])),
        1 + (found["size"] + found["count"] * _OPEN_COST_BYTES) // tasks,
    )


@contextmanager
def file_parts(spark: SparkSession, part_bytes: int, open_cost: int = _OPEN_COST_BYTES) -> Iterator[None]:
    """In the block, tasks that read files are of about that size.

    :param open_cost: as so many bytes the opening of a file counts.
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
    # Only "\n" ends a line, so that the lengths of lines add up to offsets; the bytes stay as they are.
    text = spark.read.option("lineSep", "\n").text(list(paths))
    path = F.regexp_replace("_metadata.file_path", "^file:///", "file:/")
    return text.select(
        path.alias("path"), F.col("_metadata.file_block_start").alias("start"), F.encode("value", "utf-8")
    )


EVENTS, LINKS, BAD = "events", "links", "bad"
"""Kinds of rows."""
CUT_OFF = "cut off: its writer was killed"

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
"""Of events: see :class:`Chunk`; of links: see :class:`PackedLinks`; of what is unreadable: ``file``, ``offset`` and
the reason."""

_Row = tuple[Any, ...]


def index_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of whole files.

    :param batches: path and content of each file.
    """
    with gc_slowed():
        yield from batches_of(_Index().of_files(rows_of(batches)), SCHEMA)


def index_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of parts of large files.

    :param batches: path, offset of the part, and content of each line, those of one part together and in order.
    """
    with gc_slowed():
        yield from batches_of(_Index().of_lines(rows_of(batches)), SCHEMA)


class _Index:
    def __init__(self) -> None:
        self._chunks = OpenChunks()
        self._links = OpenLinks()
        self._read = event_reader()

    def of_files(self, files: Iterable[_Row]) -> Iterator[_Row]:
        for path, content in files:
            offset = 0
            try:
                for offset, line in lines_of(path, io.BytesIO(content)):
                    yield from self._of_line(path, offset, line)
            except DamagedFileError as error:
                yield bad_row(path, error.offset, error.reason)
        yield from self._rest()

    def of_lines(self, lines: Iterable[_Row]) -> Iterator[_Row]:
        part, offset = None, 0
        for path, start, line in lines:
            if part != (path, start):
                part, offset = (path, start), start
            if line.strip():
                yield from self._of_line(path, offset, line + b"\n")
            offset += len(line) + 1
        yield from self._rest()

    def _of_line(self, path: str, offset: int, line: bytes) -> Iterator[_Row]:
        try:
            head, text = self._read(line)
        except (BadLineError, EventError) as error:
            torn = isinstance(error, BadLineError) and not line.endswith(b"\n")
            yield bad_row(path, offset, f"{CUT_OFF} ({error})" if torn else str(error))
            return
        group = group_of(head)
        yield from map(_chunk, self._chunks.add(group, ArchivedEvent(head.time_ms, path, offset, text)))
        yield from map(_packed, self._links.add(head))

    def _rest(self) -> Iterator[_Row]:
        yield from map(_chunk, self._chunks.rest())
        yield from map(_packed, self._links.rest())


def event_reader() -> Callable[[bytes], tuple[EventHead, bytes]]:
    """Reads one line: the event's head, and its text as :func:`collect_text` gives it."""
    check = checked_text()

    def read(line: bytes) -> tuple[EventHead, bytes]:
        text = line.strip()
        # A backslash is found much faster than what may follow it.
        if not text.isascii() or (b"\\" in text and (b"\\ud" in text or b"\\uD" in text)):
            text = check(line)
        try:
            return read_head(text), text
        except EventError:
            # Where the line is no JSON, that is the reason.
            check(line)
            raise

    return read


def _chunk(chunk: Chunk) -> _Row:
    return (EVENTS, *chunk, None, None)


def _packed(links: PackedLinks) -> _Row:
    return (LINKS, None, None, None, None, None, None, links.size, links.payload, links.bucket, None)


def bad_row(file: str, offset: int, reason: str) -> _Row:
    """The row of something unreadable."""
    return (BAD, None, None, file, offset, None, None, None, None, None, reason)

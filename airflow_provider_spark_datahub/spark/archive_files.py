"""The files of an archive as DataFrames: whole, or line by line where they are large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (how everybody calls it)

from airflow_provider_spark_datahub.capture.archive_file import COMPRESSED

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

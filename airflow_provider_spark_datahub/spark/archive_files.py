"""The files of an archive as DataFrames: whole, or line by line where they are large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (how everybody calls it)

from airflow_provider_spark_datahub.capture.archive_file import COMPRESSED

WHOLE_FILE_BYTES = 32 * 1024 * 1024
"""A larger file is read in parts, unless it is compressed: its beginning is needed then to read the rest."""
MOST_BYTES = 2**31 - 2**20
"""A compressed file that is larger does not fit into one value of Spark's."""
_OPEN_COST_BYTES = 64 * 1024
_PART_BYTES = (1024 * 1024, 64 * 1024 * 1024)
_PARTS_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """What an archive consists of.

    :param count: of files.
    :param size: of all of them, as they are stored, in bytes.
    :param whole: path and content of each file that is read as a whole.
    :param lines: path, offset of the part, and content of each line of the large ones; ``None`` where there are none.
    :param too_large: files that cannot be read.
    """

    count: int
    size: int
    whole: DataFrame
    lines: DataFrame | None
    too_large: tuple[str, ...]


def find_files(spark: SparkSession, sources: Sequence[str]) -> ArchiveFiles:
    """The files below some folders, whatever their layout; names that start with a dot or an underscore are not.

    :param sources: folders, files or globs, in any file system that this Spark knows.
    """
    # binaryFile lists what there is, and opens nothing before its content is asked for.
    spark.conf.set("spark.sql.files.openCostInBytes", str(_OPEN_COST_BYTES))
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(list(sources))
    compressed = reduce(Column.__or__, (F.col("path").endswith(suffix) for suffix in COMPRESSED))
    is_large = (F.col("length") > WHOLE_FILE_BYTES) & ~compressed
    is_too_large = (F.col("length") > MOST_BYTES) & compressed
    (facts,) = files.agg(F.count("*"), F.coalesce(F.sum("length"), F.lit(0))).collect()
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(_part_bytes(facts[1], spark)))
    large = [row[0] for row in files.where(is_large).select("path").collect()]
    too_large = [row[0] for row in files.where(is_too_large).select("path").collect()]
    return ArchiveFiles(
        facts[0],
        facts[1],
        files.where(~is_large & ~is_too_large).select("path", "content"),
        _lines(spark, large) if large else None,
        tuple(sorted(too_large)),
    )


def _part_bytes(size: int, spark: SparkSession) -> int:
    """So much of the archive is read by one task that every core has several."""
    least, most = _PART_BYTES
    cores: int = spark.sparkContext.defaultParallelism
    return min(most, max(least, size // (_PARTS_PER_CORE * cores)))


def _lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    # Only "\n" ends a line, so that the lengths of lines add up to offsets; the bytes stay as they are.
    text = spark.read.option("lineSep", "\n").text(list(paths))
    path = F.regexp_replace("_metadata.file_path", "^file:///", "file:/")
    return text.select(
        path.alias("path"), F.col("_metadata.file_block_start").alias("start"), F.encode("value", "utf-8")
    )

"""Reads and writes nothing."""

from __future__ import annotations

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
assert spark.range(3).count() == 3
spark.stop()

"""Copies a CSV file to parquet, and notes in a file that it ran."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

source, target, runs = sys.argv[1:4]
with Path(runs).open("a") as file:
    file.write("ran\n")
spark = SparkSession.builder.getOrCreate()
spark.read.csv(source, header=True).write.mode("overwrite").parquet(target)
spark.stop()

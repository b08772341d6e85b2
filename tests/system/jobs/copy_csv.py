"""Copies a CSV file to parquet, and notes in a file that it ran. It may name its application
itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

source, target, runs, *name = sys.argv[1:]
with Path(runs).open("a") as file:
    file.write("ran\n")
builder = SparkSession.builder.appName(name[0]) if name else SparkSession.builder
spark = builder.getOrCreate()
spark.read.csv(source, header=True).write.mode("overwrite").parquet(target)
spark.stop()

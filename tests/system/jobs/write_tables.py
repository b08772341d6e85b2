"""Writes tables of lines: each argument names a table and what it is made of, as ``c=a+b``; an
argument ``fail`` ends the job with an error.
"""

from __future__ import annotations

import sys
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

folder, *steps = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
for step in steps:
    if step == "fail":
        raise SystemExit("this attempt fails")
    target, _, sources = step.partition("=")
    frames = [spark.read.text(f"{folder}/{source}") for source in sources.split("+")]
    table = reduce(DataFrame.union, frames)
    table.write.mode("overwrite").text(f"{folder}/{target}")
spark.stop()

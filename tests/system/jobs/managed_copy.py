"""Copies a CSV file to parquet as a job of a managed service, whose arguments have names, and waits
for a file.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
spark = SparkSession.builder.appName(given["--name"]).getOrCreate()
spark.read.csv(given["--source"], header=True).write.mode("overwrite").parquet(given["--target"])
while "--until" in given and not Path(given["--until"]).exists():
    time.sleep(0.1)
spark.stop()

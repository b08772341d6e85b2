"""Copies the raw orders, fails the first time, and else goes on with the example's
``build_orders``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from pyspark.sql import SparkSession

lake = Path(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True)
orders.write.mode("overwrite").parquet(f"{lake}/staged_orders")
marker = lake / "failed_once"
if not marker.exists():
    marker.touch()
    raise SystemExit("the first try fails")
import_module("build_orders").main(str(lake))

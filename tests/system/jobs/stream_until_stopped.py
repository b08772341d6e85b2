"""Copies the paid orders of a folder as a stream, a micro-batch a second, until a file asks it to
stop.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

folder, stop = sys.argv[1:3]
spark = SparkSession.builder.getOrCreate()
orders = (
    spark.readStream.schema("order_id LONG, status STRING")
    .option("header", True)
    .csv(f"{folder}/arrivals")
)
paid = orders.filter("status = 'PAID'").writeStream.queryName("paid_orders").format("parquet")
paid = paid.option("checkpointLocation", f"{folder}/checkpoint").trigger(processingTime="1 second")
query = paid.start(f"{folder}/paid")
while not Path(stop).exists() and query.isActive:
    time.sleep(0.1)
query.stop()
spark.stop()

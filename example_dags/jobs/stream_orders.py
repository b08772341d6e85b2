"""Copies the paid orders that have arrived since the last run, as a stream."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

ORDERS = "order_id LONG, customer_id LONG, amount DOUBLE, status STRING, order_date DATE"


def main(lake: str) -> None:
    """Append new files of ``arrivals`` to ``paid_orders``, both below ``lake``."""
    spark = SparkSession.builder.getOrCreate()
    arrivals = spark.readStream.schema(ORDERS).option("header", True).csv(f"{lake}/arrivals")
    paid = arrivals.filter("status = 'PAID'").writeStream.queryName("paid_orders")
    paid = paid.format("parquet").option("checkpointLocation", f"{lake}/checkpoints/paid_orders")
    paid.trigger(availableNow=True).start(f"{lake}/paid_orders").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])

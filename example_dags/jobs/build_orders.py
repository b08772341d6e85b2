"""Joins the shop's orders with its customers and writes them partitioned by country."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession, functions


def main(lake: str) -> None:
    """Build ``orders`` from the raw files below ``lake``."""
    spark = SparkSession.builder.getOrCreate()
    orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True)
    customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True, inferSchema=True)
    paid = orders.filter(orders.status == "PAID").join(customers, "customer_id")
    priced = paid.withColumn("amount_with_tax", functions.round(paid.amount * 1.19, 2))
    priced.write.mode("overwrite").partitionBy("country").parquet(f"{lake}/orders")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])

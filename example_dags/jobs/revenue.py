"""Sums the paid orders up by country and month."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession, functions


def main(lake: str) -> None:
    """Build ``revenue_by_country`` from ``orders`` below ``lake``."""
    spark = SparkSession.builder.getOrCreate()
    orders = spark.read.parquet(f"{lake}/orders")
    months = orders.withColumn("month", functions.date_format("order_date", "yyyy-MM"))
    revenue = months.groupBy("country", "month").agg(
        functions.round(functions.sum("amount_with_tax"), 2).alias("revenue"),
        functions.countDistinct("customer_id").alias("buyers"),
    )
    revenue.write.mode("overwrite").partitionBy("country").parquet(f"{lake}/revenue_by_country")
    spark.stop()


if __name__ == "__main__":
    # Glue gives arguments names, and adds its own.
    main(sys.argv[sys.argv.index("--lake") + 1] if "--lake" in sys.argv else sys.argv[1])

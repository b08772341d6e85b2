"""Makes one table of the shop from another one."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

lake, step = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
if step == "orders":
    made = spark.read.csv(f"{lake}/raw", header=True, inferSchema=True)
elif step == "revenue":
    made = (
        spark.read.parquet(f"{lake}/orders")
        .groupBy("country")
        .agg({"vat": "sum"})
        .toDF("country", "vat")
    )
elif step == "buyers":
    made = (
        spark.read.parquet(f"{lake}/orders")
        .groupBy("country")
        .agg({"buyer": "max"})
        .toDF("country", "buyer")
    )
elif step == "partners":
    made = spark.read.parquet(f"{lake}/export").select("buyer", "vat")
else:
    made = spark.read.parquet(f"{lake}/revenue").where("vat > 0")
made.coalesce(1).write.mode("overwrite").parquet(f"{lake}/{step}")
spark.stop()

"""Makes one table of the shop from another one: orders and report are of Iceberg, the others of Delta."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

lake, step = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
if step in ("revenue", "report"):
    # The catalogue of each application is its own.
    spark.sql(f"CREATE TABLE revenue (country STRING, vat BIGINT) USING delta LOCATION '{lake}/revenue'")
if step == "orders":
    made = spark.read.csv(f"{lake}/raw", header=True, inferSchema=True)
elif step == "revenue":
    made = spark.table("ice.shop.orders").groupBy("country").agg({"vat": "sum"}).toDF("country", "vat")
elif step == "buyers":
    made = spark.table("ice.shop.orders").groupBy("country").agg({"buyer": "max"}).toDF("country", "buyer")
else:
    made = spark.table("revenue").where("vat > 0")
made = made.coalesce(1)
if step in ("orders", "report"):
    made.writeTo(f"ice.shop.{step}").createOrReplace()
elif step == "revenue":
    made.write.format("delta").mode("overwrite").saveAsTable("revenue")
else:
    made.write.format("delta").mode("overwrite").save(f"{lake}/buyers")
spark.stop()

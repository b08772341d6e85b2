"""Writes and reads tables of Iceberg and Delta, and files; at the end, writes what the tables' own histories say."""

import json
import os
import sys

from pyspark.sql import SparkSession

lake = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
spark.range(3).selectExpr("id AS order_id", "id * 2 AS amount").write.mode("overwrite").parquet(f"{lake}/raw")
spark.sql("CREATE TABLE ice.shop.orders (order_id BIGINT, amount BIGINT) USING iceberg")
spark.read.parquet(f"{lake}/raw").writeTo("ice.shop.orders").append()
spark.sql("INSERT INTO ice.shop.orders VALUES (10, 20)")
first = spark.sql("SELECT snapshot_id FROM ice.shop.orders.snapshots ORDER BY committed_at").first()[0]
spark.sql("CREATE TABLE ice.shop.report (order_id BIGINT, amount BIGINT) USING iceberg")
spark.sql(f"INSERT OVERWRITE ice.shop.report SELECT * FROM ice.shop.orders VERSION AS OF {first}")
spark.table("ice.shop.orders").write.format("delta").mode("overwrite").save(f"{lake}/totals")
spark.table("ice.shop.orders").write.format("delta").mode("append").save(f"{lake}/totals")
spark.read.format("delta").option("versionAsOf", 0).load(f"{lake}/totals").write.mode("overwrite").parquet(f"{lake}/old")
spark.sql(
    f"MERGE INTO delta.`{lake}/totals` t USING ice.shop.report s ON t.order_id = s.order_id "
    "WHEN MATCHED THEN UPDATE SET t.amount = s.amount + 1 WHEN NOT MATCHED THEN INSERT *"
)
latest = spark.read.format("delta").load(f"{lake}/totals")
latest.write.mode("overwrite").partitionBy("order_id").parquet(f"{lake}/by_order")


def size(folder: str) -> int:
    files = [os.path.join(path, name) for path, _, names in os.walk(f"{lake}/{folder}") for name in names]
    return sum(os.path.getsize(file) for file in files if file.endswith(".parquet"))


truth = {f"ice/shop/{t}": [[str(r.snapshot_id), r.summary] for r in spark.table(f"ice.shop.{t}.snapshots").orderBy("committed_at").collect()] for t in ("orders", "report")}
truth["totals"] = [[str(r.version), r.operationMetrics] for r in spark.sql(f"DESCRIBE HISTORY delta.`{lake}/totals`").orderBy("version").collect()]
truth |= {folder: size(folder) for folder in ("raw", "old", "by_order")}
with open(f"{lake}/truth.json", "w") as file:
    json.dump(truth, file)

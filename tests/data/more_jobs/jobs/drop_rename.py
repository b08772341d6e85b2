"""Tables that are dropped and renamed: the swap of a new table for the old one, and staging that does not stay."""

import sys

from pyspark.sql import SparkSession

lake = sys.argv[1]
builder = SparkSession.builder
spark = (builder.enableHiveSupport() if "hive" in sys.argv else builder).getOrCreate()
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True)
customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True, inferSchema=True)

spark.sql("CREATE DATABASE IF NOT EXISTS swap")
spark.sql("DROP TABLE IF EXISTS swap.never_there")
spark.sql("CREATE TABLE swap.unrelated (a INT) USING parquet")
spark.sql("DROP TABLE swap.unrelated")

orders.write.saveAsTable("swap.orders_new")
spark.sql("DROP TABLE IF EXISTS swap.orders")
spark.sql("ALTER TABLE swap.orders_new RENAME TO swap.orders")

customers.write.saveAsTable("swap.staging")
spark.sql("CREATE TABLE swap.final USING parquet AS SELECT customer_id, upper(name) AS name FROM swap.staging")
spark.sql("DROP TABLE swap.staging")

spark.sql("ALTER TABLE swap.final RENAME TO swap.customers")
spark.table("swap.customers").join(spark.table("swap.orders"), "customer_id").select("name", "amount").write.mode(
    "overwrite"
).parquet(f"{lake}/out/swap/spending")
spark.stop()

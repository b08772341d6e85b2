"""A customer dimension of type 2 by Delta's Python API: hashes, staged rows, a merge with dicts, and facts that look it up."""

import sys

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

LAKE = sys.argv[1]
SCHEMA = "customer_id INT, name STRING, country STRING"
TRACKED = ["name", "country"]
DIMENSION = "dw.dim_customer"

def with_hash(frame: DataFrame) -> DataFrame:
    return frame.withColumn("row_hash", F.sha2(F.concat_ws("||", *TRACKED), 256))

def opened(frame: DataFrame, since: str) -> DataFrame:
    """Return rows as versions that are valid from a day on."""
    key = F.xxhash64("customer_id", F.lit(since)).alias("customer_key")
    return frame.select(
        key, "customer_id", *TRACKED, "row_hash", F.to_date(F.lit(since)).alias("valid_from"),
        F.lit(None).cast("date").alias("valid_to"), F.lit(True).alias("is_current"),
    )

def apply_changes(spark: SparkSession, incoming: DataFrame, since: str) -> None:
    target = DeltaTable.forName(spark, DIMENSION)
    current = target.toDF().where("is_current").select("customer_id", F.col("row_hash").alias("old_hash"))
    changed = incoming.join(current, "customer_id").where("row_hash <> old_hash").drop("old_hash")
    staged = changed.withColumn("merge_key", F.lit(None).cast("int")).unionByName(
        incoming.withColumn("merge_key", F.col("customer_id"))
    )
    values = {name: f"s.{name}" for name in ("customer_id", *TRACKED, "row_hash")}
    (
        target.alias("t")
        .merge(staged.alias("s"), "t.customer_id = s.merge_key AND t.is_current")
        .whenMatchedUpdate("t.row_hash <> s.row_hash", {"is_current": "false", "valid_to": f"DATE'{since}'"})
        .whenNotMatchedInsert(
            values={
                **values, "customer_key": f"xxhash64(s.customer_id, '{since}')", "valid_from": f"DATE'{since}'", "is_current": "true",
            }
        )
        .execute()
    )

spark = SparkSession.builder.appName("dim_customer").getOrCreate()
spark.sql("CREATE DATABASE IF NOT EXISTS dw")
people = with_hash(spark.read.csv(f"{LAKE}/raw/customers.csv", header=True, schema=SCHEMA))
if not spark.catalog.tableExists(DIMENSION):
    opened(people, "2026-01-01").write.format("delta").saveAsTable(DIMENSION)
apply_changes(spark, with_hash(spark.read.csv(f"{LAKE}/raw/changes.csv", header=True, schema=SCHEMA)), "2026-02-01")
orders = spark.read.csv(f"{LAKE}/raw/orders.csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE, day STRING")
versions = spark.table(DIMENSION)
valid = (orders.customer_id == versions.customer_id) & (F.to_date("day") >= versions.valid_from) & (
    versions.valid_to.isNull() | (F.to_date("day") < versions.valid_to)
)
orders.join(versions, valid, "left").select(
    "order_id", F.coalesce("customer_key", F.lit(-1)).alias("customer_key"), "amount", F.date_format(F.to_date("day"), "yyyyMMdd").alias("date_key")
).write.format("delta").mode("overwrite").saveAsTable("dw.fact_orders")
spark.table(DIMENSION).where("NOT is_current").groupBy("country").agg(F.count("customer_id").alias("closed")).write.format("delta").save(
    f"{LAKE}/out/dc/closed"
)
spark.stop()

"""Bronze, silver and gold of a shop in one application, as a team's pipeline: Delta tables, a quarantine, upserts, marts."""

import logging
import sys
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window, functions as F

log = logging.getLogger("medallion")
LAKE = sys.argv[1]

@dataclass(frozen=True)
class Source:
    name: str
    schema: str
    key: str

SOURCES = (
    Source("orders", "order_id INT, customer_id INT, amount DOUBLE, day STRING", "order_id"),
    Source("customers", "customer_id INT, name STRING, country STRING", "customer_id"),
    Source("payments", "order_id INT, method STRING", "order_id"),
)
AUDIT = ("_file", "_loaded_at")

def to_bronze(spark: SparkSession, source: Source) -> None:
    frame = spark.read.option("header", True).option("mode", "PERMISSIVE").schema(source.schema).csv(f"{LAKE}/raw/{source.name}.csv")
    frame = frame.withColumn("_file", F.col("_metadata.file_path")).withColumn("_loaded_at", F.current_timestamp())
    frame.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(f"bronze.{source.name}")
    log.info("bronze.%s has %d rows", source.name, spark.table(f"bronze.{source.name}").count())

def newest(spark: SparkSession, source: Source) -> DataFrame:
    ranked = Window.partitionBy(source.key).orderBy(F.col("_loaded_at").desc())
    rows = spark.table(f"bronze.{source.name}").withColumn("_rank", F.row_number().over(ranked))
    return rows.where("_rank = 1").drop("_rank", *AUDIT)

def upsert(spark: SparkSession, frame: DataFrame, table: str, key: str) -> None:
    DeltaTable.createIfNotExists(spark).tableName(table).addColumns(frame.schema).execute()
    target = DeltaTable.forName(spark, table).alias("t")
    target.merge(frame.alias("s"), f"t.{key} = s.{key}").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

def to_silver(spark: SparkSession) -> None:
    orders, customers, payments = (newest(spark, source) for source in SOURCES)
    problem = F.when(F.col("amount").isNull(), "no amount").when(F.col("customer_id") <= 0, "no customer")
    checked = orders.withColumn("problem", problem)
    checked.where("problem IS NOT NULL").write.format("delta").mode("overwrite").saveAsTable("silver.orders_quarantine")
    good = checked.where("problem IS NULL").drop("problem").withColumn("day", F.to_date("day"))
    upsert(spark, good.join(payments, "order_id", "left"), "silver.orders", "order_id")
    clean = customers.select("customer_id", F.initcap(F.trim("name")).alias("name"), F.upper("country").alias("country"))
    upsert(spark, clean, "silver.customers", "customer_id")

def to_gold(spark: SparkSession) -> None:
    orders, customers = spark.table("silver.orders"), spark.table("silver.customers")
    by_country = orders.join(customers, "customer_id").groupBy("country").agg(
        F.sum("amount").alias("revenue"), F.countDistinct("customer_id").alias("buyers")
    )
    by_country.write.format("delta").mode("overwrite").option("overwriteSchema", "true").saveAsTable("gold.revenue_by_country")
    spent = orders.groupBy("customer_id").agg(
        F.sum("amount").alias("spent"), F.max("day").alias("last_day"), F.first("method", ignorenulls=True).alias("method")
    )
    customers.join(F.broadcast(spent), "customer_id", "left").select(
        "customer_id", "name", F.coalesce("spent", F.lit(0.0)).alias("spent"), "last_day", "method"
    ).write.format("delta").mode("overwrite").saveAsTable("gold.customer_360")
    spark.table("gold.revenue_by_country").coalesce(1).write.mode("overwrite").option("header", True).csv(f"{LAKE}/out/md/revenue")

def main() -> None:
    spark = SparkSession.builder.appName("shop_medallion").getOrCreate()
    for layer in ("bronze", "silver", "gold"):
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {layer}")
    for source in SOURCES:
        to_bronze(spark, source)
    to_silver(spark)
    to_gold(spark)
    spark.sql("OPTIMIZE gold.customer_360 ZORDER BY (customer_id)")
    spark.stop()

if __name__ == "__main__":
    main()

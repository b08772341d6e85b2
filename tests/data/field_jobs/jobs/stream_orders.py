"""A stream of orders with foreachBatch: bad rows aside, a table, and a database, in the class that a team wrote for it."""

import sys

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.storagelevel import StorageLevel

LAKE, PORT = sys.argv[1:3]
SCHEMA = "id INT, label STRING, amount DOUBLE"

class OrderSink:
    def __init__(self, spark: SparkSession) -> None:
        self.people = spark.table("wh.people").select("customer_id", "country")
        self.database = {
            "url": f"jdbc:postgresql://127.0.0.1:{PORT}/shop", "user": "shop", "password": "s3cret", "driver": "org.postgresql.Driver"
        }

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        if batch.isEmpty():
            return
        batch = batch.dropDuplicates(["id"]).withColumn("batch", F.lit(batch_id)).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            good, bad = batch.where("amount > 0"), batch.where("amount IS NULL OR amount <= 0")
            bad.select("id", "label", "batch").write.mode("append").json(f"{LAKE}/out/so/bad")
            enriched = good.join(self.people, good.id == self.people.customer_id, "left").select("id", "label", "amount", "country", "batch")
            enriched.write.mode("append").partitionBy("batch").saveAsTable("so.orders")
            totals = enriched.groupBy("country").agg(F.sum("amount").alias("total"), F.count("id").alias("orders"))
            totals.write.format("jdbc").options(**self.database, dbtable="public.stream_totals").mode("append").save()
        finally:
            batch.unpersist()

def main() -> None:
    spark = SparkSession.builder.appName("stream_orders").enableHiveSupport().getOrCreate()
    spark.sql("CREATE DATABASE IF NOT EXISTS so")
    incoming = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{LAKE}/raw/stream")
    query = (
        incoming.withColumn("label", F.lower("label"))
        .writeStream.queryName("orders_to_sinks")
        .foreachBatch(OrderSink(spark))
        .option("checkpointLocation", f"{LAKE}/checkpoints/so")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    stored = spark.table("so.orders")
    print(stored.count(), query.lastProgress["batchId"])
    stored.groupBy("label").agg(F.max("amount").alias("best")).write.mode("overwrite").orc(f"{LAKE}/out/so/best")
    spark.stop()

if __name__ == "__main__":
    main()

"""A stream of files with foreachBatch to several sinks, one of them a table, and a stream joined with a static table."""

from pyspark.sql import DataFrame
from shop import lake, start

spark = start()
columns = "order_id INT, customer_id INT, amount DOUBLE, status STRING, order_date STRING"
incoming = spark.readStream.schema(columns).option("header", True).csv(f"{lake}/landing")
customers = spark.read.parquet(f"{lake}/raw/names")


def fan_out(batch: DataFrame, number: int) -> None:
    """The batch, cached, goes to three places."""
    batch.persist()
    batch.filter("status = 'PAID'").write.mode("append").parquet(f"{lake}/out/fan/paid")
    batch.filter("status = 'OPEN'").write.mode("append").json(f"{lake}/out/fan/open")
    batch.groupBy("customer_id").sum("amount").withColumnRenamed("sum(amount)", "total").write.mode("append").saveAsTable(
        "fan_totals"
    )
    batch.unpersist()

incoming.writeStream.queryName("fan_out").foreachBatch(fan_out).option(
    "checkpointLocation", f"{lake}/checkpoints/fan_out"
).trigger(availableNow=True).start().awaitTermination()
incoming.join(customers, "customer_id").select("order_id", "name").writeStream.queryName("named").option(
    "checkpointLocation", f"{lake}/checkpoints/named"
).trigger(availableNow=True).format("parquet").start(f"{lake}/out/fan/named").awaitTermination()
spark.read.parquet(f"{lake}/out/fan/paid").groupBy("status").count().write.mode("overwrite").csv(f"{lake}/out/fan/counts")
spark.stop()

"""Kafka as a source and a sink: in batch, as a stream from topic to topic, and as a stream with foreachBatch."""

import sys

from pyspark.sql import DataFrame
from shop import start

lake, brokers = sys.argv[1], sys.argv[2]
spark = start()
kafka = {"kafka.bootstrap.servers": brokers}

customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True)
customers.selectExpr("customer_id AS key", "to_json(struct(*)) AS value").write.format("kafka").options(
    **kafka, topic="customers"
).save()
spark.read.format("kafka").options(**kafka, subscribe="orders").load().selectExpr(
    "CAST(value AS STRING) AS text"
).write.mode("overwrite").parquet(f"{lake}/out/kafka/orders")

stream = spark.readStream.format("kafka").options(**kafka, subscribe="orders,returns", startingOffsets="earliest").load()
stream.selectExpr("key", "value").writeStream.queryName("mirror").format("kafka").options(
    **kafka, topic="all_orders", checkpointLocation=f"{lake}/checkpoints/mirror"
).trigger(availableNow=True).start().awaitTermination()


def keep(batch: DataFrame, number: int) -> None:
    """Two sinks for one batch, of which one takes a static table too."""
    batch.selectExpr("CAST(value AS STRING) AS text").write.mode("append").json(f"{lake}/out/kafka/raw_returns")
    names = spark.read.parquet(f"{lake}/raw/names")
    batch.selectExpr("CAST(key AS STRING) AS customer_id").join(names, "customer_id").write.mode("append").parquet(
        f"{lake}/out/kafka/returning"
    )

returns = spark.readStream.format("kafka").options(**kafka, subscribe="returns", startingOffsets="earliest").load()
returns.writeStream.queryName("returns").foreachBatch(keep).option(
    "checkpointLocation", f"{lake}/checkpoints/returns"
).trigger(availableNow=True).start().awaitTermination()
spark.stop()

"""Columns of streaming queries: files, tables, joins with static files, windows, foreachBatch."""
from shop import f, lake, raw, start

spark = start()
schema = "order_id INT, customer_id INT, amount DOUBLE, at TIMESTAMP"


def drain(writer, name):
    writer.queryName(name).option("checkpointLocation", f"{lake}/checkpoints/{name}").trigger(
        availableNow=True
    ).start().awaitTermination()


def files(frame, name):
    drain(frame.writeStream.format("parquet").option("path", f"{lake}/out/sc/{name}"), name)

events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{lake}/stream/orders")
files(events.selectExpr("order_id", "amount * 2 AS doubled"), "plain")
people = raw("customers")
files(events.join(people, "customer_id").select("order_id", f.upper("name").alias("name")), "joined")
windowed = events.withWatermark("at", "1 second").groupBy(f.window("at", "1 minute"), "customer_id").agg(f.sum("amount").alias("revenue"))
files(windowed.select("customer_id", "revenue"), "windowed")


def upsert(frame, number):
    frame.selectExpr("order_id", "amount + 1 AS more").write.mode("append").parquet(f"{lake}/out/sc/batches")
    frame.join(people, "customer_id").select("name", "amount").write.mode("append").json(f"{lake}/out/sc/batches_named")

drain(events.filter("amount > 0").writeStream.foreachBatch(upsert), "batches")
# A table as the sink of one query and the source of the next.
drain_table = events.select("order_id", "amount").writeStream.queryName("to_table").format("parquet")
drain_table.option("checkpointLocation", f"{lake}/checkpoints/to_table").trigger(availableNow=True).toTable("taken").awaitTermination()
# Two streams into one.
clicks = spark.readStream.schema("order_id INT, page STRING").json(f"{lake}/stream/clicks")
files(events.select("order_id").union(clicks.select("order_id")), "union")
spark.stop()

"""Streaming queries that run once: files to files, files to a table, files through foreachBatch."""
from shop import lake, start

spark = start()
schema = "order_id INT, customer_id INT, amount DOUBLE"


def drain(writer, name):
    writer.option("checkpointLocation", f"{lake}/checkpoints/{name}").trigger(availableNow=True).start().awaitTermination()

events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{lake}/stream/orders")
drain(events.select("order_id", "amount").writeStream.format("parquet").option("path", f"{lake}/out/st/files"), "files")


def upsert(frame, number):
    frame.selectExpr("order_id", "amount * 2 AS doubled").write.mode("append").parquet(f"{lake}/out/st/batches")

drain(events.writeStream.foreachBatch(upsert), "batches")
people = spark.read.csv(f"{lake}/raw/customers.csv", header=True, schema="customer_id INT, name STRING")
clicks = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).csv(f"{lake}/stream/clicks")
joined = clicks.join(people, "customer_id").select("order_id", "name")
drain(joined.writeStream.foreachBatch(lambda frame, number: frame.write.mode("append").json(f"{lake}/out/st/joined")), "joined")
# A batch read of one of the files beside them.
spark.read.schema(schema).json(f"{lake}/stream/orders/a.json").select("order_id").write.mode("overwrite").parquet(
    f"{lake}/out/st/one_file"
)
spark.stop()

"""Bronze, silver, gold: streams into Delta, MERGE in foreachBatch, a stream of a table's changes, a stream with a table."""
from shop import f, lake, raw, start

spark = start()
sql = spark.sql
sql("CREATE DATABASE IF NOT EXISTS ds")
sql("CREATE TABLE ds.silver (order_id INT, amount DOUBLE, source STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
people = raw("customers")
people.write.format("delta").saveAsTable("ds.people")


def drain(writer, name):
    return writer.queryName(name).option("checkpointLocation", f"{lake}/checkpoints/ds_{name}").trigger(availableNow=True)

incoming = spark.readStream.schema("order_id INT, customer_id INT, amount DOUBLE, at TIMESTAMP").json(f"{lake}/stream/orders")
drain(incoming.writeStream.format("delta"), "bronze").start(f"{lake}/out/ds/bronze").awaitTermination()


def merge(batch, number):
    batch.createOrReplaceTempView("updates")
    batch.sparkSession.sql("""MERGE INTO ds.silver t
USING (SELECT order_id, max(amount) AS best FROM updates GROUP BY order_id) s ON t.order_id = s.order_id
WHEN MATCHED THEN UPDATE SET amount = s.best
WHEN NOT MATCHED THEN INSERT (order_id, amount, source) VALUES (s.order_id, s.best, 'stream')""")

bronze = spark.readStream.format("delta").load(f"{lake}/out/ds/bronze")
drain(bronze.writeStream.foreachBatch(merge), "silver").start().awaitTermination()
changes = spark.readStream.format("delta").option("readChangeFeed", True).option("startingVersion", 0).table("ds.silver")
drain(changes.where("_change_type <> 'delete'").selectExpr("order_id AS id", "amount", "_change_type AS kind").writeStream.format("delta"), "gold").toTable(
    "ds.gold"
).awaitTermination()
named = bronze.dropDuplicates(["order_id"]).join(spark.table("ds.people"), "customer_id").select("order_id", f.upper("name").alias("name"))
drain(named.writeStream.format("parquet").option("path", f"{lake}/out/ds/named"), "named").start().awaitTermination()
spark.table("ds.gold").groupBy("kind").agg(f.sum("amount").alias("total")).write.parquet(f"{lake}/out/ds/totals")
spark.stop()

"""Streams: foreachBatch with two sinks and a cached batch, a table by toTable, a lookup table, a sink in memory."""
from shop import f, lake, start

spark = start(hive=True)
spark.sql("CREATE DATABASE IF NOT EXISTS ss")
source = spark.readStream.schema("id INT, label STRING, amount DOUBLE").option("maxFilesPerTrigger", 1).json(f"{lake}/raw/stream")

def both(batch, number):
    batch = batch.cache()
    batch.select("id", "amount").write.mode("append").parquet(f"{lake}/out/ss/amounts")
    good = batch.join(spark.table("wh.people"), f.col("id") == f.col("customer_id")).select("label", "name")
    good.write.mode("append").saveAsTable("ss.labels")
    batch.unpersist()

def run(writer, name):
    writer.option("checkpointLocation", f"{lake}/checkpoints/{name}").trigger(availableNow=True)
    return writer

run(source.writeStream.foreachBatch(both), "both").start().awaitTermination()
run(source.selectExpr("id", "upper(label) AS loud").writeStream.format("parquet"), "table").toTable("ss.loud").awaitTermination()
run(source.groupBy("label").agg(f.sum("amount").alias("total")).writeStream.outputMode("complete").format("memory").queryName("seen"), "memory").start().awaitTermination()
spark.table("seen").write.parquet(f"{lake}/out/ss/seen")
run(source.select(f.col("amount").alias("text").cast("string").alias("value")).writeStream.format("csv").option("path", f"{lake}/out/ss/csv"), "csv").start().awaitTermination()
spark.stop()

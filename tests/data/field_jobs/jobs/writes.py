"""How many files, where, and whether at all: coalesce and repartition, partitions of the writer, codecs, writeTo, noop, an error at the end that is caught."""
from shop import f, lake, start

spark = start(hive=True)
sales, people = spark.table("wh.sales"), spark.table("wh.people")
spark.sql("CREATE DATABASE IF NOT EXISTS wt")
joined = sales.join(people, "customer_id")
joined.coalesce(1).write.mode("overwrite").option("header", True).option("compression", "none").csv(f"{lake}/out/wt/report")
joined.repartition("day").write.partitionBy("day", "country").option("maxRecordsPerFile", 2).option("compression", "zstd").parquet(f"{lake}/out/wt/parts")
joined.repartition(2, f.col("country")).sortWithinPartitions("amount").write.format("orc").save(f"{lake}/out/wt/sorted")
spark.read.parquet(f"{lake}/out/wt/parts").where("day = '2026-01-01' AND country = 'DE'").select("order_id", "country").write.save(f"{lake}/out/wt/one_part", format="json")
# One day again, without the others.
sales.where("day = '2026-01-02'").join(people, "customer_id").withColumn("amount", f.col("amount") + 1).write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("day", "country").parquet(f"{lake}/out/wt/parts")
# Nothing is written: a run to warm up, and one to measure.
joined.write.format("noop").mode("overwrite").save()
spark.read.json(f"{lake}/raw/clicks.jsonl").write.format("noop").mode("overwrite").save()
people.writeTo("wt.people").using("parquet").partitionedBy("country").create()
sales.select("order_id", f.col("amount").alias("paid")).write.saveAsTable("wt.sales", format="orc", mode="overwrite", compression="snappy")
spark.table("wt.sales").write.mode("overwrite").saveAsTable("wt.copy")
try:
    sales.select(f.assert_true(f.col("amount") < 0, "too large").alias("x"), "order_id").write.mode("overwrite").parquet(f"{lake}/out/wt/failed")
except Exception as error:
    print("FAILED", str(error).splitlines()[0])
sales.groupBy("day").agg(f.sum("amount").alias("total")).toPandas().to_csv(f"{lake}/out/wt/local.csv")
spark.range(5).selectExpr("cast(id AS STRING) AS value").write.mode("overwrite").text(f"{lake}/out/wt/numbers")
spark.stop()

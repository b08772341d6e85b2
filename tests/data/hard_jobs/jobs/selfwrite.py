"""Tables that are made of themselves: partitions overwritten dynamically, swapped by renames, by way of a checkpoint."""
from shop import f, lake, raw, start

spark = start(hive=True)
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
spark.sql("INSERT OVERWRITE sw.sales PARTITION (day) SELECT order_id, customer_id, amount * 1.1 AS amount, day FROM sw.sales WHERE day = 'mo'")
# A table of Hive's format gets its own rows again.
spark.sql("INSERT INTO TABLE sw.hive_t SELECT customer_id, upper(name) FROM sw.hive_t")
# Beside, dropped, renamed.
changes = raw("changes")
current = spark.table("sw.customers")
current.join(changes, "customer_id", "anti").unionByName(changes).write.mode("overwrite").saveAsTable("sw.customers_next")
spark.sql("DROP TABLE sw.customers")
spark.sql("ALTER TABLE sw.customers_next RENAME TO sw.customers")
# A folder that is read can be overwritten by way of a checkpoint.
state = spark.read.parquet(f"{lake}/data/state")
state.withColumn("label", f.lower("label")).localCheckpoint().write.mode("overwrite").parquet(f"{lake}/data/state")
# Compaction: beside, and back.
spark.read.parquet(f"{lake}/data/compact").coalesce(1).write.mode("overwrite").parquet(f"{lake}/data/compact_tmp")
spark.read.parquet(f"{lake}/data/compact_tmp").write.mode("overwrite").parquet(f"{lake}/data/compact")
# Without a checkpoint Spark removes what it is about to read, and fails.
try:
    spark.read.parquet(f"{lake}/data/lost").write.mode("overwrite").parquet(f"{lake}/data/lost")
except Exception as error:
    print("FAILED", str(error).splitlines()[0])
spark.stop()

"""Tables of more columns than Spark shows in its plans by default, and lists of more paths."""
from shop import f, lake, raw, start

spark = start(hive=True)
names = [f"c{number}" for number in range(60)]
spark.range(3).select(*(f.col("id").alias(name) for name in names)).write.parquet(f"{lake}/out/wi/made")
made = spark.read.parquet(f"{lake}/out/wi/made")
customers = raw("customers")
made.join(customers, made.c0 == customers.customer_id).select(
    *(f.col(name) for name in names[:40]), (f.col("c40") + f.col("c41")).alias("total"), "name"
).write.parquet(f"{lake}/out/wi/joined")
spark.sql("CREATE DATABASE IF NOT EXISTS wi")
made.createOrReplaceTempView("made")
spark.sql("CREATE TABLE wi.grouped USING parquet AS SELECT c59, " + ", ".join(f"max({name}) AS {name}" for name in names[:50]) + " FROM made GROUP BY c59")
folders = [f"{lake}/in/a_folder_with_a_long_name_{number}" for number in range(4)]
for folder in folders:
    customers.write.json(folder)
spark.read.json(folders).select("name").write.parquet(f"{lake}/out/wi/listed")
spark.stop()

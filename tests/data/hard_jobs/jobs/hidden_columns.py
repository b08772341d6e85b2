"""Columns that no file has: its path, its size, numbers and names that Spark makes; rows in another order; binary files and lines."""
from shop import f, lake, start

spark = start(hive=True)
sql = spark.sql
orders = spark.read.csv(f"{lake}/in/parts", header=True, schema="order_id INT, customer_id INT, amount DOUBLE, day STRING")
people = spark.table("wh.people")
sql("CREATE DATABASE IF NOT EXISTS hc")


def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/hc/{name}")

save(orders.select("order_id", "_metadata.file_path", f.col("_metadata.file_size").alias("size")), "placed")
save(orders.withColumn("source", f.input_file_name()).select("source", "amount"), "named")
save(orders.select(f.monotonically_increasing_id().alias("number"), f.expr("uuid()").alias("key"), f.rand(1).alias("luck"), f.current_date().alias("today"), "day"), "numbered")
save(spark.read.text(f"{lake}/raw/lines").select(f.split("value", " ")[0].alias("first")), "words")
save(spark.read.format("binaryFile").load(f"{lake}/raw/pictures").select("path", "length", f.md5("content").alias("digest")), "digests")
save(people.sample(0.9, seed=1).orderBy("name").limit(9).repartition(2, "country").sortWithinPartitions("name").hint("rebalance").select("name", "country"), "shuffled")
sql("SELECT customer_id, name FROM wh.people DISTRIBUTE BY country SORT BY name").write.orc(f"{lake}/out/hc/spread")
sql("SELECT amount, day FROM wh.sales CLUSTER BY day").write.orc(f"{lake}/out/hc/clustered")
# Written over, and then added to, by name.
people.write.mode("overwrite").saveAsTable("hc.twice")
spark.table("wh.sales").selectExpr("day AS country", "customer_id", "day AS name").write.mode("append").saveAsTable("hc.twice")
# A table made of itself, by way of a table that is dropped.
sql("CREATE TABLE hc.tmp USING parquet AS SELECT * FROM hc.twice")
sql("INSERT OVERWRITE hc.twice SELECT customer_id, upper(name), country FROM hc.tmp")
sql("DROP TABLE hc.tmp")
# One name for each step.
spark.table("wh.sales").createOrReplaceTempView("step")
sql("SELECT order_id, amount * 2 AS amount, day FROM step").createOrReplaceTempView("step")
sql("SELECT day, sum(amount) AS total FROM step GROUP BY day").createOrReplaceTempView("step")
save(sql("SELECT day AS label, total FROM step"), "steps")
# Values that stand for names.
save(sql("SELECT name AS person FROM wh.people WHERE country = ? AND customer_id > ?", args=["DE", 0]), "positional")
save(people.observe("seen", f.count(f.lit(1)).alias("rows"), f.max("customer_id").alias("most")).select(f.col("country").alias("land")), "observed")
spark.stop()

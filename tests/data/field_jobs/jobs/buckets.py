"""Bucketed and sorted tables: declared, saved, inserted into, joined without a shuffle, sampled by bucket; a table at a path that grows."""
from shop import f, lake, start

spark = start(hive=True)
sql = spark.sql
sales, people = spark.table("wh.sales"), spark.table("wh.people")
sql("CREATE DATABASE IF NOT EXISTS bk")
sql("CREATE TABLE bk.sales (order_id INT, customer_id INT, amount DOUBLE) USING parquet CLUSTERED BY (customer_id) SORTED BY (order_id) INTO 2 BUCKETS")
sql("INSERT INTO bk.sales SELECT order_id, customer_id, amount FROM wh.sales")
people.write.bucketBy(2, "customer_id").sortBy("customer_id").mode("overwrite").saveAsTable("bk.people")
sql("CREATE TABLE bk.joined USING parquet CLUSTERED BY (country) INTO 2 BUCKETS AS SELECT s.order_id, p.country, s.amount FROM bk.sales s JOIN bk.people p ON s.customer_id = p.customer_id")
sql("CREATE TABLE bk.sampled USING parquet AS SELECT customer_id, name FROM bk.people TABLESAMPLE (BUCKET 1 OUT OF 2)")
sql("CREATE TABLE bk.days (total DOUBLE, day STRING) USING orc PARTITIONED BY (day) CLUSTERED BY (total) INTO 2 BUCKETS")
sql("INSERT OVERWRITE bk.days PARTITION (day) SELECT sum(amount) AS total, day FROM wh.sales GROUP BY day")
# A table at a path of its own gets more rows, in another order of columns.
sales.select("order_id", "day").write.option("path", f"{lake}/out/bk/grown").saveAsTable("bk.grown")
people.select(f.upper("name").alias("day"), f.col("customer_id").alias("order_id")).write.mode("append").saveAsTable("bk.grown")
spark.table("bk.grown").groupBy("day").agg(f.countDistinct("order_id").alias("orders")).write.json(f"{lake}/out/bk/orders")
spark.table("bk.joined").repartition(2, "country").sortWithinPartitions("amount").write.bucketBy(2, "country").sortBy("country").format("parquet").saveAsTable("bk.again")
spark.stop()

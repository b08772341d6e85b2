"""What people add to be fast: hints in SQL and of frames, caches with a count, tables that are cached by a statement, partitions."""
from shop import f, lake, start

spark = start(hive=True)
sql = spark.sql
sales, people = spark.table("wh.sales"), spark.table("wh.people")
sql("CREATE DATABASE IF NOT EXISTS hi")
spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/hi/{name}")

sql("CREATE TABLE hi.broadcast USING parquet AS SELECT /*+ BROADCAST(p), REPARTITION(2) */ s.order_id, p.name FROM wh.sales s JOIN wh.people p ON s.customer_id = p.customer_id")
save(sql("SELECT /*+ MERGE(p) */ p.country, sum(s.amount) AS total FROM wh.sales s JOIN wh.people p USING (customer_id) GROUP BY p.country"), "merged")
save(sales.hint("shuffle_hash").join(people, "customer_id", "right").select("day", "name"), "hashed")
save(f.broadcast(people).join(sales, people.customer_id > sales.customer_id).select(people.name, sales.amount), "nested_loop")
save(sql("SELECT /*+ SHUFFLE_REPLICATE_NL(p) */ s.day, p.country FROM wh.sales s, wh.people p"), "product")
# Kept, counted, and used three times; the join has the columns of both sides.
base = sales.join(f.broadcast(people), ["customer_id"], "left").withColumn("tax", f.round(f.col("amount") * 0.2, 2)).persist()
print(base.count(), base.rdd.getNumPartitions())
save(base.groupBy("name").agg(f.sum("tax").alias("tax")), "taxes")
save(base.where("country = 'DE'").select("order_id", "tax"), "german")
base.select("day", "amount", "country").coalesce(1).write.partitionBy("country").saveAsTable("hi.by_country")
base.unpersist(blocking=True)
sql("CACHE TABLE spent OPTIONS ('storageLevel' 'MEMORY_ONLY') AS SELECT customer_id, sum(amount) AS spent FROM wh.sales GROUP BY customer_id")
save(sql("SELECT p.name, s.spent FROM spent s JOIN wh.people p USING (customer_id)"), "spent")
sql("CREATE TABLE hi.spent USING parquet AS SELECT /*+ REBALANCE */ max(spent) AS most FROM spent")
sql("UNCACHE TABLE spent")
# A cache of a frame serves another frame that holds the same plan.
sales.where("amount > 5").cache().count()
save(spark.table("wh.sales").where("amount > 5").groupBy("day").agg(f.min("order_id").alias("first")), "firsts")
save(sales.repartitionByRange(2, "day").select("day", f.spark_partition_id().alias("part")), "ranges")
spark.catalog.clearCache()
spark.stop()

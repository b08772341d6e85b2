"""One frame kept in memory for several actions: counts, writes, joins with itself; tables kept, kept again after a change."""

from pyspark import StorageLevel
from shop import f, lake, start

spark = start(hive=True)
sql = spark.sql
sql("CREATE DATABASE IF NOT EXISTS ca")


def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/ca/{name}")

base = spark.table("wh.sales").join(spark.table("wh.people"), "customer_id").withColumn("net", f.col("amount") * 0.8).cache()
base.count()
save(base.groupBy("country").agg(f.sum("net").alias("net")), "by_country")
base.select("order_id", "net", "name").write.saveAsTable("ca.orders")
base.where("net > 1").select(f.upper("name").alias("who"), "day").write.json(f"{lake}/out/ca/big")
print({row.country: row["count"] for row in base.groupBy("country").count().collect()})
# Kept on top of what is kept, which is then given free.
narrow = base.select("customer_id", "net").persist(StorageLevel.DISK_ONLY)
save(narrow.groupBy("customer_id").agg(f.avg("net").alias("mean")), "mean")
base.unpersist()
save(narrow.join(spark.table("wh.people").select("customer_id", "country"), "customer_id").groupBy("country").agg(f.max("net").alias("top")), "top")
save(narrow.alias("a").join(narrow.alias("b"), f.expr("a.customer_id = b.customer_id")).selectExpr("a.net AS mine", "b.net - a.net AS gap"), "gaps")
# A table that is kept, is changed, and is read again.
sql("CACHE TABLE wh.people")
save(sql("SELECT upper(country) AS land FROM wh.people"), "lands")
sql("INSERT INTO ca.orders SELECT customer_id, 1.0D, country FROM wh.people")
sql("UNCACHE TABLE wh.people")
spark.catalog.cacheTable("ca.orders")
sql("SELECT name, max(net) AS best FROM ca.orders GROUP BY name").write.mode("overwrite").saveAsTable("ca.best")
# Two frames with the same plan are kept once.
again = spark.table("wh.sales").select("day", "amount")
again.cache().count()
save(spark.table("wh.sales").select("day", "amount").groupBy("day").agg(f.min("amount").alias("low")), "lows")
first, second = again.randomSplit([0.5, 0.5], seed=7)
save(first.selectExpr("day AS first_day"), "first")
save(second.union(first).selectExpr("amount AS shuffled"), "shuffled")
spark.stop()

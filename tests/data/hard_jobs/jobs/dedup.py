"""The latest row of each key, in the ways that people write it; changes found by a hash; an upsert without MERGE."""

from pyspark.sql import Window
from shop import f, lake, raw, start

spark = start(hive=True)
sql = spark.sql
sales, people = spark.table("wh.sales"), spark.table("wh.people")
changes = raw("changes")
changes.createOrReplaceTempView("changes")
sql("CREATE DATABASE IF NOT EXISTS dd")


def save(frame, name):
    frame.write.parquet(f"{lake}/out/dd/{name}")

newest = Window.partitionBy("order_id").orderBy(f.col("day").desc())
save(sales.withColumn("rn", f.row_number().over(newest)).where("rn = 1").drop("rn"), "latest")
sql("CREATE TABLE dd.top USING parquet AS SELECT order_id, amount, rn FROM (SELECT *, row_number() OVER (PARTITION BY customer_id ORDER BY amount DESC) AS rn FROM wh.sales) WHERE rn <= 3")
save(sales.dropDuplicates(["customer_id"]).select("customer_id", "day"), "first_seen")
save(sales.groupBy("customer_id").agg(f.max_by("amount", "day").alias("last_amount"), f.first("order_id").alias("any_order")), "last")
sql("CREATE TABLE dd.best USING parquet AS SELECT s.order_id, s.amount FROM wh.sales s JOIN (SELECT customer_id, max(amount) AS top FROM wh.sales GROUP BY customer_id) m ON s.customer_id = m.customer_id AND s.amount = m.top")
save(sales.groupBy("order_id").agg(f.max(f.struct("day", "amount", "customer_id")).alias("r")).select("order_id", "r.*"), "packed")
# An upsert without MERGE: what is not in the changes, and the changes.
save(people.join(changes, "customer_id", "left_anti").unionByName(changes), "upsert")
save(people.alias("o").join(changes.alias("n"), "customer_id", "full").selectExpr("customer_id", "coalesce(n.name, o.name) AS name", "nvl2(n.country, n.country, o.country) AS country"), "merged")
# What has changed, by a hash of its columns.
sql("""CREATE TABLE dd.changed USING parquet AS
WITH n AS (SELECT customer_id, sha2(concat_ws('|', name, country), 256) AS digest FROM changes),
     o AS (SELECT customer_id, sha2(concat_ws('|', name, country), 256) AS digest FROM wh.people)
SELECT n.customer_id, n.digest, o.digest AS old_digest FROM n LEFT JOIN o ON n.customer_id = o.customer_id WHERE o.digest IS NULL OR n.digest <> o.digest""")
# Keys that come more than once go to a place of their own.
twice = people.unionByName(changes).groupBy("customer_id").count().where("count > 1")
save(people.join(twice.select("customer_id"), "customer_id", "left_semi"), "rejected")
save(people.join(f.broadcast(twice), "customer_id").select("name", f.col("count").alias("times")), "counted")
save(sales.withColumn("gap", f.col("amount") - f.lag("amount").over(Window.partitionBy("customer_id").orderBy("day"))).where("gap <> 0 OR gap IS NULL").select("order_id", "gap"), "gaps")
spark.stop()

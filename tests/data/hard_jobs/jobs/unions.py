"""Unions by name with missing columns, by position, in a loop; structs with missing fields; a pivot that is joined."""
from functools import reduce

from pyspark.sql import DataFrame
from shop import f, lake, raw, start

spark = start(hive=True)
sales, people = spark.table("wh.sales"), spark.table("wh.people")
changes = raw("changes")
spark.sql("CREATE DATABASE IF NOT EXISTS un")


def save(frame, name):
    frame.write.parquet(f"{lake}/out/un/{name}")

save(sales.select("order_id", "amount").unionByName(people.selectExpr("customer_id AS order_id", "country"), allowMissingColumns=True), "two")
parts = [people, changes.withColumnRenamed("name", "full_name"), sales.select("customer_id", "day")]
reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts).write.saveAsTable("un.everyone")
save(people.select("name", "country").union(changes.select("country", "name")), "by_position")
save(people.select(f.struct("name", "country").alias("p")).unionByName(changes.select(f.struct("name").alias("p")), allowMissingColumns=True), "structs")
# Where a row comes from, as a column; then counted and joined back.
tagged = reduce(DataFrame.unionByName, [frame.withColumn("origin", f.lit(name)) for name, frame in (("p", people), ("c", changes))])
save(tagged.groupBy("origin", "country").agg(f.countDistinct("name").alias("names")), "tagged")
save(tagged.where("origin = 'c'").select("name"), "only_changes")
# The same folder by several frames.
for name, frame in (("sales", sales.selectExpr("order_id AS id", "day AS text")), ("people", people.selectExpr("customer_id AS id", "name AS text", "country"))):
    frame.write.mode("append").parquet(f"{lake}/out/un/appended")
save(spark.read.option("mergeSchema", "true").parquet(f"{lake}/out/un/appended").select("country", "text"), "read_back")
# A pivot, joined and computed with.
wide = sales.groupBy("customer_id").pivot("day", ["mo", "tu"]).agg(f.sum("amount").alias("s"), f.count("order_id").alias("n"))
save(wide.join(people, "customer_id").selectExpr("name", "mo_s", "tu_n", "mo_s / tu_s AS ratio"), "pivot_joined")
spark.sql("SELECT * FROM (SELECT p.country, s.day, s.amount FROM wh.sales s JOIN wh.people p USING (customer_id)) PIVOT (max(amount) FOR day IN ('mo' AS monday, 'tu' AS tuesday))").write.saveAsTable("un.by_country")
flat = spark.table("un.by_country").unpivot("country", ["monday", "tuesday"], "day", "top")
save(flat.groupBy("day").agg(f.max("top").alias("top"), f.first("country").alias("a_country")), "flat_again")
# Columns that are all computed alike.
save(people.select(*[f.trim(f.col(c)).alias(f"{c}_clean") for c in ("name", "country")], f.coalesce(*[f.col(c) for c in ("country", "name")]).alias("any")), "clean")
save(reduce(lambda a, c: a.withColumn(c, f.coalesce(f.col(c), f.lit("?"))), ["name", "country"], people.join(changes.select("customer_id", f.col("name").alias("new_name")), "customer_id", "left")), "filled")
spark.stop()

"""Groups of groups: GROUPING SETS, ROLLUP and CUBE over common queries, filters of aggregates, distinct ones, texts, sketches, HAVING."""
from shop import f, lake, start

spark = start(hive=True)
sql = spark.sql
sales, people = spark.table("wh.sales"), spark.table("wh.people")
sql("CREATE DATABASE IF NOT EXISTS gr")

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/gr/{name}")

sql("""CREATE TABLE gr.sets USING parquet AS
WITH j AS (SELECT p.country, s.day, s.amount, s.order_id FROM wh.sales s JOIN wh.people p USING (customer_id))
SELECT country, day, sum(amount) AS total, count(DISTINCT order_id) AS orders, grouping(country) AS all_lands
FROM j GROUP BY GROUPING SETS ((country, day), (country), ()) HAVING sum(amount) > 0""")
sql("CREATE TABLE gr.cube USING parquet AS SELECT upper(country) AS land, name, max(customer_id) AS id FROM wh.people GROUP BY CUBE (upper(country), name)")
sql("SELECT coalesce(country, 'all') AS country, sum(total) AS total FROM gr.sets GROUP BY country WITH ROLLUP").write.mode("overwrite").orc(f"{lake}/out/gr/rolled_sets")
save(sales.rollup("day", "customer_id").agg(f.avg("amount").alias("mean"), f.grouping_id().alias("level")).where("level < 3").drop("level"), "rollup")
save(sales.groupBy().agg(f.sum("amount").alias("all"), f.expr("sum(amount) FILTER (WHERE day > '2026-01-02')").alias("late"), f.sum_distinct("customer_id").alias("ids")), "whole")
save(sales.groupBy("day").agg(f.count_if(f.col("amount") > 5).alias("large"), f.approx_count_distinct("customer_id").alias("about"), f.percentile_approx("amount", [0.1, 0.9]).alias("range"), f.corr("amount", "order_id").alias("corr")), "statistics")
save(people.groupBy("country").agg(f.array_join(f.array_sort(f.collect_set("name")), ";").alias("names"), f.min_by("name", "customer_id").alias("oldest"), f.bool_or(f.col("name").isNull()).alias("unnamed")), "texts")
# A total beside its parts; a group of a group; the most frequent one.
sql("CREATE TABLE gr.parts USING parquet AS SELECT d.day, d.total, d.total / t.total AS share FROM (SELECT day, sum(amount) AS total FROM wh.sales GROUP BY ALL) d CROSS JOIN (SELECT sum(amount) AS total FROM wh.sales) t")
save(sales.groupBy("customer_id", "day").agg(f.sum("amount").alias("a")).groupBy("customer_id").agg(f.max("a").alias("best_day"), f.mode("day").alias("usual")), "twice")
save(people.join(sales, "customer_id").groupBy(f.substring("name", 1, 1).alias("letter"), (f.col("amount") > 5).alias("large")).agg(f.countDistinct("order_id").alias("orders")), "computed_keys")
save(sql("SELECT day, listagg(name, ',') WITHIN GROUP (ORDER BY name) AS names, any_value(country) AS land FROM wh.sales JOIN wh.people USING (customer_id) GROUP BY 1"), "listed")
sql("CREATE TABLE gr.sketches USING parquet AS SELECT day, hll_sketch_agg(customer_id) AS sketch FROM wh.sales GROUP BY day")
save(sql("SELECT hll_sketch_estimate(hll_union_agg(sketch)) AS buyers FROM gr.sketches"), "buyers")
spark.stop()

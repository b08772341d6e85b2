"""Lists made by groups, changed by functions of their elements, exploded and put together again; lines of JSON."""
from shop import f, lake, start

spark = start(hive=True)
sql = spark.sql
spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
sql("CREATE DATABASE IF NOT EXISTS ar")
sql("CREATE TABLE ar.baskets USING parquet AS SELECT customer_id, collect_list(amount) AS amounts, collect_set(day) AS days FROM wh.sales GROUP BY customer_id")
sql("CREATE TABLE ar.changed USING parquet AS SELECT customer_id AS id, transform(amounts, x -> x + customer_id) AS shifted, filter(amounts, (x, i) -> i > 0) AS tail, aggregate(amounts, 0D, (acc, x) -> acc + x) AS total, exists(days, d -> d = 'mo') AS on_monday, zip_with(amounts, sequence(1, size(amounts)), (a, i) -> a * i) AS weighted FROM ar.baskets")
sql("SELECT map_from_entries(transform(amounts, (x, i) -> struct(i, x))) AS by_place, array_sort(days, (l, r) -> CASE WHEN l < r THEN 1 WHEN l > r THEN -1 ELSE 0 END) AS sorted, slice(amounts, 1, 2) AS top, array_join(days, ',') AS text, element_at(amounts, 1) AS first, flatten(array(days, array('x'))) AS more FROM ar.baskets").write.parquet(f"{lake}/out/ar/shapes")
sql("CREATE TABLE ar.again USING parquet AS SELECT d.day AS day, sum(a.x) AS total, count(DISTINCT b.customer_id) AS who FROM ar.baskets b LATERAL VIEW explode(b.days) d AS day LATERAL VIEW OUTER posexplode(b.amounts) a AS pos, x GROUP BY d.day")
exploded = spark.table("ar.baskets").withColumn("amount", f.explode("amounts")).withColumn("day", f.explode_outer("days"))
exploded.groupBy("customer_id").agg(f.collect_list(f.struct("day", f.round("amount").alias("paid"))).alias("lines")).write.saveAsTable("ar.nested")
sql("SELECT customer_id, line.day AS day, line.paid AS paid FROM ar.nested LATERAL VIEW explode(lines) t AS line").write.parquet(f"{lake}/out/ar/lines")
sql("SELECT customer_id, transform(lines, l -> l.paid) AS paid, map_from_entries(lines) AS by_day FROM ar.nested").write.parquet(f"{lake}/out/ar/of_nested")
# Lines of JSON as text, and as columns.
parsed = spark.read.text(f"{lake}/raw/clicks.jsonl").select(f.from_json("value", "user STRING, items ARRAY<STRUCT<sku: STRING, qty: INT>>").alias("j"))
items = parsed.select("j.user", f.explode("j.items").alias("item")).select("user", "item.sku", "item.qty")
items.groupBy("sku").agg(f.sum("qty").alias("qty"), f.collect_set("user").alias("users")).write.parquet(f"{lake}/out/ar/skus")
clicks = spark.read.schema("user STRING, at STRING, items ARRAY<STRUCT<sku: STRING, qty: INT>>").json(f"{lake}/raw/clicks.jsonl")
clicks.selectExpr("user", "inline_outer(items)").write.parquet(f"{lake}/out/ar/inlined")
clicks.select("user", f.transform("items", lambda i: f.struct(i.sku.alias("sku"), (i.qty * 2).alias("double"))).alias("items"), f.aggregate("items", f.lit(0), lambda acc, i: acc + i.qty).alias("qty")).write.json(f"{lake}/out/ar/doubled")
clicks.select(f.explode(f.split("at", "-")).alias("piece")).groupBy("piece").count().write.parquet(f"{lake}/out/ar/pieces")
clicks.groupBy("user").agg(f.flatten(f.collect_list("items")).alias("items")).selectExpr("user", "map_filter(map_from_entries(items), (k, v) -> v > 1) AS bought", "size(items) AS n").write.parquet(f"{lake}/out/ar/bought")
spark.stop()

"""Arrays, maps, structs, JSON: functions of elements, and columns made of parts of others."""
from shop import f, lake, raw, start

spark = start()
orders = raw("orders")
customers = raw("customers")
events = spark.read.schema("id INT, user STRUCT<id: INT, tags: ARRAY<STRING>>, attrs MAP<STRING, STRING>, payload STRING").json(f"{lake}/raw/events")

def save(frame, name):
    frame.write.parquet(f"{lake}/out/co/{name}")

lists = orders.groupBy("customer_id").agg(f.collect_list("amount").alias("amounts"), f.collect_set("day").alias("days"))
save(lists.selectExpr("customer_id", "aggregate(amounts, 0D, (acc, x) -> acc + x, acc -> acc * 2) AS total", "filter(days, d -> d <> 'mo') AS rest"), "folded")
save(lists.selectExpr("zip_with(amounts, days, (a, d) -> concat(d, a)) AS zipped", "exists(amounts, a -> a > customer_id) AS any_big"), "zipped")
save(lists.select(f.explode(f.arrays_zip("amounts", "days")).alias("pair")).selectExpr("pair.amounts AS amount", "pair.days AS day"), "pairs")
save(events.select("id", f.explode("attrs").alias("key", "value")), "exploded_map")
save(events.select("user.*", f.col("attrs")["k"].alias("k")), "star")
save(events.select(f.col("user").withField("id", f.col("id") + 1).alias("user"), f.transform_values("attrs", lambda k, v: f.concat(k, v)).alias("attrs")), "changed")
parsed = events.withColumn("p", f.from_json("payload", "a INT, b STRUCT<c: STRING>"))
save(parsed.select("id", "p.a", "p.b.c"), "parsed")
save(events.select(f.json_tuple("payload", "a", "b").alias("a", "b"), f.get_json_object("payload", "$.b.c").alias("c")), "tuple")
save(customers.select(f.map_from_arrays(f.array("name"), f.array("country")).alias("m"), f.create_map(f.lit("id"), "customer_id").alias("n")), "maps")
save(customers.select(f.to_json(f.struct("name", f.array("country").alias("c"))).alias("doc"), f.size(f.split("name", " ")).alias("words")), "docs")
save(orders.groupBy("customer_id").agg(f.max(f.struct("amount", "day")).alias("top")).select("customer_id", "top.day", "top.amount"), "latest")
save(orders.groupBy("day").agg(f.max_by("order_id", "amount").alias("best"), f.expr("mode(customer_id)").alias("usual"), f.sum(f.when(f.col("amount") > 2, f.col("amount"))).alias("big")), "by_day")
save(events.select(f.posexplode_outer("user.tags").alias("place", "tag"), "id"), "tags")
save(events.groupBy().agg(f.collect_list(f.struct("id", "payload")).alias("all")).select(f.inline("all")), "around")
# Rows as columns, and one column of several by name.
save(orders.select("order_id", f.greatest("order_id", "customer_id").alias("larger"), f.concat_ws("-", *[f.col(c) for c in ("day", "amount")]).alias("text"), f.hash(*orders.columns).alias("hash")), "several")
spark.stop()

"""Text that holds JSON, CSV and XML: parsed by schemas that are inferred or given, exploded twice, corrupt lines aside, written as text."""
from shop import f, lake, raw, start

spark = start()
clicks = spark.read.text(f"{lake}/raw/clicks.jsonl")

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/se/{name}")

shape = spark.range(1).select(f.schema_of_json(f.lit('{"user": "u", "items": [{"sku": "s", "qty": 1}]}'))).first()[0]
parsed = clicks.select(f.from_json("value", shape).alias("j"))
save(parsed.select("j.user", f.explode_outer("j.items").alias("i")).select("user", f.col("i.sku").alias("article"), "i.qty"), "items")
save(parsed.select(f.expr("transform(j.items, x -> x.qty)").alias("all")).select(f.expr("aggregate(all, 0L, (a, x) -> a + x)").alias("qty")), "sums")
clicks.createOrReplaceTempView("clicks")
save(spark.sql("SELECT t.user AS who, upper(t.at) AS at FROM clicks LATERAL VIEW json_tuple(value, 'user', 'at') t AS user, at"), "tuples")
kept = spark.read.schema("user STRING, at STRING, _corrupt_record STRING").option("mode", "PERMISSIVE").json(f"{lake}/raw/clicks.jsonl").cache()
save(kept.where("_corrupt_record IS NULL").select("user", "at"), "good")
kept.where("_corrupt_record IS NOT NULL").select("_corrupt_record").write.mode("overwrite").text(f"{lake}/out/se/bad")
# XML: a file, and text in a column.
books = spark.read.format("xml").option("rowTag", "book").schema("_id STRING, title STRING, price DOUBLE, author ARRAY<STRING>").load(f"{lake}/raw/books.xml")
save(books.select(f.col("_id").alias("id"), "title", f.explode("author").alias("writer")), "books")
letters = books.select("title", f.to_xml(f.struct("title", "price")).alias("doc"))
save(letters.select(f.from_xml("doc", "title STRING, price DOUBLE").alias("x")).select("x.title", (f.col("x.price") * 2).alias("double")), "xml")
books.select("title", "price").write.mode("overwrite").format("xml").option("rowTag", "b").save(f"{lake}/out/se/xml_out")
# CSV in a column; a document of several lines; a map of what is left.
lines = raw("customers").select(f.to_csv(f.struct("customer_id", "name")).alias("line"), "country")
save(lines.select(f.from_csv("line", "id INT, label STRING").alias("c"), "country").select("c.id", "c.label", "country"), "csv")
save(spark.read.option("multiLine", True).schema("shop STRING, days MAP<STRING, STRUCT<total: DOUBLE, orders: ARRAY<INT>>>").json(f"{lake}/raw/report.json").select("shop", f.explode("days").alias("day", "d")).select("shop", "day", "d.total", f.explode("d.orders").alias("order_id")), "report")
save(clicks.select(f.get_json_object("value", "$.items[0].sku").alias("first_sku"), f.expr("json_array_length(get_json_object(value, '$.items'))").alias("n")), "paths")
raw("orders").select(f.to_json(f.struct("order_id", f.create_map(f.lit("paid"), "amount").alias("m"))).alias("value")).write.mode("overwrite").text(f"{lake}/out/se/lines")
spark.stop()

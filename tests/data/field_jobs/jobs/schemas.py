"""Schemas that change: renames through dicts, lower-cased and prefixed names, mergeSchema, columns that come later, duplicates after a join."""
from functools import reduce

from shop import f, lake, raw, start

spark = start(hive=True)
sales, people = spark.table("wh.sales"), spark.table("wh.people")
spark.sql("CREATE DATABASE IF NOT EXISTS sc")
NAMES = {"order_id": "OrderId", "customer_id": "BuyerId", "amount": "Paid"}
TYPES = {"OrderId": "bigint", "Paid": "decimal(12,2)"}

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/sm/{name}")

def snake(frame):
    return frame.toDF(*["".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_") for name in frame.columns])

renamed = reduce(lambda frame, pair: frame.withColumnRenamed(*pair), NAMES.items(), sales)
save(renamed, "renamed")
save(renamed.select(*[f.col(name).cast(TYPES.get(name, "string")) for name in renamed.columns]), "cast")
save(snake(renamed), "snake")
save(renamed.transform(snake).transform(lambda frame, factor: frame.withColumn("paid", f.col("paid") * factor), 3).select("buyer_id", "paid"), "transformed")
# Both sides have the same columns: prefixes, aliases, dropped duplicates.
left = people.select(*[f.col(name).alias(f"old_{name}") for name in people.columns])
changes = raw("changes")
save(left.join(changes, left.old_customer_id == changes.customer_id, "full").select("old_name", "name", f.coalesce("customer_id", "old_customer_id").alias("id")), "compared")
save(people.alias("p").join(sales.alias("s"), f.col("p.customer_id") == f.col("s.customer_id")).select("p.*", "s.amount").drop("country"), "starred")
save(people.join(changes, people.customer_id == changes.customer_id).drop(changes.customer_id).drop(people.name, changes.country), "dropped")
# A folder whose files have more columns each time.
for number, columns in enumerate((["order_id"], ["order_id", "amount"], ["order_id", "amount", "day"])):
    sales.select(*columns).write.mode("append").parquet(f"{lake}/out/sm/growing")
merged = spark.read.option("mergeSchema", True).parquet(f"{lake}/out/sm/growing")
save(merged.groupBy("day").agg(f.sum("amount").alias("amount")), "merged")
# What a table has decides what is written: missing columns are null, others are left out.
spark.sql("CREATE TABLE sc.fixed (id INT, label STRING, note STRING) USING parquet")
rows = people.selectExpr("customer_id AS id", "name AS label", "country AS extra")
fixed = spark.table("sc.fixed").schema
rows.select(*[f.col(c.name) if c.name in rows.columns else f.lit(None).cast(c.dataType).alias(c.name) for c in fixed]).write.insertInto("sc.fixed")
spark.sql("ALTER TABLE sc.fixed ADD COLUMNS (land STRING)")
people.selectExpr("customer_id AS id", "name AS label", "'x' AS note", "country AS land").write.insertInto("sc.fixed")
save(spark.table("sc.fixed").selectExpr("land AS Land", "`label` AS `a label`"), "fixed")
spark.stop()

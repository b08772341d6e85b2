"""Delta's past: versions by number, time and name, change feeds of tables and paths, restored rows, overwritten schemas, a shallow copy."""
from delta.tables import DeltaTable
from shop import f, lake, raw, start

spark = start()
sql = spark.sql
orders, people = raw("orders"), raw("customers")
sql("CREATE DATABASE IF NOT EXISTS dh")
spark.conf.set("spark.databricks.delta.properties.defaults.enableChangeDataFeed", "true")
orders.select("order_id", "amount", "day").write.format("delta").partitionBy("day").saveAsTable("dh.orders")
orders.where("amount > 5").selectExpr("order_id + 100 AS order_id", "amount * 2 AS amount", "day").write.format("delta").mode("append").saveAsTable("dh.orders")
people.createOrReplaceTempView("people")
sql("MERGE INTO dh.orders t USING people s ON t.order_id = s.customer_id WHEN MATCHED THEN DELETE")
table = DeltaTable.forName(spark, "dh.orders")
table.update("amount IS NULL", {"amount": "0.0"})
first = table.history().orderBy("version").first()
spark.read.option("versionAsOf", 1).table("dh.orders").groupBy("day").agg(f.sum("amount").alias("total")).write.format("delta").save(f"{lake}/out/dh/before")
sql(f"SELECT n.order_id, n.amount - o.amount AS changed FROM dh.orders n JOIN dh.orders TIMESTAMP AS OF '{first.timestamp}' o ON o.order_id = n.order_id").write.format("delta").save(f"{lake}/out/dh/changed")
feed = spark.read.option("readChangeFeed", "true").option("startingVersion", 1).table("dh.orders")
feed.where("_change_type IN ('insert', 'update_postimage')").select("order_id", "amount", f.col("_commit_timestamp").alias("at")).write.format("delta").mode("append").saveAsTable("dh.audit")
# A table that is a path: its schema is replaced, and grows.
people.write.format("delta").save(f"{lake}/out/dh/people")
people.select(f.col("customer_id").alias("id"), "name").write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(f"{lake}/out/dh/people")
people.select(f.col("customer_id").alias("id"), "country").write.format("delta").mode("append").option("mergeSchema", "true").save(f"{lake}/out/dh/people")
old = spark.read.format("delta").load(f"{lake}/out/dh/people", versionAsOf=0)
new = spark.read.format("delta").load(f"{lake}/out/dh/people")
new.join(old, new.id == old.customer_id, "left").select("id", old.name.alias("old_name"), new.country).write.format("delta").saveAsTable("dh.compared")
DeltaTable.forPath(spark, f"{lake}/out/dh/people").alias("t").merge(spark.table("dh.compared").dropDuplicates(["id"]).alias("s"), "t.id = s.id").whenMatchedUpdate(set={"name": "upper(s.old_name)"}).execute()
sql("CREATE TABLE dh.copy SHALLOW CLONE dh.orders VERSION AS OF 0")
table.restoreToVersion(1)
sql("INSERT INTO dh.copy BY NAME SELECT day, order_id, amount FROM dh.orders")
sql("CREATE OR REPLACE TABLE dh.orders USING delta AS SELECT order_id AS id, day FROM dh.copy")
table.detail().select("numFiles").collect()
spark.stop()

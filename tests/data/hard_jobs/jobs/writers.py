"""Formats and ways to write: text, ORC, CSV, JSON, SQL over paths, one frame written twice, a folder replaced by way of another."""
from shop import f, lake, raw, start

spark = start(hive=True)
orders = raw("orders")
customers = raw("customers")
orders.createOrReplaceTempView("sold")
customers.createOrReplaceTempView("people")

customers.select("name").write.text(f"{lake}/out/wr/text")
spark.read.text(f"{lake}/out/wr/text").selectExpr("upper(value) AS loud").write.orc(f"{lake}/out/wr/loud")
# One frame, three targets: computed anew, then kept in memory.
totals = orders.groupBy("customer_id").agg(f.sum("amount").alias("total"))
totals.write.csv(f"{lake}/out/wr/totals_csv", header=True)
totals.cache()
totals.write.json(f"{lake}/out/wr/totals_json")
totals.select("total").write.parquet(f"{lake}/out/wr/only_total")
totals.unpersist()
# A folder is replaced by way of another one.
orders.select("order_id", "day").write.parquet(f"{lake}/out/wr/state")
spark.read.parquet(f"{lake}/out/wr/state").selectExpr("order_id", "upper(day) AS day").write.parquet(f"{lake}/out/wr/state_next")
spark.read.parquet(f"{lake}/out/wr/state_next").write.mode("overwrite").parquet(f"{lake}/out/wr/state")
# Paths in statements.
spark.sql(f"INSERT OVERWRITE DIRECTORY '{lake}/out/wr/hive_folder' STORED AS textfile SELECT name, country FROM people")
spark.sql(f"INSERT OVERWRITE DIRECTORY '{lake}/out/wr/folder' USING orc SELECT customer_id, name FROM people")
spark.sql(f"SELECT total FROM json.`{lake}/out/wr/totals_json`").write.orc(f"{lake}/out/wr/of_json")
# A table at a place of its own, and its path read.
spark.sql("CREATE DATABASE IF NOT EXISTS wr")
spark.sql(f"CREATE TABLE wr.placed USING parquet LOCATION '{lake}/places/placed' AS SELECT order_id, amount FROM sold")
spark.read.parquet(f"{lake}/places/placed").select("amount").write.parquet(f"{lake}/out/wr/of_place")
spark.table("wr.placed").select("order_id").write.parquet(f"{lake}/out/wr/of_table")
# An RDD, and a frame that nobody writes.
customers.select("country").rdd.map(lambda row: row.country).saveAsTextFile(f"{lake}/out/wr/countries")
spark.read.json(f"{lake}/raw/unused").count()
spark.stop()

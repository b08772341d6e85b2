"""The care of Delta tables: optimised, restored, overwritten in part, with changes, generated columns, older versions."""
from shop import lake, raw, start

spark = start()
sql = spark.sql
orders = raw("orders")
orders.createOrReplaceTempView("sold")
raw("customers").createOrReplaceTempView("people")
raw("payments").createOrReplaceTempView("paid")
sql("CREATE DATABASE IF NOT EXISTS dc")
sql("CREATE TABLE dc.sales USING delta CLUSTER BY (customer_id) AS SELECT order_id, customer_id, amount, day FROM sold")
sql("OPTIMIZE dc.sales")
sql("VACUUM dc.sales")
sql("DESCRIBE HISTORY dc.sales").collect()
sql("INSERT INTO dc.sales REPLACE WHERE day = 'mo' SELECT order_id, customer_id, amount * 2, day FROM sold WHERE day = 'mo'")
orders.where("day = 'tu'").selectExpr("order_id + 100 AS order_id", "customer_id", "amount", "day").write.format("delta").mode("overwrite").option(
    "replaceWhere", "day = 'tu'"
).saveAsTable("dc.sales")
# Rows that go because another table has them: a condition only.
sql("MERGE INTO dc.sales t USING paid s ON t.order_id = s.order_id AND s.method = 'void' WHEN MATCHED THEN DELETE")
# A column that comes later.
sql("ALTER TABLE dc.sales ADD COLUMN (note STRING)")
sql("INSERT INTO dc.sales (order_id, note) SELECT customer_id, name FROM people")
# Columns that the table computes itself.
sql("CREATE TABLE dc.places (country STRING, kept BOOLEAN) USING delta")
sql("INSERT INTO dc.places (country) SELECT country FROM people")
# An older version, and a table that goes back to it.
sql("SELECT order_id, amount FROM dc.sales VERSION AS OF 0").write.parquet(f"{lake}/out/dc/old")
sql("RESTORE TABLE dc.sales TO VERSION AS OF 0")
# What has changed.
sql("CREATE TABLE dc.logged (id INT, label STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
sql("INSERT INTO dc.logged SELECT customer_id, name FROM people")
sql("UPDATE dc.logged SET label = upper(label) WHERE id > 1")
sql("DELETE FROM dc.logged WHERE id = 1")
sql("SELECT id, label, _change_type FROM table_changes('dc.logged', 0)").write.parquet(f"{lake}/out/dc/changes")
spark.read.format("delta").option("readChangeFeed", True).option("startingVersion", 1).table("dc.logged").selectExpr(
    "id", "_commit_version AS version"
).write.parquet(f"{lake}/out/dc/feed")
# Files become a table in their place; a table like another one.
sql(f"CONVERT TO DELTA parquet.`{lake}/in/plain`")
sql(f"SELECT order_id FROM delta.`{lake}/in/plain`").write.parquet(f"{lake}/out/dc/converted")
sql("CREATE TABLE dc.alike LIKE dc.sales")
# Replaced as a whole.
sql("CREATE OR REPLACE TABLE dc.places USING delta AS SELECT country, count(name) AS heads FROM people GROUP BY country")
spark.stop()

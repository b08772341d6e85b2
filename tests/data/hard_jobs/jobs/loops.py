"""Loads driven by a list: one view name, one statement and one function for many tables; views made of views that are replaced."""
from shop import f, lake, raw, start

spark = start(hive=True)
sql = spark.sql
sql("CREATE DATABASE IF NOT EXISTS lp")
orders = raw("orders")
customers = raw("customers")
changes = raw("changes")
# The same text of a statement each time, over other rows.
sql("CREATE TABLE lp.audit (rows BIGINT, last INT) USING parquet")
for name, frame in (("orders", orders), ("customers", customers), ("changes", changes)):
    frame.createOrReplaceTempView("src")
    sql("SELECT * FROM src").write.mode("overwrite").saveAsTable(f"lp.{name}")
    sql("INSERT INTO lp.audit SELECT count(*), max(customer_id) FROM src")
# A view of a frame keeps the frame; a view of a statement reads what the name means now.
customers.createOrReplaceTempView("src")
spark.table("src").where("customer_id > 0").createOrReplaceTempView("kept")
sql("CREATE OR REPLACE TEMP VIEW moving AS SELECT customer_id, country AS land FROM src")
changes.createOrReplaceTempView("src")
sql("SELECT name FROM kept").write.parquet(f"{lake}/out/lp/kept")
sql("SELECT land FROM moving").write.parquet(f"{lake}/out/lp/moving")
sql("CREATE TABLE lp.from_src USING parquet AS SELECT upper(name) AS name FROM src")
# A view replaced by one of itself, again and again.
orders.createOrReplaceTempView("steps")
for step in ("SELECT *, amount * 2 AS double FROM steps", "SELECT order_id, double + customer_id AS score, day FROM steps", "SELECT day, max(score) AS score FROM steps GROUP BY day"):
    spark.sql(step).createOrReplaceTempView("steps")
spark.table("steps").write.parquet(f"{lake}/out/lp/steps")
# One function for three tables, with the columns as parameters; the rows of one are the filter of the next.
for table, key in (("customers", "name"), ("changes", "country")):
    frame = spark.table(f"lp.{table}").withColumn("key", f.upper(f.col(key))).select("customer_id", "key")
    frame.write.mode("overwrite").option("path", f"{lake}/out/lp/keys_{table}").saveAsTable(f"lp.keys_{table}")
ids = [row.customer_id for row in spark.table("lp.keys_changes").select("customer_id").distinct().collect()]
spark.table("lp.orders").where(f.col("customer_id").isin(ids)).select("order_id").write.parquet(f"{lake}/out/lp/selected")
# Parameters and identifiers.
spark.sql("SELECT order_id, amount * :factor AS paid FROM IDENTIFIER(:name) WHERE day <> :day", {"factor": 2, "name": "lp.orders", "day": "x"}).write.parquet(f"{lake}/out/lp/parameters")
spark.sql("SELECT name AS title FROM {people} WHERE customer_id < {most}", people=customers, most=100).write.parquet(f"{lake}/out/lp/formatted")
spark.stop()

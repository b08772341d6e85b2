"""Views over views, temporary views that are replaced or hide a table, cached rows of a table that is overwritten."""
from shop import lake, raw, start

spark = start(hive=True)
orders = raw("orders")
customers = raw("customers")
orders.createOrReplaceTempView("sold")
customers.createOrReplaceTempView("people")

spark.sql("CREATE DATABASE IF NOT EXISTS vw")
spark.sql("CREATE TABLE vw.orders USING parquet AS SELECT * FROM sold")
spark.sql("CREATE VIEW vw.paid AS SELECT order_id, amount AS paid, customer_id FROM vw.orders WHERE amount > 0")
spark.sql("CREATE VIEW vw.best (customer, best_paid) AS SELECT customer_id, max(paid) AS best FROM vw.paid GROUP BY customer_id")
spark.sql(
    "CREATE TABLE vw.report USING parquet AS SELECT p.name, b.best_paid FROM vw.best b JOIN people p ON p.customer_id = b.customer"
)
# One name, three queries.
orders.createOrReplaceTempView("stage")
spark.table("stage").select("order_id").write.parquet(f"{lake}/out/vw/first")
customers.createOrReplaceTempView("stage")
spark.sql("SELECT customer_id AS id FROM stage").write.parquet(f"{lake}/out/vw/second")
spark.sql("SELECT day, amount FROM sold").createOrReplaceTempView("stage")
spark.sql("CREATE TABLE vw.third USING parquet AS SELECT * FROM stage")
# A temporary view, and a part of a query, hide the table of their name.
spark.sql("CREATE TABLE vw.people USING parquet AS SELECT country AS name, customer_id FROM people")
spark.sql("USE vw")
spark.sql("CREATE TABLE vw.hidden USING parquet AS SELECT name FROM people")
spark.sql(
    "CREATE TABLE vw.shadowed USING parquet AS WITH orders AS (SELECT customer_id AS order_id, name AS amount FROM people) "
    "SELECT order_id, amount FROM orders"
)
spark.sql("USE default")
orders.createGlobalTempView("everywhere")
spark.sql("SELECT amount FROM global_temp.everywhere").write.parquet(f"{lake}/out/vw/global")
# Rows kept in memory, of a table that is then overwritten.
spark.sql("CACHE TABLE kept AS SELECT order_id, amount FROM vw.orders")
spark.sql("INSERT OVERWRITE vw.orders SELECT customer_id, order_id, amount * 1.1, day FROM sold")
spark.sql("SELECT amount AS old FROM kept").write.parquet(f"{lake}/out/vw/cached")
spark.sql("DROP VIEW vw.best")
spark.stop()

"""Subqueries where people put them: EXISTS and IN of several columns, NOT EXISTS of two tables, nested ones, LATERAL ones one after the other."""
from shop import lake, raw, start

spark = start(hive=True)
sql = spark.sql
raw("changes").createOrReplaceTempView("changes")
raw("payments").createOrReplaceTempView("payments")
sql("CREATE DATABASE IF NOT EXISTS ex")

def table(name, query):
    sql(f"CREATE TABLE ex.{name} USING parquet AS {query}")

table("both", "SELECT name FROM wh.people p WHERE EXISTS (SELECT 1 FROM wh.sales s WHERE s.customer_id = p.customer_id) AND NOT EXISTS (SELECT * FROM changes c WHERE c.customer_id = p.customer_id AND c.name <> p.name)")
table("pairs", "SELECT order_id, amount FROM wh.sales WHERE (customer_id, day) IN (SELECT customer_id, max(day) FROM wh.sales GROUP BY customer_id)")
table("not_in", "SELECT country FROM wh.people WHERE customer_id NOT IN (SELECT customer_id FROM changes WHERE customer_id IS NOT NULL) OR name IS NULL")
table("nested", "SELECT name FROM wh.people WHERE customer_id IN (SELECT customer_id FROM wh.sales WHERE order_id IN (SELECT order_id FROM payments WHERE method = 'card'))")
table("having", "SELECT customer_id, sum(amount) AS total FROM wh.sales GROUP BY customer_id HAVING sum(amount) > (SELECT avg(t) FROM (SELECT sum(amount) AS t FROM wh.sales GROUP BY customer_id))")
table("flags", "SELECT order_id, order_id IN (SELECT order_id FROM payments) AS paid, EXISTS (SELECT 1 FROM wh.people p WHERE p.customer_id = s.customer_id AND p.country = 'DE') AS german FROM wh.sales s")
table("scalars", "SELECT p.customer_id, coalesce((SELECT c.name FROM changes c WHERE c.customer_id = p.customer_id LIMIT 1), p.name) AS name, (SELECT count(s.order_id) FROM wh.sales s WHERE s.customer_id = p.customer_id) AS orders FROM wh.people p")
table("laterals", "SELECT p.name, t.total, m.method FROM wh.people p, LATERAL (SELECT sum(amount) AS total, max(order_id) AS last FROM wh.sales s WHERE s.customer_id = p.customer_id) t LEFT JOIN LATERAL (SELECT first(method) AS method FROM payments y WHERE y.order_id = t.last) m ON true")
table("any_of", "SELECT order_id FROM wh.sales s LEFT SEMI JOIN payments y USING (order_id) UNION ALL SELECT customer_id FROM wh.people p LEFT ANTI JOIN changes c ON c.customer_id = p.customer_id")
table("twice", "WITH t AS (SELECT customer_id, max(amount) AS most FROM wh.sales GROUP BY customer_id) SELECT name, (SELECT max(most) FROM t) AS top FROM wh.people WHERE customer_id IN (SELECT customer_id FROM t WHERE most > 1)")
table("in_join", "SELECT s.order_id, p.name FROM wh.sales s LEFT JOIN wh.people p ON p.customer_id = s.customer_id AND p.country IN (SELECT country FROM changes)")
table("ordered", "SELECT day, count(*) AS n FROM wh.sales GROUP BY day ORDER BY (SELECT max(customer_id) FROM wh.people) - count(*) LIMIT 3")
table("tvf", "SELECT n.id AS number, p.name FROM range(1, 5) n LEFT JOIN wh.people p ON p.customer_id = n.id")
sql("SELECT * FROM (SELECT order_id AS id FROM wh.sales) AS s (key) WHERE NOT EXISTS (SELECT order_id FROM payments WHERE order_id = key)").write.mode("overwrite").json(f"{lake}/out/ex/unpaid")
spark.stop()

"""CTEs used twice and hidden by others, views of views of files, EXISTS, NOT IN, scalar subqueries in places, sets."""
from shop import lake, start

spark = start(hive=True)
sql = spark.sql
sql("CREATE DATABASE IF NOT EXISTS sq")
sql(f"CREATE TEMPORARY VIEW changes (customer_id INT, name STRING, country STRING) USING csv OPTIONS (path '{lake}/raw/changes.csv', header true)")
sql("CREATE VIEW sq.big AS SELECT * FROM wh.sales WHERE amount > 1")
sql("CREATE VIEW sq.big_named AS SELECT b.order_id, p.name AS buyer FROM sq.big b JOIN wh.people p USING (customer_id)")
sql("CREATE TEMP VIEW latest AS SELECT buyer, max(order_id) AS last FROM sq.big_named GROUP BY buyer")
sql("CREATE TABLE sq.latest USING parquet AS SELECT * FROM latest")
sql("""CREATE TABLE sq.twice USING parquet AS
WITH t AS (SELECT customer_id, sum(amount) AS total FROM wh.sales GROUP BY customer_id),
     u AS (SELECT a.customer_id, a.total, b.total AS other FROM t a JOIN t b ON a.customer_id = b.customer_id + 1)
SELECT customer_id, total - other AS gap FROM u UNION ALL SELECT customer_id, total FROM t""")
sql("""CREATE TABLE sq.hidden USING parquet AS
WITH people AS (SELECT name FROM changes), x AS (WITH people AS (SELECT country AS name FROM wh.people) SELECT name FROM people)
SELECT x.name AS land, people.name AS who FROM x CROSS JOIN people""")
sql("CREATE TABLE sq.present USING parquet AS SELECT name FROM wh.people p WHERE EXISTS (SELECT 1 FROM wh.sales s WHERE s.customer_id = p.customer_id AND s.amount > 2)")
sql("CREATE TABLE sq.absent USING parquet AS SELECT name FROM changes c WHERE customer_id NOT IN (SELECT customer_id FROM wh.people)")
sql("CREATE TABLE sq.scalars USING parquet AS SELECT name, (SELECT sum(amount) FROM wh.sales s WHERE s.customer_id = p.customer_id) + (SELECT min(customer_id) FROM changes) AS mix, EXISTS (SELECT 1 FROM changes c WHERE c.customer_id = p.customer_id) AS changed FROM wh.people p")
sql("SELECT CASE WHEN country IN (SELECT country FROM changes) THEN name ELSE country END AS label FROM wh.people").write.parquet(f"{lake}/out/sq/case")
sql("SELECT customer_id, name FROM wh.people MINUS SELECT customer_id, name FROM changes").write.parquet(f"{lake}/out/sq/minus")
sql("SELECT a.name FROM wh.people a LEFT SEMI JOIN changes b ON a.customer_id = b.customer_id INTERSECT ALL SELECT name FROM changes").write.parquet(f"{lake}/out/sq/semi")
sql("SELECT day, total FROM (SELECT day, sum(amount) AS total, rank() OVER (ORDER BY sum(amount) DESC) AS place FROM wh.sales GROUP BY day HAVING count(*) > 0) WHERE place < 3 ORDER BY (SELECT count(*) FROM changes)").write.parquet(f"{lake}/out/sq/ranked")
sql("SELECT name, v.kind, v.x FROM wh.people LATERAL VIEW stack(2, 'id', customer_id, 'length', length(country)) v AS kind, x").write.parquet(f"{lake}/out/sq/stacked")
first = "" if spark.version.startswith("3") else "ORDER BY amount LIMIT 1"
sql(f"SELECT p.name, r.word, r.amount FROM wh.people p JOIN LATERAL (SELECT upper(p.country) AS word, amount FROM wh.sales s WHERE s.customer_id = p.customer_id {first}) r").write.parquet(f"{lake}/out/sq/lateral")
sql("SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v(customer_id, tag) JOIN wh.people USING (customer_id)").select("tag", "name").write.parquet(f"{lake}/out/sq/values")
sql("CREATE OR REPLACE VIEW sq.big AS SELECT order_id, customer_id, amount * 10 AS amount FROM wh.sales")
sql("CREATE TABLE sq.of_new_view USING parquet AS SELECT amount FROM sq.big")
spark.stop()

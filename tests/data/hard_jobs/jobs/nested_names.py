"""One name at two levels: common queries within others, aliases that are the names of other tables, views over views."""
from shop import lake, raw, start

spark = start(hive=True)
sql = spark.sql
raw("changes").createOrReplaceTempView("changes")
sql("CREATE DATABASE IF NOT EXISTS nc")
sql("""CREATE TABLE nc.levels USING parquet AS
WITH src AS (
  WITH src AS (SELECT customer_id AS id, country AS val FROM wh.people)
  SELECT id, upper(val) AS val FROM src
)
SELECT src.id, src.val, o.val AS other
FROM src JOIN (WITH src AS (SELECT customer_id AS id, day AS val FROM wh.sales) SELECT id, max(val) AS val FROM src GROUP BY id) o ON o.id = src.id""")
sql("""CREATE TABLE nc.chain USING parquet AS
WITH a AS (SELECT order_id AS k, amount AS v, customer_id FROM wh.sales),
     b AS (SELECT k, v * 2 AS v, customer_id FROM a),
     t AS (SELECT customer_id AS k, sum(v) AS v FROM b GROUP BY customer_id),
     c AS (SELECT b.k, b.v, t.v AS total FROM b JOIN t ON t.k = b.customer_id)
SELECT k, v / total AS share FROM c""")
# Each table has the other's name.
sql("CREATE TABLE nc.swapped USING parquet AS SELECT people.amount AS money, sales.name AS title FROM wh.sales AS people JOIN wh.people AS sales ON people.customer_id = sales.customer_id")
sql("CREATE TABLE nc.roles USING parquet AS SELECT a.name AS one, b.name AS two, c.country AS three FROM wh.people a JOIN wh.people b ON a.customer_id = b.customer_id + 1 LEFT JOIN wh.people c ON c.customer_id = b.customer_id + 1")
sql("CREATE TABLE nc.sets USING parquet AS SELECT name AS a, country AS b FROM wh.people UNION SELECT country, name FROM changes EXCEPT SELECT day, day FROM wh.sales")
# Views over views; a temporary view has the name of the inner one.
sql("CREATE VIEW nc.v1 AS SELECT customer_id AS c, amount AS a FROM wh.sales")
sql("CREATE VIEW nc.v2 (who, much) AS SELECT c, sum(a) AS s FROM nc.v1 GROUP BY c")
sql("CREATE TEMP VIEW v1 AS SELECT name AS c, customer_id AS a FROM wh.people")
sql("CREATE TABLE nc.of_views USING parquet AS SELECT v2.much, v1.c AS person FROM nc.v2 JOIN v1 ON v1.a = v2.who")
sql("CREATE OR REPLACE VIEW nc.v1 AS SELECT order_id AS c, customer_id AS a FROM wh.sales")
sql("SELECT who, much FROM nc.v2").write.parquet(f"{lake}/out/nc/of_new_view")
# A common query of an INSERT, with the name of its target; columns by position.
sql("CREATE TABLE nc.pairs (label STRING, code INT) USING parquet")
sql("WITH pairs AS (SELECT customer_id AS code, name AS label FROM changes) INSERT INTO nc.pairs SELECT label, code FROM pairs")
sql("INSERT INTO nc.pairs (code, label) WITH pairs AS (SELECT order_id, day FROM wh.sales) SELECT * FROM pairs")
# A name that is a column, an alias and a function's; aliases of the same query used again.
sql("SELECT day AS amount, amount AS day, customer_id AS customer_id2 FROM wh.sales").createOrReplaceTempView("sales")
sql("SELECT max(amount) AS amount, min(day) AS day FROM sales").write.parquet(f"{lake}/out/nc/crossed")
sql("SELECT amount * 2 AS twice, twice + order_id AS more FROM wh.sales").write.parquet(f"{lake}/out/nc/aliases")
spark.stop()

"""SQL as analysts write it: names and values as parameters, CHAR columns, samples, maps, sets, views over views, JSON, a folder."""
from shop import lake, start

spark = start(hive=True)
sql = spark.sql
sql("CREATE DATABASE IF NOT EXISTS rp")
# The name of the table is a value.
sql("SELECT name AS person, customer_id FROM IDENTIFIER(:source) WHERE country = :land", args={"source": "wh.people", "land": "DE"}).write.saveAsTable("rp.german")
sql("CREATE TABLE rp.codes (code CHAR(5), label VARCHAR(20), number DECIMAL(12, 2)) USING parquet")
sql("INSERT INTO rp.codes SELECT country, name, customer_id FROM wh.people")
sql(f"""INSERT OVERWRITE DIRECTORY '{lake}/out/rp/sampled' USING parquet
SELECT s.order_id, p.name FROM wh.sales TABLESAMPLE (90 PERCENT) REPEATABLE (1) s JOIN wh.people p ON s.customer_id = p.customer_id""")
sql("""CREATE TABLE rp.facts USING parquet AS SELECT customer_id, fact, value
FROM (SELECT customer_id, map('name', name, 'country', country) AS m FROM wh.people) LATERAL VIEW explode(m) e AS fact, value""")
sql("SELECT map_from_entries(collect_list(struct(order_id, amount))) AS orders, customer_id FROM wh.sales GROUP BY customer_id").write.parquet(f"{lake}/out/rp/maps")
sql("CREATE TABLE rp.common USING parquet AS SELECT customer_id FROM wh.sales INTERSECT SELECT customer_id FROM wh.people")
sql("CREATE TABLE rp.minus USING parquet AS SELECT customer_id, country AS label FROM wh.people EXCEPT ALL SELECT customer_id, day FROM wh.sales")
sql("CREATE OR REPLACE VIEW rp.v_named (id, who) AS SELECT customer_id, upper(name) AS upper_name FROM wh.people")
sql("CREATE OR REPLACE VIEW rp.v_sold AS SELECT s.order_id, v.who, s.amount FROM wh.sales s JOIN rp.v_named v ON s.customer_id = v.id")
sql("CREATE TABLE rp.sold USING parquet AS SELECT who AS buyer, sum(amount) AS total FROM rp.v_sold GROUP BY who")
sql("""CREATE TABLE rp.shares USING parquet AS
WITH t AS (SELECT country, sum(amount) AS total FROM wh.sales JOIN wh.people USING (customer_id) GROUP BY country)
SELECT country, total, total / sum(total) OVER w AS share, rank() OVER (ORDER BY total DESC) AS place FROM t WINDOW w AS ()""")
# Columns by a list, in another order than the table's, and one that the table fills itself.
sql("CREATE TABLE rp.listed (id INT, note STRING DEFAULT 'none', day STRING) USING parquet")
sql("INSERT INTO rp.listed (day, id) SELECT day, order_id FROM wh.sales")
# Columns by their positions, under names of other columns.
sql("CREATE TABLE rp.positions (id INT, label STRING, name STRING) USING parquet")
spark.table("wh.people").selectExpr("customer_id AS name", "country AS id", "upper(name) AS label").write.insertInto("rp.positions")
sql(f"""SELECT j.user.name AS who, get_json_object(body, '$.total') AS total, to_json(struct(j.total AS t)) AS packed
FROM (SELECT from_json(value, 'user STRUCT<name: STRING>, total DOUBLE') AS j, value AS body FROM text.`{lake}/raw/json`)""").write.parquet(f"{lake}/out/rp/parsed")
# Ranges without a table, and a join by a range.
sql("""CREATE TABLE rp.bands USING parquet AS SELECT s.order_id, b.label FROM wh.sales s
JOIN VALUES (0, 10, 'small'), (10, 1000, 'big') AS b (low, high, label) ON s.amount >= b.low AND s.amount < b.high""")
spark.stop()

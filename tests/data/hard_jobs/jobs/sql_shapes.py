"""Statements whose columns go through more than projections: UNPIVOT, GROUPING SETS, PIVOT, subqueries, windows."""
from shop import f, lake, raw, start

spark = start(hive=True)
orders = raw("orders")
customers = raw("customers")
orders.createOrReplaceTempView("sold")
customers.createOrReplaceTempView("people")
spark.sql("CREATE DATABASE IF NOT EXISTS ts")
spark.sql("CREATE TABLE ts.orders USING parquet AS SELECT * FROM sold")
spark.sql(
    "CREATE TABLE ts.halves USING parquet AS SELECT name, amount AS h1, amount * 2 AS h2 "
    "FROM sold JOIN people USING (customer_id)"
)
# Rows of columns, from a table and by the DataFrame API.
spark.sql("CREATE TABLE ts.long USING parquet AS SELECT * FROM ts.halves UNPIVOT (revenue FOR half IN (h1, h2))")
spark.table("ts.halves").unpivot(["name"], ["h1", "h2"], "half", "value").write.parquet(f"{lake}/out/ts/unpivoted")
# Columns of rows.
spark.sql(
    "CREATE TABLE ts.wide USING parquet AS SELECT * FROM (SELECT customer_id, day, amount FROM ts.orders) "
    "PIVOT (sum(amount) FOR day IN ('mo' AS mo, 'tu' AS tu))"
)
# Several groupings in one query.
spark.sql(
    "CREATE TABLE ts.sets USING parquet AS SELECT customer_id, day, sum(amount) AS revenue, grouping_id() AS level "
    "FROM ts.orders GROUP BY GROUPING SETS ((customer_id), (day), ())"
)
spark.sql(
    "CREATE TABLE ts.rolled USING parquet AS SELECT country, day, max(amount) AS best FROM sold JOIN people "
    "USING (customer_id) GROUP BY ROLLUP (country, day)"
)
orders.cube("customer_id", "day").agg(f.avg("amount").alias("mean")).write.parquet(f"{lake}/out/ts/cube")
# Scalar subqueries: of the same table, of another one, correlated, and in a condition.
spark.sql(
    "CREATE TABLE ts.shares USING parquet AS SELECT order_id, amount / (SELECT max(amount) FROM ts.orders) AS share "
    "FROM ts.orders"
)
spark.sql("SELECT order_id, (SELECT count(name) FROM people) AS heads FROM sold").write.parquet(f"{lake}/out/ts/heads")
spark.sql(
    "SELECT name, (SELECT max(amount) FROM sold s WHERE s.customer_id = p.customer_id) AS best FROM people p"
).write.parquet(f"{lake}/out/ts/best")
spark.sql("SELECT order_id FROM sold WHERE amount > (SELECT avg(amount) FROM sold)").write.json(f"{lake}/out/ts/above")
# Generators, windows, structs, sets.
spark.sql("SELECT customer_id, word FROM people LATERAL VIEW explode(split(name, ' ')) AS word").write.parquet(
    f"{lake}/out/ts/words"
)
spark.sql(
    "CREATE TABLE ts.running USING parquet AS SELECT order_id, "
    "sum(amount) OVER (PARTITION BY customer_id ORDER BY order_id) AS total, "
    "lag(amount) OVER (PARTITION BY customer_id ORDER BY order_id) AS last FROM ts.orders"
)
spark.sql("SELECT named_struct('id', order_id, 'paid', amount) AS line FROM sold").write.parquet(f"{lake}/out/ts/lines")
spark.sql("SELECT customer_id FROM sold EXCEPT SELECT customer_id FROM people").write.parquet(f"{lake}/out/ts/unknown")
spark.sql("SELECT country, collect_list(struct(name, customer_id)) AS who FROM people GROUP BY country").write.parquet(
    f"{lake}/out/ts/who"
)
# One scan, two targets.
spark.sql("CREATE TABLE ts.small (order_id INT, amount DOUBLE) USING hive")
spark.sql("CREATE TABLE ts.large (order_id INT, amount DOUBLE) USING hive")
spark.sql(
    "FROM ts.orders INSERT INTO ts.small SELECT order_id, amount WHERE amount < 5 "
    "INSERT INTO ts.large SELECT order_id, amount * 10 WHERE amount >= 5"
)
spark.stop()

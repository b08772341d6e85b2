"""What Spark 4's SQL has: pipes, functions and table functions in SQL, variables, scripts, EXECUTE IMMEDIATE, variants."""
from shop import lake, start

spark = start(hive=True)
sql = spark.sql
sql("CREATE DATABASE IF NOT EXISTS s4")
sql("CREATE TABLE s4.piped USING parquet AS FROM wh.sales |> WHERE amount > 1 |> EXTEND amount * 2 AS doubled |> AGGREGATE sum(doubled) AS total GROUP BY day")
sql("CREATE FUNCTION s4.net(x DOUBLE) RETURNS DOUBLE RETURN x / 1.2")
sql("CREATE TABLE s4.taxed USING parquet AS SELECT order_id, s4.net(amount) AS net FROM wh.sales")
sql("CREATE FUNCTION s4.of_customer(id INT) RETURNS TABLE (order_id INT, amount DOUBLE) RETURN SELECT order_id, amount FROM wh.sales WHERE customer_id = id")
sql("CREATE TABLE s4.of_one USING parquet AS SELECT * FROM s4.of_customer(1)")
sql("CREATE TABLE s4.of_each USING parquet AS SELECT p.name, t.amount FROM wh.people p, LATERAL s4.of_customer(p.customer_id) t")
# A session's variable, filled by a query.
sql("DECLARE VARIABLE top DOUBLE")
sql("SET VAR top = (SELECT max(amount) FROM wh.sales)")
sql("CREATE TABLE s4.share USING parquet AS SELECT order_id, amount / top AS share FROM wh.sales")
sql("EXECUTE IMMEDIATE 'CREATE TABLE s4.immediate USING parquet AS SELECT name FROM wh.people WHERE country = ?' USING 'DE'")
# A script: several statements in one.
sql("""
BEGIN
  DECLARE n INT DEFAULT 1;
  CREATE TABLE s4.scripted (id INT, label STRING) USING parquet;
  WHILE n <= 2 DO
    INSERT INTO s4.scripted SELECT customer_id + n, name FROM wh.people;
    SET n = n + 1;
  END WHILE;
END
""")
# An alias used beside its definition, by ordinals, GROUP BY ALL.
sql("CREATE TABLE s4.lateral_alias USING parquet AS SELECT amount * 2 AS a, a + order_id AS b FROM wh.sales")
sql("CREATE TABLE s4.grouped USING parquet AS SELECT country, count(name) AS heads, any_value(customer_id) AS one FROM wh.people GROUP BY ALL")
# INSERT: by name, with defaults, with a part of the columns.
sql("CREATE TABLE s4.target (id INT, label STRING DEFAULT 'none', amount DOUBLE) USING parquet")
sql("INSERT INTO s4.target BY NAME SELECT amount, order_id AS id, day AS label FROM wh.sales")
sql("INSERT INTO s4.target (amount, id) SELECT amount, customer_id FROM wh.sales")
# Parameters and frames within a statement.
people = spark.table("wh.people")
spark.sql("SELECT name, :tag AS tag FROM {people} WHERE country = :land", args={"tag": "t", "land": "DE"}, people=people).write.parquet(f"{lake}/out/s4/parameters")
sql("SELECT * FROM IDENTIFIER('wh.' || 'people')").select("country").write.parquet(f"{lake}/out/s4/identifier")
# Variants.
events = spark.read.schema("id INT, payload STRING").json(f"{lake}/raw/events")
events.selectExpr("id", "parse_json(payload) AS v").selectExpr("id", "variant_get(v, '$.a', 'int') AS a", "v:b.c::string AS c").write.parquet(f"{lake}/out/s4/variant")
# Windows with names, and a filter in front of an aggregate.
sql("CREATE TABLE s4.windows USING parquet AS SELECT order_id, first_value(amount) OVER w AS first, amount - lead(amount, 1, 0) OVER w AS step, count(*) FILTER (WHERE day = 'mo') OVER (PARTITION BY customer_id) AS mondays FROM wh.sales WINDOW w AS (PARTITION BY customer_id ORDER BY order_id)")
spark.stop()

"""More of Spark 4: branches and loops of scripts, EXECUTE IMMEDIATE INTO, exploded variants, pipes, subqueries of frames, measures."""
from shop import f, lake, start

spark = start(hive=True)
sql = spark.sql
sql("CREATE DATABASE IF NOT EXISTS s5")
sales, people = spark.table("wh.sales"), spark.table("wh.people")


def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/s5/{name}")

sql("""
BEGIN
  DECLARE total DOUBLE;
  SET total = (SELECT sum(amount) FROM wh.sales);
  IF total > 0 THEN
    CREATE TABLE s5.chosen USING parquet AS SELECT name FROM wh.people;
  ELSE
    CREATE TABLE s5.not_chosen USING parquet AS SELECT day FROM wh.sales;
  END IF;
  CREATE TABLE s5.looped (land STRING, id INT) USING parquet;
  FOR person AS SELECT country, customer_id FROM wh.people DO
    INSERT INTO s5.looped VALUES (person.country, person.customer_id);
  END FOR;
END
""")
sql("DECLARE VARIABLE which STRING")
sql("EXECUTE IMMEDIATE 'SELECT max(day) FROM wh.sales' INTO which")
sql("CREATE TABLE s5.of_day USING parquet AS SELECT order_id FROM wh.sales WHERE day = which")
# Variants and JSON.
events = spark.read.schema("id INT, payload STRING").json(f"{lake}/raw/events")
events.selectExpr("id", "parse_json(payload) AS v").createOrReplaceTempView("docs")
save(sql("SELECT d.id, e.key, e.value::string AS value FROM docs d, LATERAL variant_explode(d.v) e"), "exploded")
save(events.selectExpr("id", "from_json(payload, 'a INT, b STRING') AS j").select("id", "j.*"), "parsed")
save(events.selectExpr("max(payload) AS shape"), "shape")
# Pipes.
sql("CREATE TABLE s5.piped USING parquet AS FROM wh.sales |> SET amount = amount * 2 |> DROP day |> JOIN wh.people USING (customer_id) |> SELECT name, amount AS twice |> ORDER BY twice |> LIMIT 5")
sql("CREATE TABLE s5.both USING parquet AS FROM wh.people |> SELECT name AS label |> UNION ALL (SELECT day FROM wh.sales)")
sql("CREATE TABLE s5.pivoted USING parquet AS FROM wh.sales |> SELECT day, amount, customer_id |> PIVOT (sum(amount) FOR day IN ('mo', 'tu'))")
sql("CREATE VIEW s5.first_view AS SELECT customer_id, amount * 2 AS double FROM wh.sales")
sql("CREATE VIEW s5.second_view AS FROM s5.first_view |> AGGREGATE max(double) AS most GROUP BY customer_id")
sql("CREATE TABLE s5.of_views USING parquet AS SELECT p.country, v.most FROM s5.second_view v JOIN wh.people p USING (customer_id)")
# Subqueries of frames.
save(sales.select("order_id", sales.select(f.max("amount")).scalar().alias("top")), "scalar")
some = sales.alias("s").where(f.col("s.customer_id") == f.col("p.customer_id").outer())
save(people.alias("p").lateralJoin(some.select("amount")).select("p.name", "amount"), "lateral")
save(people.alias("p").where(some.exists()).select("country"), "existing")
# Texts that are put together, compared without case, and functions of functions.
save(sales.groupBy("customer_id").agg(f.listagg("day", f.lit(",")).alias("days")), "listed")
save(sql("SELECT name COLLATE UTF8_LCASE AS name FROM wh.people"), "collated")
sql("CREATE TEMPORARY FUNCTION more(x DOUBLE) RETURNS DOUBLE RETURN x + 1")
sql("CREATE TEMPORARY FUNCTION much_more(x DOUBLE, y DOUBLE) RETURNS DOUBLE RETURN more(x) * more(y)")
save(sql("SELECT day, much_more(amount, 2) AS much FROM wh.sales"), "functions")
# Measures of a view.
sql("""CREATE VIEW s5.measured WITH METRICS LANGUAGE YAML AS
$$
version: 0.1
source: wh.sales
dimensions:
  - name: label
    expr: day
measures:
  - name: total
    expr: SUM(amount)
$$""")
sql("CREATE TABLE s5.metrics USING parquet AS SELECT label, MEASURE(total) AS total FROM s5.measured GROUP BY label")
spark.stop()

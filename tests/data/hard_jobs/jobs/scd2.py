"""Slowly changing dimensions of type 2: staged rows and MERGE with several clauses into Delta and Iceberg, and by a frame."""
from shop import f, lake, start

spark = start()
sql = spark.sql
schema = "customer_id INT, name STRING, country STRING"
spark.read.csv(f"{lake}/raw/customers.csv", header=True, schema=schema).createOrReplaceTempView("people")
spark.read.csv(f"{lake}/raw/changes.csv", header=True, schema=schema).createOrReplaceTempView("changes")
sql("CREATE DATABASE IF NOT EXISTS dim")
first = "SELECT customer_id AS id, name, country, DATE'2026-01-01' AS valid_from, CAST(NULL AS DATE) AS valid_to, true AS is_current FROM people"
sql(f"CREATE TABLE dim.customer USING delta AS {first}")
sql(f"CREATE TABLE ice.dim.client USING iceberg AS {first}")
# The classic: a changed row is staged twice, once without a key, which is inserted.
sql("""MERGE INTO dim.customer t USING (
  SELECT c.customer_id AS merge_key, c.* FROM changes c
  UNION ALL
  SELECT NULL AS merge_key, c.* FROM changes c JOIN dim.customer d ON c.customer_id = d.id WHERE d.is_current AND c.name <> d.name
) s ON t.id = s.merge_key
WHEN MATCHED AND t.is_current AND t.name <> s.name THEN UPDATE SET is_current = false, valid_to = DATE'2026-02-01'
WHEN NOT MATCHED THEN INSERT (id, name, country, valid_from, valid_to, is_current) VALUES (s.customer_id, s.name, upper(s.country), DATE'2026-02-01', NULL, true)""")
# What the source no longer has is closed; what it has wins over what was there.
sql("""MERGE INTO ice.dim.client t USING (SELECT customer_id, max(name) AS title, max(country) AS land FROM changes GROUP BY customer_id) s
ON t.id = s.customer_id AND t.is_current
WHEN MATCHED AND s.land = 'xx' THEN DELETE
WHEN MATCHED THEN UPDATE SET t.name = coalesce(s.title, t.name), t.country = s.land
WHEN NOT MATCHED THEN INSERT (id, name, country, valid_from, is_current) VALUES (s.customer_id, s.title, s.land, DATE'2026-02-01', true)
WHEN NOT MATCHED BY SOURCE AND t.is_current THEN UPDATE SET t.valid_to = DATE'2026-02-01', t.is_current = false""")
# The same of Delta, with a key of its own and all columns.
sql("CREATE TABLE dim.latest USING delta AS SELECT customer_id, name, country FROM people")
sql("""MERGE INTO dim.latest t USING (SELECT customer_id, name, row_number() OVER (PARTITION BY customer_id ORDER BY name) AS n, country FROM changes) s
ON t.customer_id = s.customer_id AND s.n = 1
WHEN MATCHED THEN UPDATE SET t.name = concat(t.name, s.name)
WHEN NOT MATCHED AND s.country IS NOT NULL THEN INSERT *
WHEN NOT MATCHED BY SOURCE THEN DELETE""")
# By a frame: rows that change are closed, and opened anew.
current, news = spark.table("dim.customer").alias("d"), spark.table("changes").alias("c")
closed = current.join(news, f.expr("d.id = c.customer_id AND d.is_current"), "left").selectExpr(
    "d.id", "d.name", "d.country", "d.valid_from", "CASE WHEN c.customer_id IS NOT NULL THEN DATE'2026-03-01' ELSE d.valid_to END AS valid_to"
)
opened = news.selectExpr("customer_id AS id", "name", "country", "DATE'2026-03-01' AS valid_from", "CAST(NULL AS DATE) AS valid_to")
closed.unionByName(opened).write.format("delta").saveAsTable("dim.history")
# Periods from the days on which rows came.
sql("SELECT id, valid_from, lead(valid_from) OVER (PARTITION BY id ORDER BY valid_from) AS valid_until FROM dim.history").write.parquet(f"{lake}/out/sc/periods")
spark.stop()

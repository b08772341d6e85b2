"""Tables of three catalogues in one job: names of one to four parts, USE, joins and writes across catalogues."""
from shop import lake, raw, start

spark = start()
sql = spark.sql
raw("orders").createOrReplaceTempView("sold")
raw("customers").createOrReplaceTempView("people")
sql("CREATE NAMESPACE IF NOT EXISTS ice.sales")
sql("CREATE NAMESPACE IF NOT EXISTS lab.mart")
sql("CREATE NAMESPACE IF NOT EXISTS lab.mart.deep")
sql("CREATE DATABASE IF NOT EXISTS cm")
sql("CREATE TABLE ice.sales.orders USING iceberg PARTITIONED BY (day) AS SELECT * FROM sold")
sql("CREATE TABLE lab.mart.totals USING iceberg AS SELECT customer_id, sum(amount) AS total FROM ice.sales.orders GROUP BY customer_id")
sql("CREATE TABLE spark_catalog.cm.people USING delta AS SELECT customer_id, name, country FROM people")
# Names without their catalogue.
sql("USE lab.mart")
sql("CREATE TABLE best USING iceberg AS SELECT customer_id, total AS most FROM totals WHERE total > 1")
sql("CREATE TABLE lab.mart.deep.named USING iceberg AS SELECT p.name, b.most FROM best b JOIN spark_catalog.cm.people p ON p.customer_id = b.customer_id")
sql("INSERT INTO totals SELECT order_id, amount FROM ice.sales.orders WHERE day = 'mo'")
sql("USE spark_catalog.cm")
sql("CREATE TABLE joined USING parquet AS SELECT o.day, t.total, p.country FROM ice.sales.orders o JOIN lab.mart.totals t ON t.customer_id = o.customer_id JOIN people p ON p.customer_id = o.customer_id")
# In each catalogue a table of one name, and each is made of another catalogue's.
sql("CREATE TABLE lab.mart.orders USING iceberg AS SELECT order_id AS id, day AS label FROM ice.sales.orders")
sql("CREATE TABLE cm.orders USING delta AS SELECT id, upper(label) AS label FROM lab.mart.orders")
sql("INSERT OVERWRITE ice.sales.orders SELECT o.order_id, c.id, o.amount, 'tu' FROM ice.sales.orders o JOIN cm.orders c ON c.id = o.order_id WHERE o.day = 'tu'")
sql("MERGE INTO cm.orders t USING lab.mart.deep.named s ON t.label = s.name WHEN MATCHED THEN UPDATE SET t.label = s.name WHEN NOT MATCHED THEN INSERT (id, label) VALUES (CAST(s.most AS INT), s.name)")
# Paths beside tables.
sql(f"CREATE TABLE delta.`{lake}/out/cm/by_path` USING delta AS SELECT name AS person FROM people")
sql(f"SELECT person FROM delta.`{lake}/out/cm/by_path`").write.format("delta").mode("append").option("mergeSchema", "true").save(f"{lake}/out/cm/appended")
sql(f"INSERT INTO delta.`{lake}/out/cm/appended` SELECT country FROM people")
spark.table("lab.mart.best").writeTo("ice.sales.best").using("iceberg").createOrReplace()
spark.stop()

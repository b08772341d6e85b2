"""Tables that are dropped and created anew, and swapped: each generation has a lineage of its own."""
from shop import lake, raw, start

spark = start(hive=True)
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE")
customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True, schema="customer_id INT, name STRING")
payments = raw("payments")
for frame, view in ((orders, "sold"), (customers, "people"), (payments, "paid")):
    frame.createOrReplaceTempView(view)
spark.sql("CREATE DATABASE IF NOT EXISTS gen")

# Created, dropped, created again.
spark.sql("CREATE TABLE gen.again USING parquet AS SELECT customer_id AS id, name AS label FROM people")
spark.sql("DROP TABLE gen.again")
spark.sql("CREATE TABLE gen.again USING parquet AS SELECT order_id AS id, method AS label FROM paid")

# cur becomes prev, prev is dropped, and there is a new cur.
spark.sql("CREATE TABLE gen.cur USING parquet AS SELECT customer_id AS id, name AS label FROM people")
spark.sql("ALTER TABLE gen.cur RENAME TO gen.prev")
spark.sql("CREATE TABLE gen.cur USING parquet AS SELECT order_id AS id, string(amount) AS label FROM sold")
spark.sql("DROP TABLE gen.prev")

# The same, but prev stays: both are there in the end.
spark.sql("CREATE TABLE gen.live USING parquet AS SELECT customer_id AS id FROM people")
spark.sql("ALTER TABLE gen.live RENAME TO gen.backup")
spark.sql("CREATE TABLE gen.live USING parquet AS SELECT order_id AS id FROM sold")

# Read before it was dropped: what was made of it stays true.
spark.sql("CREATE TABLE gen.staging USING parquet AS SELECT order_id, amount FROM sold")
spark.sql("CREATE TABLE gen.result USING parquet AS SELECT order_id, amount * 2 AS doubled FROM gen.staging")
spark.sql("DROP TABLE gen.staging")

# Dropped, and only read afterwards from a table of the same name that another statement filled in steps.
spark.sql("DROP TABLE IF EXISTS gen.steps")
spark.sql("CREATE TABLE gen.steps (id INT, label STRING) USING parquet")
spark.sql("INSERT INTO gen.steps SELECT order_id, method FROM paid")
spark.sql("INSERT INTO gen.steps SELECT customer_id, name FROM people")
spark.stop()

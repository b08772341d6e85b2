"""A database as a catalogue of Spark: tables read, joined with files, created, appended to; beside it, a table read plainly."""

import sys
from shop import f, raw, start

lake, url = sys.argv[1:]
spark = start()
orders = raw("orders")
orders.createOrReplaceTempView("sold")
# Written and read by the names of the catalogue.
spark.sql("CREATE TABLE pg.public.totals AS SELECT customer_id, sum(amount) AS total FROM sold GROUP BY customer_id")
spark.sql("INSERT INTO pg.public.totals SELECT order_id, amount FROM sold")
spark.table("pg.public.customers").select("name", f.upper("country").alias("land")).write.parquet(f"{lake}/out/jc/people")
spark.sql(
    "SELECT c.name, t.total FROM pg.public.customers c JOIN pg.public.totals t ON c.customer_id = t.customer_id"
).write.json(f"{lake}/out/jc/joined")
# Grouped and cut by the database.
spark.sql("SELECT country, max(customer_id) AS last FROM pg.public.customers GROUP BY country").write.orc(f"{lake}/out/jc/last")
orders.join(spark.table("pg.public.customers"), "customer_id").select("order_id", "name").write.parquet(f"{lake}/out/jc/named")
# By its address: nothing in Spark's own log shows it.
spark.read.format("jdbc").options(url=url, dbtable="public.plain", driver="org.postgresql.Driver").load().select("label").write.csv(
    f"{lake}/out/jc/plain"
)
spark.stop()

"""Tables of PostgreSQL read by name, by query and in partitions; written by append, by truncate and through a view."""

import sys
from shop import start

lake, url = sys.argv[1], sys.argv[2]
spark = start()
shop = {"url": url, "driver": "org.postgresql.Driver", "user": "postgres", "password": "s3cret"}

orders = spark.read.format("jdbc").options(**shop, dbtable="orders").load()
customers = spark.read.format("jdbc").options(**shop, dbtable="crm.customers").load()
facts = orders.join(customers, "customer_id").select("order_id", "name", "amount")
facts.write.format("jdbc").options(**shop, dbtable="public.order_facts").mode("append").save()
orders.filter("amount > 100").join(customers, "customer_id").select("order_id", "name", "amount").write.format(
    "jdbc"
).options(**shop, dbtable="order_facts").mode("append").save()

totals = "SELECT o.customer_id, sum(o.amount) AS total FROM orders o GROUP BY o.customer_id"
spark.read.format("jdbc").options(**shop, query=totals).load().write.mode("overwrite").parquet(f"{lake}/out/jdbc/totals")

parts = spark.read.format("jdbc").options(
    **shop, dbtable="public.payments", partitionColumn="payment_id", lowerBound="0", upperBound="100", numPartitions="3"
)
parts.load().groupBy("method").count().write.format("jdbc").options(
    **shop, dbtable="methods", truncate="true"
).mode("overwrite").save()

options = ", ".join(f"{name} '{value}'" for name, value in {**shop, "dbtable": "crm.loyal"}.items())
spark.sql(f"CREATE TEMPORARY VIEW loyal USING jdbc OPTIONS ({options})")
customers.filter("country = 'DE'").createOrReplaceTempView("german")
spark.sql("INSERT INTO loyal SELECT customer_id, name FROM german")
spark.stop()

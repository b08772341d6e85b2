"""Delta: save as table, by path, MERGE from a view and from a table, UPDATE, DELETE, replaceWhere, time travel."""

from delta.tables import DeltaTable
from shop import lake, start

spark = start()
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True)
customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True, inferSchema=True)
spark.sql("CREATE DATABASE IF NOT EXISTS gold")

orders.write.format("delta").saveAsTable("gold.orders")
customers.write.format("delta").mode("overwrite").save(f"{lake}/delta/customers")
customers.filter("country = 'FR'").createOrReplaceTempView("french")
spark.sql(
    f"""
    MERGE INTO delta.`{lake}/delta/customers` t USING french s ON t.customer_id = s.customer_id
    WHEN MATCHED THEN UPDATE SET name = upper(s.name)
    WHEN NOT MATCHED THEN INSERT *
    """
)
latest = spark.table("gold.orders").filter("amount > 450")
target = DeltaTable.forName(spark, "gold.orders")
target.alias("t").merge(latest.alias("s"), "t.order_id = s.order_id").whenMatchedUpdate(
    set={"status": "s.status"}
).whenNotMatchedInsertAll().execute()
spark.sql("UPDATE gold.orders SET status = 'OLD' WHERE order_date < '2026-02-01'")
spark.sql("DELETE FROM gold.orders WHERE amount < 3")
spark.sql(
    f"""
    CREATE TABLE gold.revenue USING delta AS
    SELECT c.country, sum(o.amount) AS revenue
    FROM gold.orders o JOIN delta.`{lake}/delta/customers` c ON o.customer_id = c.customer_id GROUP BY c.country
    """
)
spark.table("gold.revenue").filter("country = 'DE'").write.format("delta").mode("overwrite").option(
    "replaceWhere", "country = 'DE'"
).saveAsTable("gold.revenue")
spark.read.format("delta").option("versionAsOf", 0).load(f"{lake}/delta/customers").write.mode("overwrite").parquet(
    f"{lake}/out/delta/first"
)
spark.stop()

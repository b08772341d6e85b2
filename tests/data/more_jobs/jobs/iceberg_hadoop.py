"""Iceberg in a Hadoop catalogue: CTAS, insert, MERGE, update, delete, overwrite, replace, time travel, drop."""
from shop import f as F, lake, start

spark = start()
spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True).createOrReplaceTempView("orders_csv")
spark.read.csv(f"{lake}/raw/customers.csv", header=True, inferSchema=True).createOrReplaceTempView("customers_csv")

spark.sql("CREATE TABLE ice.sales.orders USING iceberg PARTITIONED BY (status) AS SELECT * FROM orders_csv")
spark.sql("CREATE TABLE ice.sales.customers (customer_id INT, name STRING, country STRING) USING iceberg")
spark.sql("INSERT INTO ice.sales.customers SELECT * FROM customers_csv")
spark.sql(
    """
    MERGE INTO ice.sales.orders t USING (SELECT order_id, amount * 2 AS amount FROM orders_csv WHERE amount < 9) s
    ON t.order_id = s.order_id
    WHEN MATCHED THEN UPDATE SET t.amount = s.amount
    """
)
spark.sql("UPDATE ice.sales.orders SET amount = 0 WHERE status = 'OPEN' AND amount < 20")
spark.sql("DELETE FROM ice.sales.orders WHERE amount > 490")
by_country = spark.sql(
    """
    SELECT c.country, sum(o.amount) AS revenue FROM ice.sales.orders o
    JOIN ice.sales.customers c ON o.customer_id = c.customer_id GROUP BY c.country
    """
)
by_country.writeTo("ice.sales.revenue").using("iceberg").createOrReplace()
spark.table("ice.sales.revenue").filter("revenue > 0").writeTo("ice.sales.archive").using("iceberg").create()
by_country.withColumn("revenue", F.col("revenue") + 1).writeTo("ice.sales.revenue").overwrite(F.lit(True))

snapshot = spark.sql("SELECT snapshot_id FROM ice.sales.orders.snapshots ORDER BY committed_at LIMIT 1").first()[0]
spark.read.option("snapshot-id", snapshot).table("ice.sales.orders").write.mode("overwrite").parquet(f"{lake}/out/iceberg/first")
spark.sql("CREATE TABLE ice.sales.staging USING iceberg AS SELECT * FROM customers_csv")
spark.sql("DROP TABLE ice.sales.staging")
spark.stop()

"""Iceberg in a JDBC catalogue: CTAS, insert, MERGE, overwrite, one table into another, a read into files."""
from shop import f as F, lake, start

spark = start()
spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True).createOrReplaceTempView("orders_csv")
spark.read.csv(f"{lake}/raw/customers.csv", header=True, inferSchema=True).createOrReplaceTempView("customers_csv")
spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.sales")
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
by_country = spark.sql(
    """
    SELECT c.country, sum(o.amount) AS revenue FROM ice.sales.orders o
    JOIN ice.sales.customers c ON o.customer_id = c.customer_id GROUP BY c.country
    """
)
by_country.writeTo("ice.sales.revenue").using("iceberg").createOrReplace()
by_country.withColumn("revenue", F.col("revenue") + 1).writeTo("ice.sales.revenue").overwrite(F.lit(True))
spark.table("ice.sales.revenue").write.mode("overwrite").parquet(f"{lake}/out/iceberg/revenue")
spark.stop()

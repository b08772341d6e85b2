"""External tables, bucketing, INSERT OVERWRITE of one partition, ALTER TABLE, renames of external and partitioned tables."""
from shop import lake, start

spark = start(hive=True)
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True)
customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True, inferSchema=True)
spark.sql("CREATE DATABASE ext")

orders.write.option("path", f"{lake}/out/ext/orders").saveAsTable("ext.orders_v1")
spark.sql("ALTER TABLE ext.orders_v1 RENAME TO ext.orders_v2")
spark.sql(f"CREATE TABLE ext.names (customer_id INT, name STRING) USING parquet LOCATION '{lake}/out/ext/names'")
customers.createOrReplaceTempView("customers_csv")
spark.sql("INSERT INTO ext.names SELECT customer_id, name FROM customers_csv WHERE country = 'DE'")
spark.sql("INSERT INTO ext.names SELECT customer_id, lower(name) FROM customers_csv WHERE country = 'FR'")

orders.write.partitionBy("status").format("orc").saveAsTable("ext.by_status")
orders.createOrReplaceTempView("orders_csv")
spark.sql("INSERT OVERWRITE ext.by_status PARTITION (status = 'PAID') SELECT order_id, customer_id, amount, order_date FROM orders_csv LIMIT 9")
spark.sql("ALTER TABLE ext.by_status ADD COLUMNS (note STRING)")
spark.sql("ALTER TABLE ext.by_status RENAME TO ext.latest")
customers.write.bucketBy(2, "customer_id").saveAsTable("ext.buckets")
spark.sql(
    f"""
    CREATE TABLE ext.report USING json LOCATION '{lake}/out/ext/report' AS
    WITH spent AS (SELECT customer_id, sum(amount) AS spent FROM ext.latest GROUP BY customer_id)
    SELECT b.name, s.spent, n.name AS short FROM spent s
    JOIN ext.buckets b ON b.customer_id = s.customer_id
    LEFT JOIN ext.names n ON n.customer_id = s.customer_id
    WHERE s.customer_id IN (SELECT customer_id FROM ext.orders_v2 WHERE amount > 400)
    """
)
spark.sql("DROP TABLE ext.names")
spark.stop()

"""Hive tables: partitions, views on views, CTAS, LIKE, INSERT OVERWRITE DIRECTORY, multi-insert, TRUNCATE, LOAD DATA."""

import sys

from pyspark.sql import SparkSession

lake = sys.argv[1]
spark = SparkSession.builder.enableHiveSupport().config("hive.exec.dynamic.partition.mode", "nonstrict").getOrCreate()
spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True).createOrReplaceTempView("orders_csv")

spark.sql("CREATE DATABASE shop")
spark.sql(
    """
    CREATE TABLE shop.orders (order_id INT, customer_id INT, amount DOUBLE, order_date STRING)
    PARTITIONED BY (status STRING) STORED AS PARQUET
    """
)
spark.sql(
    """
    INSERT OVERWRITE TABLE shop.orders PARTITION (status)
    SELECT order_id, customer_id, amount, CAST(order_date AS STRING), status FROM orders_csv
    """
)
spark.sql("CREATE TABLE shop.customers (customer_id INT, name STRING, country STRING) ROW FORMAT DELIMITED FIELDS TERMINATED BY ','")
spark.sql(f"LOAD DATA LOCAL INPATH '{lake}/raw/customers.csv' INTO TABLE shop.customers")
spark.sql("CREATE VIEW shop.paid AS SELECT order_id, customer_id, amount FROM shop.orders WHERE status = 'PAID'")
spark.sql(
    """
    CREATE VIEW shop.paid_named AS
    SELECT p.order_id, c.name, p.amount FROM shop.paid p JOIN shop.customers c ON p.customer_id = c.customer_id
    """
)
spark.sql("CREATE TABLE shop.spending STORED AS ORC AS SELECT name, sum(amount) AS spent FROM shop.paid_named GROUP BY name")
spark.sql("CREATE TABLE shop.big LIKE shop.spending")
spark.sql("CREATE TABLE shop.small LIKE shop.spending")
spark.sql(
    """
    FROM shop.spending
    INSERT INTO shop.big SELECT name, spent WHERE spent > 1000
    INSERT INTO shop.small SELECT name, spent WHERE spent <= 1000
    """
)
spark.sql("TRUNCATE TABLE shop.small")
spark.sql(f"INSERT OVERWRITE DIRECTORY '{lake}/out/hive/report' USING json SELECT name FROM shop.big ORDER BY spent DESC LIMIT 3")
spark.sql(
    """
    INSERT INTO shop.big
    SELECT name, (SELECT max(amount) FROM shop.orders) AS spent FROM shop.customers WHERE country = 'PT'
    """
)
spark.stop()

"""One scan of Hive tables into many targets: partitions, groups, rejected rows, a folder, as an ETL team writes multi-inserts."""

import sys

from pyspark.sql import SparkSession

LAKE = sys.argv[1]
spark = (
    SparkSession.builder.appName("fan_out")
    .enableHiveSupport()
    .config("hive.exec.dynamic.partition.mode", "nonstrict")
    .getOrCreate()
)
DDL = """
CREATE DATABASE IF NOT EXISTS fan;
CREATE TABLE fan.large (order_id INT, customer_id INT, amount DOUBLE) PARTITIONED BY (day STRING) STORED AS parquet;
CREATE TABLE fan.per_customer (customer_id INT, orders BIGINT, spent DOUBLE) STORED AS orc;
CREATE TABLE fan.rejected (order_id INT, reason STRING) STORED AS parquet;
CREATE TABLE fan.named (order_id INT, buyer STRING, country STRING) STORED AS parquet;
CREATE TABLE fan.foreign_totals (country STRING, total DOUBLE) STORED AS parquet;
CREATE TABLE fan.tags (customer_id INT, tag STRING) STORED AS parquet;
CREATE TABLE fan.first_tags (customer_id INT, tag STRING) STORED AS parquet
"""
for statement in DDL.split(";"):
    spark.sql(statement)
spark.sql("""
FROM wh.sales s
INSERT OVERWRITE TABLE fan.large PARTITION (day)
  SELECT order_id, customer_id, round(amount, 2), day WHERE amount >= 10
INSERT OVERWRITE TABLE fan.per_customer
  SELECT customer_id, count(order_id), sum(amount) GROUP BY customer_id
INSERT INTO TABLE fan.rejected
  SELECT order_id, 'no amount' WHERE amount IS NULL
""")
spark.sql("""
FROM (SELECT s.order_id, s.amount, p.name, p.country FROM wh.sales s JOIN wh.people p ON p.customer_id = s.customer_id) j
INSERT INTO TABLE fan.named SELECT order_id, upper(name), country
INSERT INTO TABLE fan.foreign_totals SELECT country, sum(amount) WHERE country <> 'DE' GROUP BY country
""")
spark.sql("""
FROM wh.people LATERAL VIEW posexplode(split(name, ' ')) t AS place, word
INSERT INTO fan.tags SELECT customer_id, word
INSERT INTO fan.first_tags SELECT customer_id, lower(word) WHERE place = 0
""")
spark.sql(f"INSERT OVERWRITE DIRECTORY '{LAKE}/out/fan/rejected' USING csv SELECT r.order_id, r.reason, p.buyer FROM fan.rejected r LEFT JOIN fan.named p ON p.order_id = r.order_id")
spark.stop()

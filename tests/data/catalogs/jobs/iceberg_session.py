from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE DATABASE market LOCATION 's3://lake/warehouse/market.db'")
spark.sql("CREATE TABLE market.orders USING iceberg AS SELECT id AS order_id, id * 2 AS amount FROM range(3)")
spark.sql("INSERT INTO market.orders SELECT id + 10 AS order_id, id AS amount FROM range(2)")
spark.sql("CREATE TABLE market.plain USING parquet AS SELECT order_id, amount FROM market.orders")
spark.sql("INSERT OVERWRITE market.orders SELECT order_id, amount FROM market.plain")
spark.stop()

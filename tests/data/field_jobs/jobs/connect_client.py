"""A job of Spark Connect: frames, views, parameters, a table, rows of the client, and functions in Python."""

import sys

from pyspark.sql import SparkSession, Window, functions as F

lake = sys.argv[1]
spark = SparkSession.builder.appName("connect_client").getOrCreate()
spark.sql("CREATE DATABASE IF NOT EXISTS cc")
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE, day STRING")
people = spark.read.csv(f"{lake}/raw/customers.csv", header=True, schema="customer_id INT, name STRING, country STRING")
joined = orders.join(people, "customer_id").withColumn("net", F.col("amount") / 1.2)
joined.groupBy("country").agg(F.sum("net").alias("net"), F.max("day").alias("last")).write.mode("overwrite").parquet(f"{lake}/out/cc/by_country")
joined.select("order_id", "name", "net").write.mode("overwrite").saveAsTable("cc.orders")
people.createOrReplaceTempView("people")
spark.sql("SELECT customer_id, upper(name) AS name FROM people WHERE country = :land", args={"land": "DE"}).write.mode("overwrite").saveAsTable("cc.german")
spark.sql("CREATE TABLE cc.best USING parquet AS SELECT name, max(net) AS best FROM cc.orders GROUP BY name")
# Rows of the client become a frame of the server.
codes = spark.createDataFrame([("DE", "Germany"), ("FR", "France")], "country STRING, label STRING")
people.join(codes, "country", "left").select("customer_id", F.coalesce("label", "country").alias("land")).write.mode("overwrite").orc(f"{lake}/out/cc/lands")

@F.udf("string")
def initials(name: str) -> str:
    return "".join(word[0] for word in (name or "").split())

people.select("customer_id", initials("name").alias("initials")).write.mode("overwrite").json(f"{lake}/out/cc/initials")
ranked = orders.withColumn("place", F.row_number().over(Window.partitionBy("day").orderBy(F.desc("amount"))))
first = ranked.where("place = 1").select("day", "order_id")
print(first.count(), [row.day for row in first.limit(2).collect()])
first.write.mode("overwrite").parquet(f"{lake}/out/cc/first")
spark.table("cc.orders").filter("net > 1").writeTo("cc.large").using("parquet").create()
spark.stop()

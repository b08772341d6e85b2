"""UDFs, self-join, unions of files of different formats, caching, sampling, pivot, and several writes to one folder."""
from shop import f as F, lake, start

spark = start()
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True)
names = spark.read.parquet(f"{lake}/raw/names")
old = spark.read.json(f"{lake}/raw/old_orders")

discount = F.udf(lambda amount: (amount or 0.0) * 0.9, "double")
every = orders.select("order_id", "customer_id", "amount").unionByName(old.select("order_id", "customer_id", "amount"))
every = every.withColumn("reduced", discount("amount")).cache()
every.count()
every.join(names, "customer_id").write.mode("overwrite").parquet(f"{lake}/out/union/every")
first, second = every.alias("a"), every.alias("b")
first.join(second, F.col("a.customer_id") == F.col("b.customer_id")).groupBy("a.customer_id").agg(
    F.max(F.col("a.amount") - F.col("b.amount")).alias("spread")
).write.mode("overwrite").parquet(f"{lake}/out/union/spread")
for status in ("PAID", "OPEN"):
    orders.filter(F.col("status") == status).select("order_id", "status").write.mode("append").parquet(
        f"{lake}/out/union/by_status"
    )
names.select(F.col("customer_id").cast("int").alias("order_id"), F.lit("NONE").alias("status")).write.mode("append").parquet(
    f"{lake}/out/union/by_status"
)
orders.groupBy("customer_id").pivot("status", ["PAID", "OPEN"]).agg(F.sum("amount")).write.mode("overwrite").csv(
    f"{lake}/out/union/pivot"
)
every.unpersist()
spark.stop()

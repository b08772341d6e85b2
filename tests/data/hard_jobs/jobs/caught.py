"""Queries that fail while the job goes on: what only they read is no input, what others read, too, is one."""
from shop import f, lake, raw, start

spark = start(hive=True)
spark.sql("CREATE DATABASE IF NOT EXISTS ca")


def attempt(action):
    try:
        action()
    except Exception as error:
        print("FAILED", str(error).splitlines()[0])

bad = f.udf(lambda value: 1 // 0, "INT")
# Only failed queries read the refunds and the changes.
refunds = spark.read.csv(f"{lake}/raw/refunds.csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE, day STRING")
attempt(lambda: refunds.select(bad("order_id").alias("id")).write.parquet(f"{lake}/out/ca/refunds"))
attempt(lambda: refunds.select(f.raise_error("day").alias("day")).write.saveAsTable("ca.refunds"))
attempt(lambda: raw("changes").select(bad("customer_id")).collect())
# The second try succeeds.
attempt(lambda: raw("orders").select(bad("order_id").alias("id")).write.parquet(f"{lake}/out/ca/orders"))
raw("orders").select("order_id").write.parquet(f"{lake}/out/ca/orders", mode="overwrite")
# Another query reads what the failed one read, but other columns of it.
raw("customers").select("name").write.parquet(f"{lake}/out/ca/names")
attempt(lambda: raw("customers").join(raw("payments"), f.col("customer_id") == bad("order_id")).select("country", "method").write.parquet(f"{lake}/out/ca/joined"))
attempt(lambda: spark.sql("SELECT no_such_column FROM wh.people"))
spark.table("wh.sales").groupBy("day").agg(f.sum("amount").alias("total")).write.saveAsTable("ca.days")
spark.stop()

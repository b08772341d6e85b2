"""Queries that leave Spark's plans: checkpoints, collected rows, Pandas functions, RDDs, folders that are renamed."""

import pandas as pd
from shop import f, lake, raw, start

spark = start()
spark.sparkContext.setCheckpointDir(f"{lake}/checkpoints")
orders = raw("orders")
customers = raw("customers")
payments = raw("payments")
regions = spark.read.csv(f"{lake}/raw/regions.csv", header=True, schema="country STRING, region STRING")


def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/pc/{name}")

# Checkpoints cut the plan.
kept = orders.selectExpr("order_id", "amount * 2 AS doubled").checkpoint()
save(kept.selectExpr("order_id", "doubled + 1 AS more"), "checkpointed")
save(customers.selectExpr("upper(name) AS name").localCheckpoint(), "local")
save(orders.join(customers, "customer_id").localCheckpoint(eager=False).groupBy("name").agg(f.sum("amount").alias("revenue")), "lazy")
# The checkpoint of a union, and of its first part: their columns have the same ids.
both = orders.select("order_id").union(payments.select("order_id"))
save(both.localCheckpoint(), "both")
save(orders.select("order_id").localCheckpoint(), "first")

# Rows that the driver held.
rows = payments.select("order_id", "method").collect()
save(spark.createDataFrame(rows), "collected")
save(spark.createDataFrame(regions.toPandas()), "pandas")

# Functions in Python.
@f.pandas_udf("double")
def net(amount: pd.Series) -> pd.Series:
    return amount / 1.2


@f.pandas_udf("double")
def label(number: pd.Series, amount: pd.Series) -> pd.Series:
    return number * amount


@f.pandas_udf("double")
def mean(amount: pd.Series) -> float:
    return amount.mean()


def tax(frames):
    for frame in frames:
        yield pd.DataFrame({"order_id": frame.order_id, "tax": frame.amount * 0.2})


def best(frame):
    return frame.nlargest(1, "amount")[["customer_id", "amount"]]


def merged(left, right):
    return left.merge(right, on="order_id")[["order_id", "method"]]

save(orders.select("order_id", net("amount").alias("net"), label("order_id", "amount").alias("label")), "scalar")
save(orders.groupBy("customer_id").agg(mean("amount").alias("mean")), "mean")
save(orders.mapInPandas(tax, "order_id INT, tax DOUBLE"), "mapped")
save(orders.groupBy("customer_id").applyInPandas(best, "customer_id INT, amount DOUBLE"), "best")
save(
    orders.groupBy("order_id").cogroup(payments.groupBy("order_id")).applyInPandas(merged, "order_id INT, method STRING"),
    "merged",
)
# An RDD of a query.
save(customers.rdd.map(lambda row: (row.customer_id, row.name.upper())).toDF("customer_id INT, name STRING"), "rdd")
# Written beside, and renamed by Hadoop's file API.
save(regions.select("region"), "_beside")
hadoop = spark.sparkContext._jvm.org.apache.hadoop.fs
target = hadoop.Path(f"{lake}/out/pc/renamed")
target.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).rename(hadoop.Path(f"{lake}/out/pc/_beside"), target)
spark.stop()

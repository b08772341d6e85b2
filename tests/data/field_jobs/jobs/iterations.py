"""Loops that refine a frame: connected customers until nothing changes, ranks with a checkpoint each round, a frame made of many columns."""
from shop import f, lake, start

spark = start(hive=True)
sales, people = spark.table("wh.sales"), spark.table("wh.people")
spark.sparkContext.setCheckpointDir(f"{lake}/checkpoints/it")
spark.sql("CREATE DATABASE IF NOT EXISTS it")
# Customers that bought on the same day belong together.
edges = sales.alias("a").join(sales.alias("b"), "day").select(f.col("a.customer_id").alias("src"), f.col("b.customer_id").alias("dst")).distinct().cache()
groups = sales.select("customer_id", f.col("customer_id").alias("component")).distinct()
for _ in range(4):
    smallest = edges.join(groups, edges.src == groups.customer_id).groupBy("dst").agg(f.min("component").alias("least"))
    step = groups.join(smallest, groups.customer_id == smallest.dst).select("customer_id", f.least("component", "least").alias("component")).localCheckpoint()
    changed = step.join(groups.withColumnRenamed("component", "before"), "customer_id").where("component <> before").count()
    groups = step
    if changed == 0:
        break
groups.write.mode("overwrite").saveAsTable("it.components")
# Ranks: a reliable checkpoint in each round.
ranks = people.select("customer_id", f.lit(1.0).alias("rank"))
degree = edges.groupBy("src").agg(f.count("dst").alias("n"))
for number in range(2):
    shared = edges.join(degree, "src").join(ranks, f.col("src") == f.col("customer_id")).groupBy("dst").agg(f.sum(f.col("rank") / f.col("n")).alias("got"))
    ranks = people.join(shared, people.customer_id == shared.dst, "left").select("customer_id", (0.15 + 0.85 * f.coalesce("got", f.lit(0.0))).alias("rank"))
    ranks = ranks.checkpoint() if number else ranks
ranks.join(people, "customer_id").select("name", "rank").write.mode("overwrite").parquet(f"{lake}/out/it/ranks")
# A column for each value, one after the other, and a union of all steps.
days = ["2026-01-01", "2026-01-02", "2026-01-03"]
frame = sales
for place, day in enumerate(days):
    frame = frame.withColumn(f"d{place}", f.when(f.col("day") == day, f.col("amount")).otherwise(0.0))
frame.groupBy("customer_id").agg(*[f.sum(f"d{place}").alias(f"d{place}") for place in range(len(days))]).write.mode("overwrite").parquet(f"{lake}/out/it/days")
steps = None
for step in range(3):
    part = people.select("customer_id", f.lit(step).alias("step"), f.repeat("name", step).alias("text"))
    steps = part if steps is None else steps.unionByName(part)
steps.write.mode("overwrite").json(f"{lake}/out/it/steps")
spark.stop()

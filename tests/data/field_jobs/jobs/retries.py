"""A driver that decides: tries again after a failure, skips what is empty, creates or appends, takes the first source that is there."""
import time

from pyspark.errors import AnalysisException
from shop import f, lake, raw, start

spark = start(hive=True)
sales, people = spark.table("wh.sales"), spark.table("wh.people")
spark.sql("CREATE DATABASE IF NOT EXISTS rt")
attempts = []

def with_retries(write, times=3):
    for number in range(times):
        try:
            return write(number)
        except Exception as error:
            attempts.append(str(error).splitlines()[0])
            time.sleep(0.1)
    raise RuntimeError(attempts)

def flaky(number):
    """Fails twice, with other columns each time; the third attempt reads another table."""
    if number < 2:
        rows = sales.select("customer_id", f.raise_error(f.concat(f.lit("no "), "day")).cast("string").alias("text"))
    else:
        rows = people.select("customer_id", f.col("name").alias("text"))
    rows.write.mode("overwrite").saveAsTable("rt.texts")

with_retries(flaky)
with_retries(lambda number: raw("customers").select("country").write.mode("errorifexists").parquet(f"{lake}/out/rt/lands"))
with_retries(lambda number: sales.select("day").write.mode("errorifexists" if number == 0 else "append").parquet(f"{lake}/out/rt/lands" if number == 0 else f"{lake}/out/rt/days"))

def first_there(*names):
    for name in names:
        try:
            return spark.table(name) if "/" not in name else spark.read.parquet(name)
        except AnalysisException as error:
            attempts.append(str(error).splitlines()[0])

source = first_there("rt.missing", f"{lake}/not/there", "rt.texts")
source.groupBy("text").agg(f.count("customer_id").alias("n")).write.json(f"{lake}/out/rt/counted")
for day in ("2026-01-01", "1999-01-01"):
    rows = sales.where(f.col("day") == day).select("order_id", "amount", "day")
    if rows.isEmpty():
        continue
    if spark.catalog.tableExists("rt.daily"):
        rows.write.insertInto("rt.daily")
    else:
        rows.write.partitionBy("day").saveAsTable("rt.daily")
enough = sales.agg(f.max("amount").alias("m")).first().m > 1
(sales if enough else people).select("customer_id").write.parquet(f"{lake}/out/rt/chosen")
print(attempts)
spark.stop()

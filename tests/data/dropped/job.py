"""Sixteen writes of four threads, of many columns. Spark's bus may queue ten events only."""

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("dropped").getOrCreate()
spark.range(40).write.mode("overwrite").parquet("lake/src")


def write(number: int) -> None:
    rows = spark.read.parquet("lake/src").repartition(8)
    rows.selectExpr(f"id + {number} AS id").write.mode("overwrite").parquet(f"lake/t{number:02d}")


def keep_busy(number: int) -> None:
    spark.sparkContext.parallelize(range(60), 60).count()


with ThreadPoolExecutor(12) as pool:
    others = [pool.submit(keep_busy, number) for number in range(24)]
    list(pool.map(write, range(16)))
spark.stop()

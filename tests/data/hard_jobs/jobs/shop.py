"""What the jobs begin with: a session, the folder of their data, and the raw files in it."""

import sys

from pyspark.sql import DataFrame, SparkSession, functions as f

__all__ = ["f", "lake", "raw", "start"]

lake = sys.argv[1]
PEOPLE = "customer_id INT, name STRING, country STRING"
SCHEMAS = {
    "orders": "order_id INT, customer_id INT, amount DOUBLE, day STRING",
    "customers": PEOPLE,
    "changes": PEOPLE,
    "payments": "order_id INT, method STRING",
}


def start(hive: bool = False) -> SparkSession:
    """Return the session."""
    builder = SparkSession.builder.enableHiveSupport() if hive else SparkSession.builder
    return builder.getOrCreate()


def raw(name: str) -> DataFrame:
    """Return a raw file of CSV."""
    return SparkSession.active().read.csv(f"{lake}/raw/{name}.csv", header=True, schema=SCHEMAS[name])

"""Loads in threads at the same time, in sessions of their own with views of one name, and in one session."""
from concurrent.futures import ThreadPoolExecutor
from shop import f, lake, start

spark = start(hive=True)
spark.sql("CREATE DATABASE IF NOT EXISTS th")
ORDERS, PEOPLE = "order_id INT, customer_id INT, amount DOUBLE, day STRING", "customer_id INT, name STRING, country STRING"


def in_a_session(job):
    """Loads one file by a view that has the same name in each session."""
    file, schema, columns, target = job
    session = spark.newSession()
    session.read.csv(f"{lake}/raw/{file}", header=True, schema=schema).createOrReplaceTempView("src")
    session.sql(f"SELECT {columns} FROM src").write.mode("overwrite").saveAsTable(f"th.{target}")


def total(column):
    """Makes one of several summaries of the same two tables."""
    joined = spark.table("wh.sales").join(spark.table("wh.people"), "customer_id")
    joined.groupBy(column).agg(f.sum("amount").alias(f"by_{column}")).write.parquet(f"{lake}/out/th/by_{column}")


def insert(number):
    """Inserts into one table of Hive's, or two others."""
    source, column = (("wh.sales", "day"), ("wh.people", "name"), ("wh.people", "country"))[number]
    spark.sql(f"INSERT INTO th.labels_{number} SELECT upper({column}) FROM {source}")

for number in range(3):
    spark.sql(f"CREATE TABLE th.labels_{number} (label STRING) USING parquet")
with ThreadPoolExecutor(4) as pool:
    jobs = [
        ("orders.csv", ORDERS, "order_id AS id, day AS label", "orders"),
        ("customers.csv", PEOPLE, "customer_id AS id, name AS label", "customers"),
        ("changes.csv", PEOPLE, "customer_id AS id, country AS label", "changes"),
        ("orders.csv", ORDERS, "customer_id AS id, concat(day, amount) AS label", "days"),
    ]
    list(pool.map(in_a_session, jobs))
    list(pool.map(total, ["country", "day", "name"]))
    list(pool.map(insert, range(3)))
spark.stop()

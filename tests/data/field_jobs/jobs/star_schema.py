"""A star: dimensions with keys of their own and an unknown member, a calendar, facts that look all of them up, an aggregate and a wide view."""
from functools import reduce

from pyspark.sql import Window
from shop import f, lake, raw, start

spark = start(hive=True)
sql = spark.sql
sales, people, payments = spark.table("wh.sales"), spark.table("wh.people"), raw("payments")
sql("CREATE DATABASE IF NOT EXISTS st")

def dimension(frame, name, column):
    """Write a dimension with a number for each value, and one for those that are unknown."""
    keyed = frame.select(column).distinct().withColumn(f"{name}_key", f.row_number().over(Window.orderBy(column)))
    unknown = spark.createDataFrame([("unknown", -1)], f"{column} STRING, {name}_key INT")
    keyed.unionByName(unknown).write.mode("overwrite").saveAsTable(f"st.dim_{name}")
    return spark.table(f"st.dim_{name}")

lands = dimension(people, "land", "country")
methods = dimension(payments, "method", "method")
first, last = sales.agg(f.min(f.to_date("day")), f.max(f.to_date("day"))).first()
calendar = spark.range(1).select(f.explode(f.sequence(f.lit(first), f.lit(last))).alias("date"))
calendar.select("date", f.date_format("date", "yyyyMMdd").cast("int").alias("date_key"), f.weekofyear("date").alias("week")).write.mode("overwrite").saveAsTable("st.dim_date")
people.join(lands, "country", "left").select(f.xxhash64("customer_id").alias("customer_key"), "customer_id", "name", f.coalesce("land_key", f.lit(-1)).alias("land_key")).write.mode("overwrite").saveAsTable("st.dim_customer")
customers, dates = spark.table("st.dim_customer"), spark.table("st.dim_date")
facts = (
    sales.join(payments, "order_id", "left")
    .join(f.broadcast(methods), "method", "left")
    .join(customers.select("customer_id", "customer_key", "land_key"), "customer_id", "left")
    .join(dates, f.to_date(sales.day) == dates.date, "left")
    .select("order_id", *[f.coalesce(key, f.lit(-1)).alias(key) for key in ("customer_key", "land_key", "method_key", "date_key")], "amount")
)
facts.write.mode("overwrite").partitionBy("date_key").saveAsTable("st.fact_sales")
lookups = [("st.dim_land", "land_key"), ("st.dim_method", "method_key"), ("st.dim_date", "date_key")]
wide = reduce(lambda frame, lookup: frame.join(spark.table(lookup[0]), lookup[1], "left"), lookups, spark.table("st.fact_sales"))
wide.groupBy("country", "week").agg(f.sum("amount").alias("total")).write.mode("overwrite").saveAsTable("st.agg_week")
sql("CREATE OR REPLACE VIEW st.sales AS SELECT f.order_id, c.name, l.country, f.amount FROM st.fact_sales f JOIN st.dim_customer c USING (customer_key) JOIN st.dim_land l ON l.land_key = f.land_key")
sql("SELECT name, country, max(amount) AS best FROM st.sales GROUP BY name, country").write.mode("overwrite").parquet(f"{lake}/out/st/best")
spark.stop()

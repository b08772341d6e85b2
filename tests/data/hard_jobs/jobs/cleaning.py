"""Frames as engineers clean data: rows of an RDD and of pandas, structs changed in place, sessions, filled gaps, a calendar, statistics."""

from pyspark.sql import Window
from shop import f, lake, start

spark = start(hive=True)
sales, people = spark.table("wh.sales"), spark.table("wh.people")
spark.sql("CREATE DATABASE IF NOT EXISTS cl")


def save(frame, name):
    frame.write.parquet(f"{lake}/out/cl/{name}")

# Lines of an RDD, as CSV.
save(spark.read.csv(spark.sparkContext.textFile(f"{lake}/raw/payments.csv"), schema="order_id INT, method STRING"), "from_rdd")
# By way of pandas.
save(spark.createDataFrame(people.toPandas()).select("customer_id", "name"), "from_pandas")
packed = sales.select(f.struct("order_id", "amount").alias("o"), "day")
save(packed.withColumn("o", f.col("o").withField("double", f.col("o.amount") * 2).dropFields("order_id")), "struct")
# Sessions: a new one begins with each new day.
own = Window.partitionBy("customer_id").orderBy("day")
marked = sales.withColumn("before", f.lag("day").over(own)).withColumn("new", f.when(f.col("before").isNull() | (f.col("day") != f.col("before")), 1).otherwise(0))
sessions = marked.withColumn("session", f.sum("new").over(own)).groupBy("customer_id", "session").agg(f.sum("amount").alias("total"), f.count("*").alias("n"))
save(sessions, "sessions")
save(people.na.fill({"country": "??"}).na.replace("DE", "Germany", "country").dropna("any"), "filled")
calendar = sales.agg(f.expr("explode(sequence(to_date(min(day)), to_date(max(day))))").alias("date"))
save(calendar.join(sales, calendar["date"] == f.to_date(sales["day"]), "left").groupBy("date").agg(f.sum("amount").alias("total")), "calendar")
save(sales.describe("amount"), "described")
# A join of few keys, spread by a salt.
salted = people.withColumn("salt", f.explode(f.array(*map(f.lit, range(3)))))
save(sales.withColumn("salt", (f.rand(1) * 3).cast("int")).join(salted, ["customer_id", "salt"]).select("order_id", "name"), "salted")
sales.write.partitionBy("day").option("maxRecordsPerFile", 2).format("orc").saveAsTable("cl.by_day")
save(spark.table("cl.by_day").where("day > '2026-01-01'").select("order_id"), "later")
save(spark.read.text(f"{lake}/raw/lines").select(f.regexp_extract("value", r"(\d+)", 1).cast("int").alias("number"), f.length("value").alias("size")), "numbers")
save(people.withColumnsRenamed({"name": "who", "customer_id": "id"}).drop("country"), "renamed")
# Each row once more for each day of its week, and back to one row.
days = sales.withColumn("d", f.explode(f.array("day", f.lit("x"))))
save(days.groupBy("order_id").agg(f.collect_set("d").alias("days"), f.first("amount", ignorenulls=True).alias("amount")), "weeks")
# The latest state of rows by a self join.
last = sales.groupBy("customer_id").agg(f.max("day").alias("day"))
save(sales.alias("a").join(last.alias("b"), (f.col("a.customer_id") == f.col("b.customer_id")) & (f.col("a.day") == f.col("b.day"))).select("a.order_id", f.col("b.day").alias("last_day")), "self")
# In place of a loop over columns.
columns = [f.trim(f.col(name)).alias(name) if kind == "string" else f.col(name) for name, kind in people.dtypes]
save(people.select(*columns).withColumn("hash", f.xxhash64(*people.columns)), "trimmed")
spark.stop()

"""Windows, a pivot, and its columns as rows again, one after the other: running values, shares, bands, gaps and islands."""
from pyspark.sql import Window
from shop import f, lake, start

spark = start(hive=True)
sales, people = spark.table("wh.sales"), spark.table("wh.people")

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/wp/{name}")

own = Window.partitionBy("customer_id").orderBy("day")
running = sales.withColumns({
    "so_far": f.sum("amount").over(own.rowsBetween(Window.unboundedPreceding, Window.currentRow)),
    "moving": f.avg("amount").over(own.rowsBetween(-2, 0)),
    "first_day": f.first("day").over(own),
    "next_amount": f.lead("amount", 1, 0.0).over(own),
})
save(running.select("order_id", "so_far", "moving", "first_day", "next_amount"), "running")
shares = sales.withColumn("share", f.col("amount") / f.sum("amount").over(Window.partitionBy("day")))
save(shares.groupBy("day").pivot("customer_id", [1, 2]).agg(f.max("share")).withColumnRenamed("1", "one").withColumnRenamed("2", "two"), "shares")
wide = sales.join(people, "customer_id").groupBy("country").pivot("day", ["2026-01-01", "2026-01-02"]).agg(f.sum("amount").alias("s"), f.max("order_id").alias("m"))
named = wide.toDF("country", "s1", "m1", "s2", "m2")
save(named, "wide")
long = named.unpivot(["country"], ["s1", "s2"], "column", "total")
save(long.where("total IS NOT NULL"), "long")
save(long.withColumn("place", f.dense_rank().over(Window.partitionBy("column").orderBy(f.desc("total")))).where("place <= 2").select("country", "total"), "best")
save(named.selectExpr("country", "stack(2, 's', s1 + s2, 'm', double(m1 + m2)) AS (kind, value)"), "stacked")
# Bands, and the islands of days that follow each other.
ordered = Window.orderBy("amount")
save(sales.select("order_id", f.ntile(4).over(ordered).alias("quarter"), f.percent_rank().over(ordered).alias("rank"), f.nth_value("amount", 2).over(ordered).alias("second")), "bands")
islands = sales.select("customer_id", f.to_date("day").alias("d")).distinct().withColumn("island", f.date_sub("d", f.row_number().over(Window.partitionBy("customer_id").orderBy("d"))))
save(islands.groupBy("customer_id", "island").agg(f.min("d").alias("since"), f.max("d").alias("until")).drop("island"), "islands")
spark.sql("""SELECT * FROM (
  SELECT country, day, amount, avg(amount) OVER (PARTITION BY country) AS mean FROM wh.sales JOIN wh.people USING (customer_id)
) PIVOT (max(amount - mean) AS above, count(amount) AS n FOR (country, day) IN (('DE', '2026-01-01') AS de, ('FR', '2026-01-02') AS fr))""").write.json(f"{lake}/out/wp/above")
spark.stop()

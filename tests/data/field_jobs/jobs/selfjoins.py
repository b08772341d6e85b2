"""A table joined with itself and with what was made of it: aliases, neighbours, latest before, ranges, hierarchies, NATURAL and USING."""
from shop import f, lake, start

spark = start(hive=True)
sql = spark.sql
sales, people = spark.table("wh.sales"), spark.table("wh.people")
sql("CREATE DATABASE IF NOT EXISTS sj")

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/sj/{name}")

a, b = sales.alias("a"), sales.alias("b")
save(a.join(b, (f.col("a.customer_id") == f.col("b.customer_id")) & (f.col("a.order_id") < f.col("b.order_id"))).select(f.col("a.order_id").alias("first"), f.col("b.order_id").alias("second"), (f.col("b.amount") - f.col("a.amount")).alias("more")), "pairs")
sql("""CREATE TABLE sj.before USING parquet AS
SELECT n.order_id, n.amount, (SELECT max_by(o.amount, o.day) FROM wh.sales o WHERE o.customer_id = n.customer_id AND o.day < n.day) AS amount_before FROM wh.sales n""")
# Everyone's boss is the one with the number before.
sql("""CREATE TABLE sj.bosses USING parquet AS
SELECT e.name AS employee, b.name AS boss, coalesce(g.country, 'none') AS land_of_boss
FROM wh.people e LEFT JOIN wh.people b ON b.customer_id = e.customer_id - 1 LEFT JOIN wh.people g ON g.customer_id = b.customer_id - 1""")
totals = sales.groupBy("customer_id").agg(f.sum("amount").alias("total"))
save(sales.join(totals, "customer_id").select("order_id", (f.col("amount") / f.col("total")).alias("share")), "shares")
save(totals.alias("x").crossJoin(totals.alias("y")).where("x.total > y.total").groupBy("x.customer_id").agg(f.count("y.customer_id").alias("beaten")), "beaten")
best = sales.groupBy("day").agg(f.max("amount").alias("amount"))
save(sales.join(best, ["day", "amount"]).select("day", "order_id"), "best_of_day")
sql("CREATE TABLE sj.natural USING parquet AS SELECT * FROM wh.sales NATURAL JOIN (SELECT customer_id, name FROM wh.people)")
sql("CREATE TABLE sj.using_full USING parquet AS SELECT customer_id, s.amount, p.name FROM wh.sales s FULL JOIN wh.people p USING (customer_id)")
# By a range of days; the last change up to an order.
sql("""CREATE TABLE sj.week USING parquet AS SELECT a.day, sum(b.amount) AS of_week FROM (SELECT DISTINCT day FROM wh.sales) a
JOIN wh.sales b ON to_date(b.day) BETWEEN date_sub(to_date(a.day), 6) AND to_date(a.day) GROUP BY a.day""")
shifted = sales.select(f.date_add(f.to_date("day"), 1).alias("next_day"), f.col("amount").alias("amount_before"))
save(sales.join(shifted, f.to_date("day") == f.col("next_day"), "left").select("order_id", "amount", "amount_before"), "shifted")
save(people.join(people.where("country = 'DE'").select("customer_id"), "customer_id", "left_anti").select("name"), "not_german")
save(people.where("country = 'DE'").select("name").union(people.where("country <> 'DE'").select(f.upper("country"))), "halves")
spark.stop()

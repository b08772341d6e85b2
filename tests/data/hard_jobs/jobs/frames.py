"""Frames of columns that are missing, nested, exploded, pivoted, renamed, made by functions of functions."""
from shop import f, lake, raw, start

spark = start(hive=True)
orders = raw("orders")
customers = raw("customers")
orders.createOrReplaceTempView("sold")
customers.createOrReplaceTempView("people")

def save(frame, name):
    frame.write.parquet(f"{lake}/out/fr/{name}")

# Columns that only one part has.
save(orders.select("order_id", "amount").unionByName(customers.select("customer_id", "name"), allowMissingColumns=True), "named")
save(orders.selectExpr("order_id AS id", "day").unionByName(customers.selectExpr("country AS day", "customer_id AS id")), "by_name")
# Nested columns, written and read back.
save(orders.select(f.struct("order_id", f.struct("amount", "day").alias("paid")).alias("line"), "customer_id"), "nested")
nested = spark.read.parquet(f"{lake}/out/fr/nested")
save(nested.select("line.paid.amount", f.col("line").dropFields("paid").alias("rest")), "flat")
save(nested.selectExpr("rank() OVER (PARTITION BY customer_id ORDER BY line.paid.amount) AS place", "line.order_id AS id"), "ranked")
# Generators.
save(spark.sql("SELECT customer_id, place, word FROM people LATERAL VIEW OUTER posexplode(split(name, ' ')) AS place, word"), "words")
save(spark.sql("SELECT inline(array(struct(order_id, day), struct(customer_id AS order_id, 'x' AS day))) AS (number, label) FROM sold"), "inlined")
save(customers.selectExpr("stack(2, 'n', name, 'c', country) AS (kind, value)"), "stacked")
# Functions of elements, of JSON, of maps.
save(orders.groupBy("customer_id").agg(f.collect_list("amount").alias("all")).selectExpr("customer_id", "transform(all, x -> x * 2) AS doubled"), "lambdas")
save(customers.selectExpr("from_json(name, 'a INT, b STRING').b AS b", "to_json(struct(country)) AS json"), "json")
save(customers.selectExpr("map(name, country)['x'] AS of_x"), "maps")
# Groups and joins.
save(orders.groupBy("customer_id").pivot("day", ["mo", "tu"]).agg(f.sum("amount")), "pivoted")
save(orders.alias("a").join(orders.alias("b"), f.expr("a.order_id = b.customer_id")).selectExpr("a.amount AS mine", "b.day AS theirs"), "selves")
save(orders.join(customers, "customer_id", "full").select("customer_id", f.coalesce("day", "country").alias("where")), "outer")
save(spark.sql("SELECT name, top FROM people p, LATERAL (SELECT max(amount) AS top FROM sold s WHERE s.customer_id = p.customer_id)"), "lateral")
save(orders.agg(f.expr("count(DISTINCT day) FILTER (WHERE amount > 1)").alias("days"), f.expr("percentile(amount, 0.5)").alias("half")), "totals")
# Names.
save(orders.withColumnsRenamed({"amount": "paid"}).withColumns({"day": f.upper("day")}).drop("customer_id"), "renamed")
save(orders.na.fill(0).dropDuplicates(["day"]).repartition(2).sortWithinPartitions("day").limit(5).select("day", "amount"), "cleaned")
save(orders.selectExpr("CASE WHEN amount > 1 THEN day ELSE 'none' END AS label", "1 AS one", "current_date() AS today"), "cases")
save(orders.select("customer_id").intersect(customers.select("customer_id")), "common")
spark.stop()

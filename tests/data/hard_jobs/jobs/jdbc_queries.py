"""Queries that a database runs for Spark: subqueries as a table, the option query, and tables written from them."""

import sys
from shop import f, raw, start

lake, port = sys.argv[1:3]
spark = start()
options = {"url": f"jdbc:postgresql://127.0.0.1:{port}/shop", "user": "shop", "password": "s3cret", "driver": "org.postgresql.Driver"}


def of_query(text):
    return spark.read.format("jdbc").options(**options, query=text).load()


def of_table(text):
    return spark.read.format("jdbc").options(**options, dbtable=text).load()


def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/jq/{name}")

save(of_table("(SELECT order_id AS id, amount * 2 AS doubled FROM public.orders) AS t"), "renamed")
save(of_query("SELECT order_id, amount FROM public.orders WHERE amount > 1").withColumn("more", f.col("amount") + 1), "more")
save(
    of_table(
        "(SELECT c.name, sum(o.amount) AS revenue FROM public.orders o JOIN public.customers c "
        "ON c.customer_id = o.customer_id GROUP BY c.name) sub"
    ),
    "revenue",
)
save(of_query("WITH big AS (SELECT * FROM public.orders WHERE amount > 1) SELECT customer_id FROM big"), "big")
save(of_query("SELECT * FROM public.customers"), "all_customers")
# Of two columns only one is used.
save(of_table("(SELECT name, country FROM public.customers) narrow").select("country"), "countries")
orders = raw("orders")
named = of_query("SELECT customer_id AS id, upper(name) AS label FROM public.customers")
save(orders.join(named, orders.customer_id == named.id).select("order_id", "label"), "labelled")
of_query("SELECT customer_id, name FROM public.customers").write.format("jdbc").options(**options, dbtable="public.copied").mode(
    "overwrite"
).save()
of_table("public.customers").select("country").write.format("jdbc").options(**options, dbtable="public.countries").mode("append").save()
spark.stop()

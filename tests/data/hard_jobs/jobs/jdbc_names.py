"""Tables of PostgreSQL with names that must be quoted, aggregates that the database computes, and save modes."""

import sys
from shop import f, start

lake, port = sys.argv[1:3]
spark = start()
url = f"jdbc:postgresql://127.0.0.1:{port}/shop"
options = {"url": url, "user": "shop", "password": "s3cret", "driver": "org.postgresql.Driver"}


def table(name, **more):
    return spark.read.format("jdbc").options(**options, dbtable=name, **more).load()


def write(frame, name, mode):
    try:
        frame.write.format("jdbc").options(**options, dbtable=name).mode(mode).save()
    except Exception as error:
        print("REFUSED", str(error).splitlines()[0])

orders = table("public.orders")
# Quoted when written, and when read again.
write(orders.selectExpr("order_id", "amount AS total"), '"Sales"."Order Totals"', "overwrite")
table('"Sales"."Order Totals"').select("total").write.mode("overwrite").parquet(f"{lake}/out/jd/totals")
write(orders.select("order_id"), '"Sales".plain', "append")
# Refused: the table is there.
write(orders.select("order_id", "customer_id"), "public.kept", "error")
write(orders.select("order_id", "customer_id"), "public.kept", "ignore")
# Written: it is not.
write(orders.select("customer_id"), "public.fresh", "error")
# No rows are written, but the table is.
write(orders.where("order_id < 0").select("order_id"), "public.no_rows", "error")
write(spark.createDataFrame([], "order_id INT"), "public.no_data", "overwrite")
# The database computes the aggregate.
pushed = table("public.orders", pushDownAggregate="true").groupBy("customer_id").agg(f.sum("amount").alias("revenue"))
pushed.write.mode("overwrite").parquet(f"{lake}/out/jd/revenue")
# A subquery reads two of the four columns; the table itself is read as well.
spark.read.format("jdbc").options(**options, query="SELECT order_id, amount FROM public.payments WHERE amount > 1").load().write.mode(
    "overwrite"
).parquet(f"{lake}/out/jd/paid")
table("public.payments").select("method", "order_id").write.mode("overwrite").parquet(f"{lake}/out/jd/methods")
table("(SELECT order_id AS id FROM public.payments) AS narrow").write.mode("overwrite").parquet(f"{lake}/out/jd/narrow")
spark.stop()

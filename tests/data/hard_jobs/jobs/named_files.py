"""Files of one folder that a job names one by one or by a pattern, by each reader, beside files that it does not read."""

from pathlib import Path

from shop import f, lake, start

spark = start()
orders = "order_id INT, customer_id INT, amount DOUBLE, day STRING"


def save(frame, name):
    frame.write.parquet(f"{lake}/out/nf/{name}")

# Two of the many files in a folder, joined with a third.
both = spark.read.csv([f"{lake}/raw/orders.csv", f"{lake}/raw/refunds.csv"], header=True, schema=orders)
customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True, schema="customer_id INT, name STRING, country STRING")
save(both.join(customers, "customer_id").select("name", "amount"), "two")
# A pattern that one file matches.
save(spark.read.csv(f"{lake}/raw/pay*.csv", header=True, schema="order_id INT, method STRING").select("method"), "one")
# Files with other names in two folders.
save(spark.read.json([f"{lake}/in/web/clicks.json", f"{lake}/in/shop/visits.json"], schema="customer_id INT, page STRING").select("page"), "events")
# Parts of one dataset: its folder.
save(spark.read.text(f"{lake}/logs/2026/*/*.log").select(f.upper("value").alias("line")), "logs")
save(spark.read.csv(f"{lake}/in/daily/orders-2026-01-0*.csv", header=True, schema=orders).select("order_id"), "daily")
save(spark.read.format("binaryFile").load(f"{lake}/in/photos/photo-*.png").select("length"), "photos")
save(spark.read.parquet(*map(str, Path(f"{lake}/in/plain").glob("*.parquet"))).select("amount"), "plain")
# A folder, and a file in it: both are named.
save(spark.read.text(f"{lake}/in/notes").select(f.length("value").alias("size")), "notes")
save(spark.read.text(f"{lake}/in/notes/today.txt").select("value"), "today")
spark.stop()

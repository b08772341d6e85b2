"""Delta tables: save modes, failures, nothing to write, and a stream between two of them."""
from shop import f, lake, start

spark = start()
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE")
customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True, schema="customer_id INT, name STRING")


def attempt(action):
    try:
        action()
    except Exception as error:
        print("REFUSED", str(error).splitlines()[0])

orders.write.format("delta").save(f"{lake}/out/de/orders")
customers.write.format("delta").mode("overwrite").save(f"{lake}/out/de/customers")
# No writes.
attempt(lambda: customers.write.format("delta").mode("error").save(f"{lake}/out/de/orders"))
attempt(lambda: customers.write.format("delta").mode("ignore").save(f"{lake}/out/de/orders"))
attempt(lambda: customers.select(f.raise_error("name").alias("n")).write.format("delta").save(f"{lake}/out/de/broken"))
# Writes of nothing.
orders.where("amount < 0").write.format("delta").save(f"{lake}/out/de/no_rows")
spark.sql("CREATE DATABASE IF NOT EXISTS de")
orders.write.format("delta").saveAsTable("de.kept")
customers.createOrReplaceTempView("people")
attempt(lambda: customers.write.format("delta").mode("ignore").saveAsTable("de.kept"))
attempt(lambda: spark.sql("CREATE TABLE IF NOT EXISTS de.kept USING delta AS SELECT * FROM people"))
attempt(lambda: spark.sql("CREATE TABLE de.broken USING delta AS SELECT raise_error(name) AS n FROM people"))
spark.sql("CREATE TABLE de.named USING delta AS SELECT name FROM people")
# From one table to another, as a stream.
stream = spark.readStream.format("delta").load(f"{lake}/out/de/orders").select("order_id")
stream.writeStream.format("delta").option("checkpointLocation", f"{lake}/checkpoints/de").trigger(availableNow=True).start(
    f"{lake}/out/de/streamed"
).awaitTermination()
spark.stop()

"""What Python writes itself: in the driver, and on executors for each partition; and what comes back from its rows."""
import os
from shop import f, lake, raw, start

spark = start()
orders = raw("orders")
people = raw("customers")
payments = raw("payments")
os.makedirs(f"{lake}/out/bh/parts", exist_ok=True)


def store(rows):
    listed = [f"{row.order_id},{row.amount}\n" for row in rows]
    if listed:
        with open(f"{lake}/out/bh/parts/{os.getpid()}-{listed[0].split(',')[0]}.csv", "w") as file:
            file.writelines(listed)

orders.select("order_id", "amount").foreachPartition(store)
people.select("name").toPandas().to_csv(f"{lake}/out/bh/people.csv", index=False)
with open(f"{lake}/out/bh/payments.txt", "w") as file:
    for row in payments.toLocalIterator():
        file.write(f"{row.order_id} {row.method}\n")
# What Python wrote is read again: no input.
spark.read.text(f"{lake}/out/bh/parts").selectExpr("value AS line").write.parquet(f"{lake}/out/bh/lines")
# Rows by way of an RDD, and a function of a column.
orders.rdd.map(lambda row: (row.order_id, row.amount * 2)).toDF(["id", "twice"]).write.parquet(f"{lake}/out/bh/mapped")
shout = f.udf(lambda name: (name or "") + "!", "string")
people.select("customer_id", shout("name").alias("loud")).write.parquet(f"{lake}/out/bh/loud")
# The driver's list decides which rows are read; it is no column.
wanted = [row.customer_id for row in people.where("country = 'DE'").select("customer_id").collect()]
orders.where(f.col("customer_id").isin(wanted)).select("order_id", "day").write.json(f"{lake}/out/bh/wanted")
spark.stop()

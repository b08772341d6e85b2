"""Python in queries: functions of rows, table functions, Arrow, groups and states of Pandas, registered for SQL."""
from typing import Iterator
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row
from shop import f, lake, raw, start

spark = start()
orders = raw("orders")
customers = raw("customers")
orders.createOrReplaceTempView("sold")
customers.createOrReplaceTempView("people")

@f.udtf(returnType="word STRING, length INT")
class Words:
    def eval(self, text: str):
        for word in (text or "").split():
            yield word, len(word)

@f.udtf(returnType="customer_id INT, total DOUBLE")
class Totals:
    def __init__(self):
        self.total, self.id = 0.0, None
    def eval(self, row: Row):
        self.id, self.total = row["customer_id"], self.total + row["amount"]
    def terminate(self):
        yield self.id, self.total

@f.udf("struct<low: double, high: double>")
def bounds(amount, number):
    return amount - number, amount + number

@f.udf("string", useArrow=True)
def shout(text):
    return text.upper()

@f.pandas_udf("double")
def scaled(parts: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for part in parts:
        yield part * 2

def arrow(batches):
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column("order_id")], names=["order_id"])

def save(frame, name):
    frame.write.parquet(f"{lake}/out/ud/{name}")

spark.udtf.register("words", Words)
spark.udtf.register("totals", Totals)
spark.udf.register("shout", shout)
spark.udf.register("tagged", lambda text: "t" + text)
save(spark.sql("SELECT customer_id, w.word, w.length FROM people, LATERAL words(name) w"), "words")
save(spark.sql("SELECT * FROM totals(TABLE(sold) PARTITION BY customer_id)"), "totals")
save(orders.select("order_id", bounds("amount", "order_id").alias("b")).select("order_id", "b.low", "b.high"), "bounds")
save(spark.sql("SELECT shout(name) AS loud, tagged(country) AS tag, max(customer_id) AS id FROM people GROUP BY 1, 2"), "registered")
save(orders.select(scaled("amount").alias("scaled"), "day").where(f.col("scaled") > 1), "scaled")
save(orders.mapInArrow(arrow, "order_id INT"), "arrow")
save(orders.withColumn("late", shout("day")).groupBy("late").agg(f.avg("amount").alias("mean")).join(customers.select(shout("country").alias("late"), "name"), "late", "left"), "joined")
spark.stop()

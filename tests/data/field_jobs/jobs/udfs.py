"""Python functions in places: in conditions and keys, over windows, of structs, of aggregates, of functions; lists that are exploded."""
import pandas as pd
from pyspark.sql import Window
from shop import f, lake, start

spark = start(hive=True)
sales, people = spark.table("wh.sales"), spark.table("wh.people")

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/uf/{name}")

@f.udf("array<string>")
def words(text):
    return (text or "").lower().split()

@f.udf("boolean")
def is_large(amount):
    return (amount or 0) > 10

@f.udf("string")
def bucket(number):
    return f"b{(number or 0) % 2}"

@f.pandas_udf("double")
def total(amounts: pd.Series) -> float:
    return float(amounts.sum())

@f.pandas_udf("name string, code string")
def parts(names: pd.Series, countries: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"name": names.str.strip(), "code": countries.str[:1]})

save(people.select("customer_id", f.explode(words("name")).alias("word")), "words")
save(sales.where(is_large("amount")).select("order_id"), "large")
save(sales.groupBy(bucket("customer_id").alias("bucket")).agg(f.sum("amount").alias("total")), "buckets")
save(sales.join(people, bucket(sales.customer_id) == bucket(people.customer_id)).select("order_id", "name"), "joined")
save(sales.withColumn("of_day", total("amount").over(Window.partitionBy("day"))).select("order_id", "of_day"), "of_day")
save(people.select("customer_id", parts("name", "country").alias("p")).select("customer_id", "p.*"), "parts")
save(people.withColumn("n", f.size(words(f.concat_ws(" ", "name", "country")))).select(bucket("n").alias("b"), bucket(f.length(bucket("customer_id"))).alias("of_bucket")), "nested")
save(sales.groupBy("day").agg(f.max("amount").alias("top")).select("day", is_large("top").alias("large")), "aggregates")
save(sales.groupBy("day").agg(total("amount").alias("total"), total(f.col("amount") * f.col("order_id")).alias("weighted")), "groups")
spark.udf.register("words", words)
spark.udf.register("is_large", is_large)
save(spark.sql("SELECT w, count(customer_id) AS n FROM wh.people LATERAL VIEW explode(words(name)) t AS w GROUP BY w HAVING is_large(count(*)) OR true"), "counted")
save(spark.sql("SELECT order_id, CASE WHEN is_large(amount) THEN day ELSE 'small' END AS label FROM wh.sales"), "labels")
spark.stop()

"""The pandas API on Spark: files merged, columns computed and grouped, written as files and as tables."""

import pyspark.pandas as ps
from shop import lake, start

spark = start(hive=True)
spark.sql("CREATE DATABASE IF NOT EXISTS pp")
orders = ps.read_csv(f"{lake}/raw/orders.csv", names="order_id INT, customer_id INT, amount DOUBLE, day STRING", header=0)
people = ps.read_csv(f"{lake}/raw/customers.csv", names="customer_id INT, name STRING, country STRING", header=0)
joined = orders.merge(people, on="customer_id")
joined["net"] = joined["amount"] * 0.8
joined.groupby("country")["net"].sum().reset_index().to_parquet(f"{lake}/out/pp/by_country")
joined[["order_id", "net"]].to_parquet(f"{lake}/out/pp/nets")
joined[joined.net > 1].rename(columns={"name": "who"})[["who", "day"]].to_spark().write.saveAsTable("pp.big")
sales = ps.read_table("wh.sales")
sales.sort_values("amount").drop_duplicates("customer_id")[["customer_id", "day"]].to_table("pp.firsts", format="parquet")
ps.concat([people[["name"]], ps.read_table("wh.people")[["name"]]]).to_spark().write.parquet(f"{lake}/out/pp/names")
ps.sql("SELECT max(amount) AS top, day FROM {sold} GROUP BY day", sold=orders).to_parquet(f"{lake}/out/pp/tops")
spark.stop()

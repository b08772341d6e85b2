"""PostgreSQL as people read it: in partitions, by predicates, with a prepared query, joined with files; written by batch, truncate and a staging table."""
import sys

from shop import f, raw, start

lake, port = sys.argv[1:3]
spark = start()
url = f"jdbc:postgresql://127.0.0.1:{port}/shop"
login = {"user": "shop", "password": "s3cret", "driver": "org.postgresql.Driver"}

def read(**options):
    return spark.read.format("jdbc").options(url=url, **login, **options).load()

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/jp/{name}")

orders = spark.read.jdbc(url, "public.orders", column="order_id", lowerBound=1, upperBound=100, numPartitions=3, properties=login)
save(orders.where("amount > 1").select("order_id", "amount"), "partitioned")
by_land = spark.read.jdbc(url, "public.customers", predicates=["country = 'DE'", "country <> 'DE'", "country IS NULL"], properties=login)
save(by_land.groupBy("country").agg(f.count("name").alias("names")), "by_land")
save(read(dbtable="(SELECT customer_id AS id, upper(name) AS name FROM public.customers) AS c", partitionColumn="id", lowerBound=1, upperBound=9, numPartitions=2), "partitioned_query")
save(read(prepareQuery="WITH recent AS (SELECT order_id, amount FROM public.orders WHERE amount > 2)", query="SELECT order_id, amount FROM recent"), "prepared")
save(read(dbtable="public.orders", pushDownLimit="true", sessionInitStatement="SET work_mem = '4MB'", fetchsize="100").orderBy(f.desc("amount")).limit(2).select("customer_id"), "limited")
joined = orders.join(by_land, "customer_id").join(raw("payments"), "order_id", "left")
joined.select("order_id", "name", "method").write.jdbc(url, "public.enriched", mode="overwrite", properties={**login, "batchsize": "50", "truncate": "true"})
raw("customers").select("customer_id", f.trim("name").alias("name")).write.format("jdbc").options(url=url, **login, dbtable="staging.people", createTableColumnTypes="name VARCHAR(80)").mode("overwrite").save()
# What the database then does with the staging table is not Spark's.
connection = spark._jvm.java.sql.DriverManager.getConnection(url, "shop", "s3cret")
connection.createStatement().execute("INSERT INTO public.people SELECT * FROM staging.people")
connection.close()
save(read(query="SELECT p.name, o.amount FROM public.people p JOIN public.orders o ON o.customer_id = p.customer_id"), "merged")
spark.read.format("jdbc").options(url=url, **login, dbtable="public.enriched").load().createOrReplaceTempView("enriched")
spark.sql("SELECT method, count(DISTINCT order_id) AS orders FROM enriched GROUP BY method").write.mode("append").json(f"{lake}/out/jp/methods")
spark.stop()

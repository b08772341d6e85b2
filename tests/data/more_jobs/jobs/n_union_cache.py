from pyspark.sql import SparkSession, functions as F
import sys
L=sys.argv[1]
spark=SparkSession.builder.enableHiveSupport().getOrCreate() if len(sys.argv)>2 else SparkSession.builder.getOrCreate()
o=spark.read.csv(f"{L}/raw/orders.csv",header=True,inferSchema=True); c=spark.read.csv(f"{L}/raw/customers.csv",header=True,inferSchema=True)

paid=o.filter("status='PAID'").cache(); paid.count()
u=paid.select("order_id","customer_id").unionByName(o.filter("status='OPEN'").select("order_id","customer_id"))
u.write.mode("overwrite").parquet(f"{L}/out/n/all_orders")
paid.groupBy("customer_id").count().write.mode("overwrite").json(f"{L}/out/n/per_customer")
spark.stop()

from pyspark.sql import SparkSession, functions as F
import sys
L=sys.argv[1]
spark=SparkSession.builder.enableHiveSupport().getOrCreate() if len(sys.argv)>2 else SparkSession.builder.getOrCreate()
o=spark.read.csv(f"{L}/raw/orders.csv",header=True,inferSchema=True); c=spark.read.csv(f"{L}/raw/customers.csv",header=True,inferSchema=True)

o.filter("status='PAID'").select("order_id","amount").write.mode("overwrite").parquet(f"{L}/out/p/mixed")
c.select(F.col("customer_id").alias("order_id"),F.lit(0.0).alias("amount")).write.mode("append").parquet(f"{L}/out/p/mixed")
spark.stop()

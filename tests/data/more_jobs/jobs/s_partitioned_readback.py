from pyspark.sql import SparkSession, functions as F
import sys
L=sys.argv[1]
spark=SparkSession.builder.enableHiveSupport().getOrCreate() if len(sys.argv)>2 else SparkSession.builder.getOrCreate()
o=spark.read.csv(f"{L}/raw/orders.csv",header=True,inferSchema=True); c=spark.read.csv(f"{L}/raw/customers.csv",header=True,inferSchema=True)

o.withColumn("month",F.substring("order_date",1,7)).write.mode("overwrite").partitionBy("month").parquet(f"{L}/out/s/by_month")
m=spark.read.parquet(f"{L}/out/s/by_month")
m.groupBy("month").count().write.mode("overwrite").json(f"{L}/out/s/counts")
spark.stop()

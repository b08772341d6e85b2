from pyspark.sql import SparkSession, functions as F
import sys
L=sys.argv[1]
spark=SparkSession.builder.enableHiveSupport().getOrCreate() if len(sys.argv)>2 else SparkSession.builder.getOrCreate()
o=spark.read.csv(f"{L}/raw/orders.csv",header=True,inferSchema=True); c=spark.read.csv(f"{L}/raw/customers.csv",header=True,inferSchema=True)

o.limit(5).write.mode("overwrite").json(f"{L}/out/q/first")
spark.stop()
spark=SparkSession.builder.appName("q_second").getOrCreate()
spark.read.csv(f"{L}/raw/customers.csv",header=True).limit(5).write.mode("overwrite").json(f"{L}/out/q/second")
spark.stop()

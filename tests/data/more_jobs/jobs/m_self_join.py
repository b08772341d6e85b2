from pyspark.sql import SparkSession, functions as F
import sys
L=sys.argv[1]
spark=SparkSession.builder.enableHiveSupport().getOrCreate() if len(sys.argv)>2 else SparkSession.builder.getOrCreate()
o=spark.read.csv(f"{L}/raw/orders.csv",header=True,inferSchema=True); c=spark.read.csv(f"{L}/raw/customers.csv",header=True,inferSchema=True)

a=o.alias("a"); b=o.alias("b")
a.join(b,F.col("a.customer_id")==F.col("b.customer_id")).select(F.col("a.order_id").alias("first"),F.col("b.order_id").alias("second")).limit(50).write.mode("overwrite").parquet(f"{L}/out/m/pairs")
spark.stop()

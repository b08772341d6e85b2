from pyspark.sql import SparkSession, functions as F
import sys
L=sys.argv[1]
spark=SparkSession.builder.enableHiveSupport().getOrCreate() if len(sys.argv)>2 else SparkSession.builder.getOrCreate()
o=spark.read.csv(f"{L}/raw/orders.csv",header=True,inferSchema=True); c=spark.read.csv(f"{L}/raw/customers.csv",header=True,inferSchema=True)

spark.sql("CREATE DATABASE IF NOT EXISTS chain")
spark.sql("DROP TABLE IF EXISTS chain.base"); spark.sql("DROP TABLE IF EXISTS chain.agg")
o.write.mode("overwrite").saveAsTable("chain.base")
spark.sql("CREATE TABLE chain.agg AS SELECT customer_id, sum(amount) AS total FROM chain.base GROUP BY customer_id")
spark.sql("INSERT INTO chain.agg SELECT customer_id, 0 FROM (SELECT DISTINCT customer_id FROM chain.base)")
spark.table("chain.agg").filter("total>10").write.mode("overwrite").csv(f"{L}/out/r/big")
spark.stop()

from pyspark.sql import SparkSession, functions as F
import sys
L=sys.argv[1]
spark=SparkSession.builder.enableHiveSupport().getOrCreate() if len(sys.argv)>2 else SparkSession.builder.getOrCreate()
o=spark.read.csv(f"{L}/raw/orders.csv",header=True,inferSchema=True); c=spark.read.csv(f"{L}/raw/customers.csv",header=True,inferSchema=True)

o.createOrReplaceTempView("v_o"); c.createOrReplaceTempView("v_c")
spark.udf.register("shout",lambda s:(s or "")+"!","string")
spark.sql("CREATE OR REPLACE TEMP VIEW v_j AS SELECT v_o.order_id, shout(v_c.name) AS name FROM v_o JOIN v_c USING (customer_id)")
spark.sql("SELECT * FROM v_j WHERE order_id < 100").write.mode("overwrite").orc(f"{L}/out/o/shouted")
spark.stop()

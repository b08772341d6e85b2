"""Two sessions of one application (newSession) with temporary views of one name, global views, and a second application."""

import sys

from pyspark.sql import SparkSession

lake = sys.argv[1]
spark = SparkSession.builder.appName("two_sessions").getOrCreate()
other = spark.newSession()
spark.read.csv(f"{lake}/raw/orders.csv", header=True).createOrReplaceTempView("source")
other.read.csv(f"{lake}/raw/customers.csv", header=True).createOrReplaceTempView("source")

spark.sql("SELECT order_id FROM source").write.mode("overwrite").parquet(f"{lake}/out/two/orders")
other.sql("SELECT customer_id, name FROM source").write.mode("overwrite").parquet(f"{lake}/out/two/customers")
other.sql("SELECT * FROM source WHERE country = 'DE'").createOrReplaceGlobalTempView("german")
spark.sql("SELECT s.order_id, g.name FROM source s JOIN global_temp.german g USING (customer_id)").write.mode(
    "overwrite"
).orc(f"{lake}/out/two/german_orders")
spark.stop()

again = SparkSession.builder.appName("two_sessions_again").getOrCreate()
again.read.parquet(f"{lake}/out/two/customers").write.mode("overwrite").json(f"{lake}/out/two/copy")
again.stop()

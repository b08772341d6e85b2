"""Iceberg: a branch that is written and read, a tag, and metadata tables that are read last, into a file of their own."""
from shop import lake, start

spark = start()
spark.read.csv(f"{lake}/raw/orders.csv", header=True, inferSchema=True).createOrReplaceTempView("orders_csv")
spark.sql("CREATE TABLE ice.sales.orders USING iceberg AS SELECT * FROM orders_csv WHERE status = 'OPEN'")
spark.sql("ALTER TABLE ice.sales.orders CREATE BRANCH audit")
spark.sql("ALTER TABLE ice.sales.orders CREATE TAG opened")
spark.sql("INSERT INTO ice.sales.orders.branch_audit SELECT * FROM orders_csv WHERE status = 'PAID'")
spark.sql("SELECT order_id, amount FROM ice.sales.orders VERSION AS OF 'audit'").write.mode("overwrite").parquet(
    f"{lake}/out/branch/audited"
)
spark.sql("SELECT order_id, amount FROM ice.sales.orders.tag_opened").write.mode("overwrite").parquet(
    f"{lake}/out/branch/opened"
)
spark.table("ice.sales.orders.files").select("file_path", "record_count").write.mode("overwrite").json(
    f"{lake}/out/branch/files"
)
spark.table("ice.sales.orders.snapshots").select("snapshot_id").show()
spark.stop()

"""Iceberg's branches and past: audit before publish, branches of writers, tags, incremental reads, snapshots by time and number, cherry-picks."""
from shop import f, lake, raw, start

spark = start()
sql = spark.sql
orders, people = raw("orders"), raw("customers")
orders.createOrReplaceTempView("sold")
sql("CREATE NAMESPACE IF NOT EXISTS ice.ib")
sql("CREATE TABLE ice.ib.orders (order_id INT, amount DOUBLE, day STRING) USING iceberg PARTITIONED BY (truncate(8, day)) TBLPROPERTIES ('write.wap.enabled' = 'true')")
orders.select("order_id", "amount", "day").writeTo("ice.ib.orders").append()
sql("ALTER TABLE ice.ib.orders CREATE TAG first_load")
# Written to a branch, checked there, published.
spark.conf.set("spark.wap.branch", "tonight")
sql("INSERT INTO ice.ib.orders SELECT customer_id, amount * 2, 'late' FROM sold")
wrong = spark.table("ice.ib.orders").where("amount < 0").count()
spark.conf.unset("spark.wap.branch")
if wrong == 0:
    sql("CALL ice.system.fast_forward('ib.orders', 'main', 'tonight')")
# Branches by name: of SQL, of writers, merged into, read.
sql("ALTER TABLE ice.ib.orders CREATE OR REPLACE BRANCH fix RETAIN 7 DAYS")
people.select(f.col("customer_id").alias("order_id"), f.lit(0.0).alias("amount"), f.col("country").alias("day")).writeTo("ice.ib.orders.branch_fix").append()
sql("MERGE INTO ice.ib.orders.branch_fix t USING (SELECT order_id, max(amount) AS amount FROM sold GROUP BY order_id) s ON t.order_id = s.order_id WHEN MATCHED THEN UPDATE SET amount = s.amount WHEN NOT MATCHED THEN INSERT (order_id, amount) VALUES (s.order_id, s.amount)")
spark.read.option("branch", "fix").table("ice.ib.orders").groupBy("day").agg(f.sum("amount").alias("total")).writeTo("ice.ib.fixed").using("iceberg").create()
sql("SELECT order_id FROM ice.ib.orders VERSION AS OF 'first_load'").write.mode("overwrite").parquet(f"{lake}/out/ib/first")
# The past by number and by time, and what came between.
snapshots = [row.snapshot_id for row in sql("SELECT snapshot_id FROM ice.ib.orders.snapshots ORDER BY committed_at").collect()]
spark.read.option("versionAsOf", snapshots[0]).table("ice.ib.orders").select(f.max("amount").alias("most")).write.mode("overwrite").parquet(f"{lake}/out/ib/most")
spark.read.format("iceberg").option("start-snapshot-id", snapshots[0]).option("end-snapshot-id", snapshots[1]).load("ice.ib.orders").select("order_id", "day").write.mode("append").parquet(f"{lake}/out/ib/between")
sql("SELECT a.order_id, a.amount - b.amount AS changed FROM ice.ib.orders a JOIN ice.ib.orders FOR SYSTEM_VERSION AS OF {} b ON a.order_id = b.order_id".format(snapshots[0])).writeTo("ice.ib.changes_of").using("iceberg").createOrReplace()
sql("SELECT h.snapshot_id, s.operation FROM ice.ib.orders.history h JOIN ice.ib.orders.snapshots s ON h.snapshot_id = s.snapshot_id").write.mode("overwrite").json(f"{lake}/out/ib/history")
sql("ALTER TABLE ice.ib.orders DROP BRANCH fix")
sql("CREATE TABLE ice.ib.people USING iceberg TBLPROPERTIES ('format-version' = '2', 'write.merge.mode' = 'merge-on-read') AS SELECT order_id AS id, day AS label FROM ice.ib.orders WHERE day = 'late'")
sql("DELETE FROM ice.ib.people WHERE id > 100")
sql("INSERT OVERWRITE ice.ib.people BY NAME SELECT day AS label, order_id AS id FROM sold")
spark.stop()

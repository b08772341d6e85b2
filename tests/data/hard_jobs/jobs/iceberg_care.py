"""The care of Iceberg tables: procedures, branches, partitions that change, rows that go by a subquery, files that are added."""
from shop import f, lake, raw, start

spark = start()
sql = spark.sql
orders = raw("orders")
orders.createOrReplaceTempView("sold")
raw("customers").createOrReplaceTempView("people")
raw("payments").createOrReplaceTempView("paid")
sql("CREATE NAMESPACE IF NOT EXISTS ice.ic")
sql("CREATE TABLE ice.ic.sales USING iceberg PARTITIONED BY (day) TBLPROPERTIES ('format-version' = '2') AS SELECT order_id, customer_id, amount, day FROM sold")
first = sql("SELECT snapshot_id FROM ice.ic.sales.snapshots ORDER BY committed_at").first()[0]
# Rows that change or go because of another table: a condition only.
sql("UPDATE ice.ic.sales SET amount = amount + order_id WHERE customer_id IN (SELECT customer_id FROM people WHERE country = 'DE')")
sql("DELETE FROM ice.ic.sales WHERE order_id IN (SELECT order_id FROM paid WHERE method = 'void')")
# Partitions and columns that change.
sql("ALTER TABLE ice.ic.sales ADD PARTITION FIELD bucket(4, customer_id)")
sql("ALTER TABLE ice.ic.sales ADD COLUMN note STRING")
sql("INSERT INTO ice.ic.sales (order_id, customer_id, day, note) SELECT customer_id, customer_id, 'we', name FROM people")
sql("ALTER TABLE ice.ic.sales RENAME COLUMN note TO remark")
sql("SELECT remark FROM ice.ic.sales WHERE remark IS NOT NULL").write.parquet(f"{lake}/out/ic/remarks")
# A branch that is checked and then taken.
sql("ALTER TABLE ice.ic.sales CREATE BRANCH audit")
sql("INSERT INTO ice.ic.sales.branch_audit SELECT order_id * 10, customer_id, amount, day, 'audit' FROM sold")
sql("SELECT order_id, amount FROM ice.ic.sales VERSION AS OF 'audit'").write.parquet(f"{lake}/out/ic/audited")
sql("CALL ice.system.fast_forward('ic.sales', 'main', 'audit')")
orders.where("day = 'mo'").withColumn("remark", f.lit("x")).writeTo("ice.ic.sales").overwrite(f.col("day") == "mo")
# Care.
sql("CALL ice.system.rewrite_data_files(table => 'ic.sales', options => map('rewrite-all', 'true'))").collect()
sql("CALL ice.system.rewrite_manifests('ic.sales')").collect()
sql("SELECT file_path, record_count FROM ice.ic.sales.files").write.parquet(f"{lake}/out/ic/files")
sql(f"CALL ice.system.rollback_to_snapshot('ic.sales', {first})")
sql("CALL ice.system.expire_snapshots(table => 'ic.sales', retain_last => 1)").collect()
# Files that become a part of a table.
sql("CREATE TABLE ice.ic.added (order_id INT, amount DOUBLE) USING iceberg")
sql(f"CALL ice.system.add_files(table => 'ic.added', source_table => '`parquet`.`{lake}/in/plain`')").collect()
sql("SELECT amount FROM ice.ic.added").write.parquet(f"{lake}/out/ic/of_files")
spark.stop()

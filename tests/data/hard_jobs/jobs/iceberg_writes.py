"""Ways to write Iceberg tables: writeTo, partitions, replaced tables, MERGE of a query, columns that are added, old versions."""
from shop import f, lake, raw, start

spark = start()
orders = raw("orders")
customers = raw("customers")
orders.createOrReplaceTempView("sold")
customers.createOrReplaceTempView("people")

orders.writeTo("ice.db.sold").partitionedBy(f.col("day")).create()
orders.where("amount > 5").writeTo("ice.db.sold").append()
orders.where("day = 'mo'").withColumn("amount", f.col("order_id") * 1.0).writeTo("ice.db.sold").overwritePartitions()
customers.selectExpr("customer_id AS order_id", "customer_id", "2.0D AS amount", "'tu' AS day").writeTo("ice.db.sold").overwrite(f.expr("day = 'tu'"))
customers.select("name", "country").writeTo("ice.db.people").createOrReplace()
# A replaced table: its columns are others, those of the first one are gone with it.
orders.selectExpr("order_id AS id", "day AS label").writeTo("ice.db.state").create()
customers.selectExpr("customer_id AS id", "country AS label").writeTo("ice.db.state").replace()
spark.sql("CREATE TABLE ice.db.days (day STRING, total DOUBLE) USING iceberg PARTITIONED BY (day)")
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
spark.sql("INSERT OVERWRITE ice.db.days SELECT day, sum(amount) FROM ice.db.sold GROUP BY day")
spark.sql("INSERT INTO ice.db.days (total, day) SELECT amount, 'x' FROM sold")
spark.sql("ALTER TABLE ice.db.people ADD COLUMN best DOUBLE")
spark.sql(
    "MERGE INTO ice.db.people t USING (SELECT name, max(amount) AS top FROM people JOIN sold USING (customer_id) GROUP BY name) s "
    "ON t.name = s.name WHEN MATCHED THEN UPDATE SET t.best = s.top WHEN NOT MATCHED THEN INSERT (name, best) VALUES (s.name, s.top)"
)
spark.read.format("iceberg").load("ice.db.people").select("best").write.parquet(f"{lake}/out/iw/best")
version = spark.sql("SELECT snapshot_id FROM ice.db.sold.snapshots ORDER BY committed_at").first()[0]
spark.sql(f"SELECT amount FROM ice.db.sold VERSION AS OF {version}").write.parquet(f"{lake}/out/iw/old")
spark.sql("CALL ice.system.rewrite_data_files(table => 'db.sold')")
spark.sql("SELECT day FROM ice.db.days").write.parquet(f"{lake}/out/iw/days")
spark.stop()

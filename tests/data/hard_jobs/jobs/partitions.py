"""Partitions that are overwritten dynamically, made of another one, or named in part; buckets; several levels."""
from shop import lake, raw, start

spark = start(hive=True)
orders = raw("orders")
customers = raw("customers")
orders.createOrReplaceTempView("sold")
customers.createOrReplaceTempView("people")

spark.sql("CREATE DATABASE IF NOT EXISTS pt")
spark.sql("CREATE TABLE pt.days (order_id INT, amount DOUBLE, day STRING) USING parquet PARTITIONED BY (day)")
spark.sql("INSERT INTO pt.days SELECT order_id, amount, day FROM sold")
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
spark.sql("INSERT OVERWRITE pt.days PARTITION (day) SELECT customer_id, amount * 2, day FROM sold WHERE day = 'mo'")
# One partition made of another one of the same table.
spark.sql("INSERT INTO pt.days PARTITION (day = 'su') SELECT order_id, amount FROM pt.days WHERE day = 'mo'")
# Hive's format, two levels, of which the query gives the second.
spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
spark.sql("CREATE TABLE pt.places (label STRING) PARTITIONED BY (land STRING, kind STRING) STORED AS orc")
spark.sql("INSERT INTO pt.places PARTITION (land = 'fr', kind) SELECT name, country FROM people")
# Buckets, and partitions of a saved table.
orders.write.bucketBy(4, "customer_id").sortBy("order_id").saveAsTable("pt.bucketed")
orders.select("amount", "day").write.partitionBy("day").format("json").saveAsTable("pt.saved")
# By position: the names of the query are not those of the table.
spark.sql("CREATE TABLE pt.swapped (first STRING, second STRING) USING orc")
customers.select("country", "name").write.insertInto("pt.swapped", overwrite=True)
spark.table("pt.bucketed").join(customers, "customer_id").select("name", "amount").write.parquet(f"{lake}/out/pt/joined")
# Files in partitions, and one of the partitions read by its path.
orders.write.partitionBy("day", "customer_id").mode("append").orc(f"{lake}/out/pt/files")
spark.read.orc(f"{lake}/out/pt/files").where("day = 'mo'").select("order_id", "day").write.json(f"{lake}/out/pt/monday")
spark.stop()

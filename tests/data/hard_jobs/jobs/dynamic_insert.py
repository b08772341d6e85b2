"""Partitions overwritten dynamically from two sources, by position, by insertInto, in Hive's format, and found again by REPAIR."""
from shop import lake, raw, start

spark = start(hive=True)
sql = spark.sql
raw("changes").createOrReplaceTempView("changes")
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
sql("CREATE DATABASE IF NOT EXISTS di")
sql("CREATE TABLE di.facts (order_id INT, label STRING, country STRING, day STRING) USING parquet PARTITIONED BY (country, day)")
sql("INSERT OVERWRITE di.facts PARTITION (country, day) SELECT s.order_id, p.name, p.country, s.day FROM wh.sales s JOIN wh.people p ON s.customer_id = p.customer_id")
sql("INSERT OVERWRITE di.facts PARTITION (country = 'xx', day) SELECT customer_id, concat(name, '!'), country FROM changes")
# By position: the names of the parts are not those of the table.
sql("CREATE TABLE di.daily (who INT, total DOUBLE, day STRING) USING orc PARTITIONED BY (day)")
sql("INSERT OVERWRITE TABLE di.daily PARTITION (day) SELECT customer_id, amount, day FROM wh.sales UNION ALL SELECT customer_id, 0D, name FROM changes")
spark.table("wh.sales").selectExpr("order_id", "amount * 2 AS customer_id", "upper(day) AS label").write.insertInto("di.daily", overwrite=True)
sql("CREATE TABLE di.hive_daily (who INT, total DOUBLE) PARTITIONED BY (day STRING) STORED AS parquet")
sql("WITH t AS (SELECT day, customer_id, sum(amount) AS total FROM wh.sales GROUP BY day, customer_id) INSERT OVERWRITE TABLE di.hive_daily PARTITION (day) SELECT customer_id, total, day FROM t")
sql("INSERT INTO di.hive_daily PARTITION (day = 'all') SELECT p.customer_id, h.total FROM wh.people p JOIN di.hive_daily h ON h.who = p.customer_id")
# Files in partitions, then a table over them, which finds its partitions.
spark.table("wh.sales").join(spark.table("wh.people"), "customer_id").select("order_id", "amount", "country", "day").write.partitionBy("country", "day").parquet(f"{lake}/out/di/by_day")
sql(f"CREATE TABLE di.over_files (order_id INT, amount DOUBLE, country STRING, day STRING) USING parquet PARTITIONED BY (country, day) LOCATION '{lake}/out/di/by_day'")
sql("MSCK REPAIR TABLE di.over_files")
sql("ALTER TABLE di.over_files DROP IF EXISTS PARTITION (country = 'none', day = 'none')")
sql("SELECT country, max(amount) AS top FROM di.over_files WHERE day = 'mo' GROUP BY country").write.mode("overwrite").json(f"{lake}/out/di/tops")
spark.stop()

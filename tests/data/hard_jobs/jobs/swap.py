"""Tables replaced by way of another: through saveAsTable, by renames, with a DROP of the table of an earlier job."""
from shop import f, lake, raw, start

spark = start(hive=True)
sql = spark.sql
raw("changes").createOrReplaceTempView("changes")
sql("CREATE DATABASE IF NOT EXISTS sw")
spark.table("wh.sales").select("customer_id", "amount", "day").write.saveAsTable("sw.daily")
try:
    spark.table("sw.daily").withColumn("amount", f.col("amount") * 2).write.mode("overwrite").saveAsTable("sw.daily")
except Exception as error:
    print("REFUSED", str(error).splitlines()[0])
# Through a table that is dropped afterwards.
joined = spark.table("sw.daily").alias("d").join(spark.table("changes").alias("c"), "customer_id", "left")
joined.select("customer_id", (f.col("amount") + 1).alias("amount"), f.coalesce("c.country", "day").alias("day")).write.saveAsTable("sw.daily_tmp")
spark.table("sw.daily_tmp").write.mode("overwrite").saveAsTable("sw.daily")
sql("DROP TABLE sw.daily_tmp")
# By renames.
sql("CREATE TABLE sw.label USING parquet AS SELECT customer_id, name, country FROM wh.people")
sql("CREATE TABLE sw.label_new USING parquet AS SELECT l.customer_id, coalesce(c.name, l.name) AS name, l.country FROM sw.label l LEFT JOIN changes c ON c.customer_id = l.customer_id")
sql("ALTER TABLE sw.label RENAME TO sw.label_old")
sql("ALTER TABLE sw.label_new RENAME TO sw.label")
sql("SELECT name AS shown FROM sw.label").write.parquet(f"{lake}/out/sw/shown")
# A table of an earlier job: made anew beside it, dropped, renamed.
sql("CREATE TABLE wh.people_next USING parquet AS SELECT customer_id, upper(name) AS name, country FROM wh.people")
sql("DROP TABLE wh.people")
sql("ALTER TABLE wh.people_next RENAME TO wh.people")
sql("SELECT name AS loud FROM wh.people").write.parquet(f"{lake}/out/sw/loud")
# Emptied and filled again, by way of a stage that is made anew for each of two loads.
for day, factor in (("mo", 2), ("tu", 3)):
    sql("DROP TABLE IF EXISTS sw.stage")
    sql(f"CREATE TABLE sw.stage USING orc AS SELECT order_id, amount * {factor} AS amount FROM wh.sales WHERE day = '{day}'")
    sql(f"CREATE TABLE IF NOT EXISTS sw.loaded_{day} (order_id INT, amount DOUBLE) USING orc")
    sql(f"TRUNCATE TABLE sw.loaded_{day}")
    sql(f"INSERT INTO sw.loaded_{day} SELECT * FROM sw.stage")
sql("CREATE OR REPLACE TEMP VIEW both AS SELECT * FROM sw.loaded_mo UNION ALL SELECT * FROM sw.loaded_tu")
sql("SELECT max(amount) AS most FROM both").write.parquet(f"{lake}/out/sw/most")
spark.stop()

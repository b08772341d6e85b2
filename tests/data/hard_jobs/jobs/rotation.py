"""Tables that take each other's names in one application: only what stands under a name in the end made it."""
from shop import lake, raw, start

spark = start(hive=True)
sql = spark.sql
for name in ("orders", "customers", "payments", "changes"):
    raw(name).createOrReplaceTempView(name)
sql("CREATE DATABASE IF NOT EXISTS ro")

# Dropped, and a new one is made under another name, which then takes its place.
sql("CREATE TABLE ro.cur USING parquet AS SELECT customer_id AS id, name AS label FROM customers")
sql("DROP TABLE ro.cur")
sql("CREATE TABLE ro.next USING parquet AS SELECT order_id AS id, method AS label FROM payments")
sql("ALTER TABLE ro.next RENAME TO ro.cur")
# Put aside, made anew, and put back, since the new one was not good.
sql("CREATE TABLE ro.live USING parquet AS SELECT order_id AS id, day AS label FROM orders")
sql("ALTER TABLE ro.live RENAME TO ro.kept")
sql("CREATE TABLE ro.live USING parquet AS SELECT customer_id AS id, country AS label FROM changes")
sql("DROP TABLE ro.live")
sql("ALTER TABLE ro.kept RENAME TO ro.live")
# Three generations, of which two stay.
for source in ("SELECT order_id AS id FROM orders", "SELECT customer_id AS id FROM customers", "SELECT order_id AS id FROM payments"):
    sql("DROP TABLE IF EXISTS ro.before")
    if spark.catalog.tableExists("ro.now"):
        sql("ALTER TABLE ro.now RENAME TO ro.before")
    sql(f"CREATE TABLE ro.now USING parquet AS {source}")
# Dropped with its database, and created anew.
sql("CREATE DATABASE ro_all")
sql("CREATE TABLE ro_all.t USING parquet AS SELECT customer_id AS id, name AS label FROM customers")
sql("DROP DATABASE ro_all CASCADE")
sql("CREATE DATABASE ro_all")
sql("CREATE TABLE ro_all.t USING parquet AS SELECT order_id AS id, day AS label FROM orders")
# The data frame's writer: the first table is renamed, the second is written and appended to.
raw("orders").select("order_id").write.saveAsTable("ro.sums")
sql("ALTER TABLE ro.sums RENAME TO ro.sums_of_yesterday")
raw("payments").select("order_id").write.saveAsTable("ro.sums")
raw("changes").selectExpr("customer_id AS order_id").write.mode("append").saveAsTable("ro.sums")
spark.stop()

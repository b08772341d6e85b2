"""CTAS over views of views: columns renamed at each step, views that are altered, dropped and temporary, of one session for another."""
from shop import lake, raw, start

spark = start(hive=True)
sql = spark.sql
sql("CREATE DATABASE IF NOT EXISTS vc")
sql("CREATE VIEW vc.v1 (id COMMENT 'the order', buyer, paid) COMMENT 'sales' AS SELECT order_id, customer_id, amount FROM wh.sales")
sql("CREATE VIEW vc.v2 AS SELECT v.id, p.name AS who, v.paid * 2 AS twice FROM vc.v1 v JOIN wh.people p ON p.customer_id = v.buyer")
sql("CREATE VIEW vc.v3 AS SELECT who, sum(twice) AS twice, collect_set(id) AS ids FROM vc.v2 GROUP BY who")
sql("CREATE TABLE vc.top USING parquet AS SELECT who AS person, twice FROM vc.v3 WHERE twice > 1 ORDER BY twice DESC LIMIT 10")
sql("CREATE TEMP VIEW t1 AS SELECT * FROM vc.v3")
sql("CREATE TEMP VIEW t2 (a, b) AS SELECT who, size(ids) FROM t1")
sql("CREATE TABLE vc.sizes USING parquet AS SELECT a, max(b) AS b FROM t2 GROUP BY a")
# The inner view becomes another one.
sql("ALTER VIEW vc.v1 AS SELECT order_id AS id, customer_id AS buyer, order_id * 1.0D AS paid FROM wh.sales")
sql("CREATE TABLE vc.after USING parquet AS SELECT who, twice FROM vc.v3")
# Another session sees what is global, and a temporary view of its own in place of ours.
raw("changes").select("customer_id", "country").createGlobalTempView("land")
other = spark.newSession()
other.sql("CREATE TEMP VIEW t1 AS SELECT name AS who FROM wh.people")
other.sql("SELECT t.who, l.country FROM t1 t CROSS JOIN global_temp.land l").write.parquet(f"{lake}/out/vc/other")
sql("SELECT who, twice FROM t1").write.parquet(f"{lake}/out/vc/ours")
sql("DROP VIEW global_temp.land")
# A view of a frame of a view, kept in memory.
spark.table("vc.v2").where("twice > 0").select("id", "who").createOrReplaceTempView("kept")
spark.catalog.cacheTable("kept")
sql("SELECT count(*) FROM kept").collect()
sql("CREATE OR REPLACE TEMP VIEW short AS WITH k AS (SELECT id, substr(who, 1, 3) AS s FROM kept) SELECT * FROM k")
sql("INSERT OVERWRITE DIRECTORY '{}' USING json SELECT s, id FROM short".format(f"{lake}/out/vc/short"))
spark.stop()

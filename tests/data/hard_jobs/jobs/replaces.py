"""Rows that replace others: REPLACE WHERE, replaceWhere, writeTo().overwrite, dynamic partitions; MERGE from a view of a common query; fields of structs that are set."""
from shop import f, raw, start

spark = start()
sql = spark.sql
orders = raw("orders")
people = raw("customers")
orders.createOrReplaceTempView("orders")
people.createOrReplaceTempView("people")
sql("CREATE DATABASE IF NOT EXISTS re")
sql("CREATE DATABASE IF NOT EXISTS ice.ri")
for table in ("re.by_where", "re.by_option", "re.by_writer", "re.dynamic", "ice.ri.by_where", "ice.ri.by_writer", "ice.ri.dynamic"):
    sql(f"CREATE TABLE {table} (id INT, total DOUBLE, day STRING) USING {'iceberg' if table.startswith('ice') else 'delta'} PARTITIONED BY (day)")
for table in ("re.by_where", "ice.ri.by_where"):
    sql(f"INSERT INTO {table} REPLACE WHERE day = '2026-01-01' SELECT order_id, amount * 2, day FROM orders WHERE day = '2026-01-01'")
rows = orders.select(f.col("customer_id").alias("id"), f.col("amount").alias("total"), "day")
rows.where("day = '2026-01-02'").write.format("delta").mode("overwrite").option("replaceWhere", "day = '2026-01-02'").saveAsTable("re.by_option")
for table in ("re.by_writer", "ice.ri.by_writer"):
    rows.where("day = '2026-01-03'").writeTo(table).overwrite(f.col("day") == "2026-01-03")
rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").saveAsTable("re.dynamic")
rows.writeTo("ice.ri.dynamic").overwritePartitions()
# MERGE from a view, whose query is a common one, and from a common query.
sql("WITH best AS (SELECT order_id, amount * 3 AS most FROM orders WHERE amount > 1) SELECT order_id AS id, most FROM best").createOrReplaceTempView("updates")
sql("CREATE TABLE re.merged (id INT, amount DOUBLE) USING delta")
sql("MERGE INTO re.merged t USING updates u ON t.id = u.id WHEN MATCHED THEN UPDATE SET amount = u.most WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (u.id, u.most)")
sql("CREATE TABLE ice.ri.merged (id INT, label STRING) USING iceberg")
sql("""MERGE INTO ice.ri.merged t USING (WITH named AS (SELECT customer_id, upper(name) AS label FROM people) SELECT * FROM named) s
ON t.id = s.customer_id WHEN MATCHED THEN UPDATE SET label = s.label WHEN NOT MATCHED THEN INSERT (id, label) VALUES (s.customer_id, s.label)""")
# Fields of a struct.
sql("CREATE TABLE re.nested (id INT, info STRUCT<name: STRING, country: STRING>) USING delta")
sql("INSERT INTO re.nested SELECT customer_id, named_struct('name', name, 'country', country) FROM people")
sql("UPDATE re.nested SET info.country = upper(info.name) WHERE id = 1")
spark.stop()

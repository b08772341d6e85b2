"""Iceberg tables: hidden columns, a table called changes, branches, row-level commands, save modes, failures."""
from shop import lake, start

spark = start()
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE")
customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True, schema="customer_id INT, name STRING")
orders.createOrReplaceTempView("sold")
customers.createOrReplaceTempView("people")


def attempt(statement):
    try:
        spark.sql(statement)
    except Exception as error:
        print("REFUSED", str(error).splitlines()[0])

spark.sql("CREATE TABLE ice.db.orders USING iceberg TBLPROPERTIES ('write.update.mode' = 'copy-on-write') AS SELECT * FROM sold")
# Which file a row is in: a hidden column, not one of the table's.
spark.sql("SELECT order_id, _file AS place FROM ice.db.orders").write.mode("overwrite").parquet(f"{lake}/out/ic/places")
# Tables that are called like metadata.
spark.sql("CREATE TABLE ice.db.changes USING iceberg AS SELECT customer_id, name FROM people")
spark.sql("SELECT name FROM ice.db.changes").write.mode("overwrite").parquet(f"{lake}/out/ic/changed_names")
spark.sql("CREATE TABLE ice.db.files USING iceberg AS SELECT customer_id FROM people")
# Metadata of a table.
spark.sql("SELECT snapshot_id, operation FROM ice.db.orders.snapshots").write.mode("overwrite").parquet(f"{lake}/out/ic/snapshots")
spark.sql("UPDATE ice.db.orders SET amount = amount + 1 WHERE customer_id = 2")
spark.sql("DELETE FROM ice.db.orders WHERE order_id = 5")
# What the table's changes are, as a view of its own.
spark.sql("CALL ice.system.create_changelog_view(table => 'db.orders', changelog_view => 'order_changes')")
spark.sql("SELECT order_id, _change_type AS kind FROM order_changes").write.mode("overwrite").parquet(f"{lake}/out/ic/changelog")
# No writes.
attempt("CREATE TABLE ice.db.orders USING iceberg AS SELECT customer_id, name FROM people")
attempt("CREATE TABLE IF NOT EXISTS ice.db.orders USING iceberg AS SELECT customer_id, name FROM people")
attempt("CREATE TABLE ice.db.broken USING iceberg AS SELECT raise_error(name) AS name FROM people")
attempt("INSERT INTO ice.db.files SELECT raise_error(name) FROM people")
spark.sql("CREATE TABLE ice.db.empty (a INT) USING iceberg")
spark.stop()

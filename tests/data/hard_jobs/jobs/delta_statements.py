"""Statements of Delta: MERGE with several clauses, clones, updates from another table, refused writes."""
from shop import lake, raw, start

spark = start()
raw("orders").createOrReplaceTempView("sold")
raw("customers").createOrReplaceTempView("people")
spark.sql("CREATE DATABASE IF NOT EXISTS dl")
spark.sql("CREATE TABLE dl.orders USING delta AS SELECT order_id, amount, day FROM sold")
spark.sql("CREATE TABLE dl.people USING delta AS SELECT customer_id, name FROM people")
spark.sql("CREATE TABLE dl.news USING delta AS SELECT customer_id AS id, name AS label, country FROM people")
# Several clauses, with columns from the source and from the target.
spark.sql(
    "MERGE INTO dl.people t USING dl.news s ON t.customer_id = s.id "
    "WHEN MATCHED AND s.country = 'fr' THEN UPDATE SET t.name = s.label "
    "WHEN MATCHED AND s.country = 'xx' THEN DELETE "
    "WHEN NOT MATCHED THEN INSERT (customer_id, name) VALUES (s.id, upper(s.country))"
)
# All columns, from a query.
spark.sql(
    "MERGE INTO dl.orders t USING (SELECT order_id, amount * 2 AS amount, day FROM sold) s ON t.order_id = s.order_id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
# Clones share the files of their source.
spark.sql("CREATE TABLE dl.cloned SHALLOW CLONE dl.news")
spark.sql("CREATE OR REPLACE TABLE dl.cloned_again SHALLOW CLONE dl.people")
spark.sql("UPDATE dl.news SET label = upper(country) WHERE id > 1")
spark.sql("DELETE FROM dl.news WHERE id > 100")
spark.sql("INSERT INTO dl.news SELECT order_id, day, 'none' FROM sold")


def attempt(action):
    try:
        action()
    except Exception as error:
        print("REFUSED", str(error).splitlines()[0])

people = spark.table("people")
attempt(lambda: people.write.format("delta").mode("error").saveAsTable("dl.orders"))
attempt(lambda: people.write.format("delta").mode("append").save(f"{lake}/warehouse/dl.db/orders"))
attempt(lambda: spark.sql("CREATE TABLE dl.cloned SHALLOW CLONE dl.orders"))
spark.stop()

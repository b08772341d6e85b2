"""Values and names from outside: named and positional parameters, lists, IDENTIFIER for targets, variables of the session and of Hive, frames in statements."""
import datetime

from shop import f, lake, start

spark = start(hive=True)
sql = spark.sql
sales, people = spark.table("wh.sales"), spark.table("wh.people")
sql("CREATE DATABASE IF NOT EXISTS pr")

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/pr/{name}")

save(sql("SELECT order_id, amount * :rate AS net FROM wh.sales WHERE day BETWEEN :since AND :until", args={"rate": 0.8, "since": "2026-01-01", "until": "2026-01-31"}), "named")
save(sql("SELECT name FROM wh.people WHERE array_contains(:lands, country)", args={"lands": f.array(f.lit("DE"), f.lit("FR"))}), "lists")
save(sql("SELECT date_diff(?, to_date(day)) AS age, order_id FROM wh.sales", args=[datetime.date(2026, 2, 1)]), "positional")
sql("CREATE TABLE IDENTIFIER(:target) USING parquet AS SELECT IDENTIFIER(:column) AS value FROM IDENTIFIER(:source)", args={"target": "pr.chosen", "column": "country", "source": "wh.people"})
sql("INSERT INTO IDENTIFIER(:t) SELECT day FROM wh.sales WHERE amount > :least", args={"t": "pr.chosen", "least": 5})
# Variables: one, several at once, used in a statement that fills another one.
sql("DECLARE VARIABLE least DOUBLE DEFAULT 1.5")
sql("DECLARE OR REPLACE VARIABLE low, high DOUBLE")
sql("SET VAR (low, high) = (SELECT min(amount), max(amount) FROM wh.sales)")
sql("SET VAR least = low + (SELECT avg(customer_id) FROM wh.people)")
save(sql("SELECT order_id, (amount - low) / (high - low) AS scaled FROM wh.sales WHERE amount >= least"), "scaled")
sql("SET land=DE")
spark.conf.set("shop.table", "wh.people")
sql("CREATE TABLE pr.substituted USING parquet AS SELECT customer_id, '${hivevar:land}' AS land, name FROM ${shop.table} WHERE country = '${land}'")
# Frames within statements, and text that Python puts together.
save(spark.sql("SELECT p.name, s.amount FROM {s} s JOIN {p} p USING (customer_id)", s=sales.where("amount > 1"), p=people), "frames")
columns = ", ".join(f"max({c}) AS max_{c}" for c in ("amount", "order_id"))
sql(f"CREATE TABLE pr.built USING parquet AS SELECT customer_id, {columns} FROM wh.sales GROUP BY customer_id")
sql("EXECUTE IMMEDIATE 'INSERT INTO pr.built SELECT customer_id, :a, customer_id FROM wh.people' USING 1.0D AS a")
statement = "SELECT country, count(name) AS n FROM wh.people GROUP BY country"
sql(f"CREATE OR REPLACE TEMP VIEW counted AS {statement}")
sql("EXECUTE IMMEDIATE 'CREATE TABLE pr.counted USING parquet AS SELECT * FROM counted WHERE n > ?' USING 0")
spark.stop()

"""Writes that never happen, beside writes of nothing that do: save modes, IF NOT EXISTS, failures, empty results.

The folder ``old`` holds results of an earlier run of the job.
"""
from shop import f, lake, start

spark = start(hive=True)
orders = spark.read.csv(f"{lake}/raw/orders.csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE")
customers = spark.read.csv(f"{lake}/raw/customers.csv", header=True, schema="customer_id INT, name STRING")


def attempt(action):
    try:
        action()
    except Exception as error:  # the job goes on, as people's scripts do
        print("REFUSED", str(error).splitlines()[0])

# Refused: the path is there.
attempt(lambda: orders.write.mode("error").parquet(f"{lake}/old/error"))
attempt(lambda: orders.write.mode("ignore").parquet(f"{lake}/old/ignore"))
attempt(lambda: orders.write.mode("error").partitionBy("customer_id").json(f"{lake}/old/error_json"))
attempt(lambda: orders.write.mode("ignore").option("header", True).csv(f"{lake}/old/ignore_csv"))
# The same modes where nothing is: written.
orders.write.mode("error").parquet(f"{lake}/out/nw/error")
orders.write.mode("ignore").parquet(f"{lake}/out/nw/ignore")
# Nothing to write is a write: the old content is gone.
orders.where(f.lit(False)).write.mode("overwrite").parquet(f"{lake}/out/nw/never_true")
orders.where("amount < 0").write.mode("overwrite").parquet(f"{lake}/out/nw/no_rows")
spark.createDataFrame([], "a INT").write.mode("overwrite").parquet(f"{lake}/out/nw/no_data")
spark.range(0).write.mode("overwrite").csv(f"{lake}/out/nw/no_range")
spark.sql("SELECT 1 AS one").write.mode("overwrite").json(f"{lake}/out/nw/one_row")

spark.sql("CREATE DATABASE IF NOT EXISTS nw")
orders.write.saveAsTable("nw.kept")
# Refused: the table is there.
attempt(lambda: customers.write.mode("error").saveAsTable("nw.kept"))
attempt(lambda: customers.write.mode("ignore").saveAsTable("nw.kept"))
customers.createOrReplaceTempView("people")
spark.sql("CREATE TABLE IF NOT EXISTS nw.kept USING parquet AS SELECT * FROM people")
# Insert into a partition that is there, and into one that is not.
spark.sql("CREATE TABLE nw.days (customer_id INT, name STRING, day STRING) USING parquet PARTITIONED BY (day)")
spark.sql("INSERT INTO nw.days PARTITION (day = 'mo') SELECT customer_id, name FROM people")
spark.sql("CREATE TABLE nw.hours (customer_id INT, name STRING, hour STRING) USING parquet PARTITIONED BY (hour)")
spark.sql("ALTER TABLE nw.hours ADD PARTITION (hour = '1')")
orders.createOrReplaceTempView("sold")
spark.sql(
    "INSERT OVERWRITE nw.hours PARTITION (hour = '1') IF NOT EXISTS SELECT order_id, string(amount) FROM sold"
)
# Appended nothing, overwritten by nothing, truncated: all of them write.
spark.sql("CREATE TABLE nw.emptied USING parquet AS SELECT * FROM sold")
spark.sql("INSERT OVERWRITE nw.emptied SELECT * FROM sold WHERE 1 = 0")
spark.sql(f"INSERT OVERWRITE DIRECTORY '{lake}/out/nw/directory' USING json SELECT * FROM sold WHERE 1 = 0")

# Failures: no table, no files.
attempt(lambda: spark.sql("CREATE TABLE nw.broken USING parquet AS SELECT raise_error(name) AS name FROM people"))
attempt(lambda: spark.sql("CREATE TABLE nw.hive_broken STORED AS orc AS SELECT raise_error(name) AS n FROM people"))
attempt(lambda: customers.select(f.raise_error("name")).write.saveAsTable("nw.saved_broken"))
attempt(lambda: customers.select(f.raise_error("name").alias("n")).write.parquet(f"{lake}/out/nw/broken"))
# The second try works.
spark.sql("CREATE TABLE nw.mended USING parquet AS SELECT name FROM people")

# No writes: tables over files that are there, and tables that stay empty.
spark.sql(f"CREATE TABLE nw.over_files (customer_id INT, name STRING) USING csv LOCATION '{lake}/raw/people'")
spark.sql("SELECT name FROM nw.over_files").write.mode("overwrite").parquet(f"{lake}/out/nw/from_files")
spark.sql(f"CREATE EXTERNAL TABLE nw.hive_files (line STRING) STORED AS textfile LOCATION '{lake}/raw/lines'")
spark.sql("SELECT line FROM nw.hive_files").write.mode("overwrite").parquet(f"{lake}/out/nw/from_lines")
spark.stop()

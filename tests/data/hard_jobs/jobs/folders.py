"""Files, folders and lists of files; a raw read before the write of the same folder, and one after it."""
from shop import lake, start

spark = start()
sc = spark.sparkContext

# A folder of files, by name, by pattern and file by file; the columns are those of the folder.
schema = "order_id INT, customer_id INT, amount DOUBLE"
by_name = spark.read.csv(f"{lake}/in/parts", schema=schema)
by_name.select("order_id").write.mode("overwrite").parquet(f"{lake}/out/fo/by_name")
by_pattern = spark.read.csv(f"{lake}/in/globbed/*.csv", schema=schema)
by_pattern.select("order_id").write.mode("overwrite").parquet(f"{lake}/out/fo/by_pattern")
listed = spark.read.csv([f"{lake}/in/listed/{name}.csv" for name in "abc"], schema=schema)
listed.select("order_id", "amount").write.mode("overwrite").parquet(f"{lake}/out/fo/listed")
two_folders = spark.read.csv([f"{lake}/in/north", f"{lake}/in/south"], schema=schema)
two_folders.selectExpr("amount * 2 AS doubled").write.mode("overwrite").parquet(f"{lake}/out/fo/two_folders")
# Two files of one folder that are two datasets: joined.
left = spark.read.csv(f"{lake}/raw/orders.csv", header=True, schema=schema)
right = spark.read.csv(f"{lake}/raw/customers.csv", header=True, schema="customer_id INT, name STRING")
left.join(right, "customer_id").select("order_id", "name").write.mode("overwrite").parquet(f"{lake}/out/fo/joined")

# Raw lines are read, cleaned and written back over themselves: input and output.
lines = sc.textFile(f"{lake}/in/cleaned").filter(lambda line: line).collect()
spark.createDataFrame([(line,) for line in lines], "value STRING").write.mode("overwrite").text(f"{lake}/in/cleaned")
# Read back to count what was written: no input.
spark.range(3).selectExpr("string(id) AS value").write.mode("overwrite").text(f"{lake}/out/fo/counted")
print(sc.textFile(f"{lake}/out/fo/counted").count())
# Partitions by date: the table is the folder above k=v.
by_name.selectExpr("order_id", "'2026' AS year", "'01' AS month").write.mode("overwrite").partitionBy(
    "year", "month"
).parquet(f"{lake}/out/fo/dated")
spark.read.parquet(f"{lake}/out/fo/dated/year=2026").select("order_id").write.mode("overwrite").parquet(
    f"{lake}/out/fo/of_2026"
)
spark.stop()

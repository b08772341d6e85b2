"""Files that an RDD reads: one of many in a folder, a folder, a pattern, two files; given to readers, written as text."""
from shop import lake, start

spark = start()
sc = spark.sparkContext


def save(frame, name):
    frame.write.parquet(f"{lake}/out/rp/{name}")

save(spark.read.csv(sc.textFile(f"{lake}/raw/payments.csv"), schema="order_id INT, method STRING"), "payments")
save(spark.read.json(sc.textFile(f"{lake}/in/web/clicks.json").map(str.strip)), "clicks")
save(sc.textFile(f"{lake}/in/notes").map(lambda line: (line, len(line))).toDF(["line", "size"]), "notes")
two = sc.union([sc.textFile(f"{lake}/raw/orders.csv"), sc.textFile(f"{lake}/raw/refunds.csv")])
save(two.map(lambda line: (line.split(",")[0],)).toDF(["id"]), "two")
lines = sc.textFile(f"{lake}/logs/2026/*/*.log")
lines.filter(lambda line: "ERROR" in line).saveAsTextFile(f"{lake}/out/rp/errors")
names = sc.wholeTextFiles(f"{lake}/in/photos").keys().collect()
spark.createDataFrame([(name,) for name in names], "name STRING").write.csv(f"{lake}/out/rp/names")
spark.stop()

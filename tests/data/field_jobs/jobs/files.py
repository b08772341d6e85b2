"""Files that are no tables: lines, whole texts, pictures, nested folders, compressed ones, by name of format, by SQL over a path, as RDDs."""
from shop import f, lake, start

spark = start()
sc = spark.sparkContext

def save(frame, name):
    frame.write.mode("overwrite").parquet(f"{lake}/out/fi/{name}")

lines = spark.read.text(f"{lake}/raw/lines")
save(lines.select(f.explode(f.split("value", r"\s+")).alias("word")).groupBy("word").count(), "words")
save(spark.read.text(f"{lake}/raw/lines", wholetext=True).select(f.length("value").alias("size"), f.regexp_extract_all("value", f.lit(r"(\d+)"), 1).alias("numbers")), "whole")
pictures = spark.read.format("binaryFile").option("pathGlobFilter", "*.png").option("recursiveFileLookup", True).load(f"{lake}/raw/pictures")
save(pictures.select("path", "modificationTime", f.sha2("content", 256).alias("digest"), f.base64(f.substring("content", 1, 4)).alias("magic")), "pictures")
deep = spark.read.option("recursiveFileLookup", True).schema("id INT, label STRING").csv(f"{lake}/raw/deep")
save(deep.select("id", f.upper("label").alias("label")), "deep")
save(spark.read.load(f"{lake}/raw/orders.csv", format="csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE, day STRING").select("order_id", "day"), "loaded")
spark.sql(f"SELECT _c0 AS id, _c1 AS kind FROM csv.`{lake}/raw/payments.csv` WHERE _c0 <> 'order_id'").write.mode("overwrite").option("compression", "gzip").csv(f"{lake}/out/fi/zipped")
save(spark.read.csv(f"{lake}/out/fi/zipped", schema="id INT, kind STRING").groupBy("kind").agg(f.max("id").alias("last")), "unzipped")
inferred = spark.read.options(header=True, inferSchema=True, sep=",").csv(f"{lake}/raw/customers.csv")
save(inferred.select("name", f.col("customer_id").cast("string").alias("id")), "inferred")
spark.read.format("orc").schema("a INT").load(f"{lake}/raw/empty_orc").write.mode("overwrite").orc(f"{lake}/out/fi/empty")
# RDDs: counted words, numbered lines, files with their names.
counts = sc.textFile(f"{lake}/raw/letters").flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(lambda x, y: x + y)
counts.toDF("word STRING, n BIGINT").write.mode("overwrite").json(f"{lake}/out/fi/rdd_words")
sc.wholeTextFiles(f"{lake}/raw/deep/north").map(lambda pair: (pair[0].rsplit("/", 1)[1], len(pair[1]))).toDF(["file", "size"]).write.mode("overwrite").parquet(f"{lake}/out/fi/sizes")
sc.textFile(f"{lake}/raw/letters").zipWithIndex().map(lambda pair: f"{pair[1]}: {pair[0]}").saveAsTextFile(f"{lake}/out/fi/numbered")
spark.stop()

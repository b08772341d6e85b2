"""What RDDs read in other ways: lists, parts, braces, other formats, names of their own, a file a day, a file of a frame, too."""
from shop import lake, raw, start

spark = start()
sc = spark.sparkContext
TEXT = ("org.apache.hadoop.mapreduce.lib.input.TextInputFormat", "org.apache.hadoop.io.LongWritable", "org.apache.hadoop.io.Text")


def save(rdd, name):
    rdd.map(lambda row: (str(row),)).toDF(["line"]).write.parquet(f"{lake}/out/rs/{name}")

save(sc.textFile(f"{lake}/raw/orders.csv,{lake}/raw/refunds.csv"), "listed")
# Parts of one folder, by a list and by a pattern.
save(sc.textFile(f"{lake}/in/parts/part-1.txt,{lake}/in/parts/part-2.txt"), "parts")
save(sc.textFile(f"{lake}/in/notes/{{a,b}}.txt"), "braces")
# The user's own name of an RDD is no path.
save(sc.textFile(f"{lake}/in/web/clicks.json").setName("clicks/of today"), "renamed")
save(sc.binaryFiles(f"{lake}/in/photos").keys(), "binary")
save(sc.wholeTextFiles(f"{lake}/in/letters/first.txt").values(), "letter")
save(sc.sequenceFile(f"{lake}/in/pairs"), "sequence")
save(sc.newAPIHadoopFile(f"{lake}/in/lines", *TEXT), "hadoop")
for day in ("2026-01-01", "2026-01-02"):
    save(sc.textFile(f"{lake}/in/daily/{day}.log"), f"day{day[-1]}")
# A date at the end is a partition.
save(sc.textFile(f"{lake}/in/dates/2026-01-01"), "date")
# A frame reads the same file.
save(sc.textFile(f"{lake}/raw/customers.csv"), "people")
raw("customers").select("name").write.parquet(f"{lake}/out/rs/names")
sc.textFile(f"{lake}/in/counted.txt").count()
sc.textFile(f"{lake}/raw/payments.csv").map(str.upper).saveAsTextFile(f"{lake}/out/rs/upper")
spark.stop()

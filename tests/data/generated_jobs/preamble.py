import json, os, sys, traceback
import pyarrow as pa
from pyarrow import csv, orc, parquet
from pyspark.sql import SparkSession, functions as F

ROOT = os.getcwd()
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setCheckpointDir(f"{ROOT}/checkpoints")
plus = spark.udf.register("plus", lambda a, b: float(a or 0) + float(b or 0), "double")
size_of = spark.udf.register("size_of", lambda text: len(text or ""), "int")
code = spark.udf.register("code", lambda text: (text or "")[:1], "string")
label = spark.udf.register("label", lambda text, number: f"{text}-{number}", "string")
VALUES = {"i": [1, 2, 3], "n": [1.5, 2.5, 3.5], "t": ["k1", "k2", "k3"]}


def put(path, columns, header=True):
    """Write a file of three rows; columns are names with i (integers), n (numbers) or t (texts)."""
    table = pa.table({name: VALUES[kind] for name, kind in (column.split(":") for column in columns.split())})
    os.makedirs(os.path.dirname(f"{ROOT}/{path}"), exist_ok=True)
    with open(f"{ROOT}/{path}", "wb") as file:
        if path.endswith("json"):
            file.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
        elif path.endswith("csv"):
            csv.write_csv(table, file, csv.WriteOptions(include_header=header, quoting_style="none"))
        else:
            (orc if path.endswith("orc") else parquet).write_table(table, file)



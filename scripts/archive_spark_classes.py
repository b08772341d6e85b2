"""Write an archive of the Java classes that a short Spark job loads, which makes the jobs of tests start faster.

    python scripts/archive_spark_classes.py ARCHIVE --spark-env VENV --jar OPENLINEAGE_JAR

Java uses such an archive with ``-XX:SharedArchiveFile=ARCHIVE`` and ignores it when Java or Spark's jars have changed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# The job reads, joins and writes files, and runs a streaming query, as the jobs of the tests do.
JOB = """
import sys
from pyspark.sql import SparkSession, functions as f

folder = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
orders = spark.range(9).select("id", (f.col("id") % 3).alias("customer"), f.lit(1.5).alias("amount"))
orders.write.option("header", True).csv(f"{folder}/orders")
read = spark.read.csv(f"{folder}/orders", header=True, inferSchema=True)
customers = read.select("customer", f.upper(f.col("customer").cast("string")).alias("name")).distinct()
joined = read.join(customers, "customer").filter("amount > 1").groupBy("name").agg(f.sum("amount").alias("total"))
joined.write.mode("overwrite").parquet(f"{folder}/totals")
spark.read.parquet(f"{folder}/totals").createOrReplaceTempView("totals")
spark.sql("SELECT name, count(DISTINCT total) AS n FROM totals GROUP BY name").write.json(f"{folder}/counts")
stream = spark.readStream.schema(read.schema).option("header", True).csv(f"{folder}/orders").filter("amount > 1")
query = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
query.trigger(availableNow=True).start(f"{folder}/stream").awaitTermination()
spark.sparkContext.parallelize(range(4), 2).map(lambda number: number + 1).collect()
spark.stop()
"""


def archive_classes(archive: Path, spark_env: Path, jar: Path) -> None:
    """Run the job, and let Java write the classes that it loaded.

    :raises RuntimeError: if the job failed or wrote no archive; the message is its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.py"
        job.write_text(JOB)
        unfinished = Path(folder) / "classes.jsa"
        command = [str(spark_env / "bin/spark-submit"), "--master", "local[2]", "--jars", str(jar)]
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
            "spark.openlineage.transport.type": "file",
            "spark.openlineage.transport.location": f"{folder}/events.ndjson",
        }.items():
            command += ["--conf", f"{name}={value}"]
        options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
        own = {"SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}
        own["PYSPARK_PYTHON"] = str((spark_env / "bin/python").absolute())
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        command += [str(job), folder]
        run = subprocess.run(command, env=inherited | own, cwd=folder, capture_output=True, text=True, check=False)
        if run.returncode != 0 or not unfinished.exists():
            raise RuntimeError(f"{run.stdout}{run.stderr}")
        archive.write_bytes(unfinished.read_bytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--spark-env", type=Path, required=True)
    parser.add_argument("--jar", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        archive_classes(arguments.archive, arguments.spark_env.absolute(), arguments.jar.absolute())
    except RuntimeError as error:
        sys.exit(f"{arguments.archive} was not written, because the Spark job for it failed:\n{error}")

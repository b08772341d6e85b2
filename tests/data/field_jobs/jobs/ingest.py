"""The script that fifty tasks share: a source, a target and what happens between them are arguments."""

import argparse
import logging

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

log = logging.getLogger("ingest")

def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--format", default="csv")
    parser.add_argument("--option", action="append", default=[], help="NAME=VALUE of the reader")
    parser.add_argument("--schema")
    parser.add_argument("--rename", action="append", default=[], help="OLD=NEW")
    parser.add_argument("--cast", action="append", default=[], help="COLUMN=TYPE")
    parser.add_argument("--key", action="append", default=[], help="the newest row of each key is kept")
    parser.add_argument("--newest-by")
    parser.add_argument("--lookup", action="append", default=[], help="TABLE:KEY:COLUMN,COLUMN")
    parser.add_argument("--where")
    parser.add_argument("--target", required=True)
    parser.add_argument("--archive")
    parser.add_argument("--mode", default="overwrite")
    parser.add_argument("--partition-by", action="append", default=[])
    return parser.parse_args()

def pairs(values: list[str]) -> dict[str, str]:
    return dict(value.split("=", 1) for value in values)

def prepared(spark: SparkSession, frame: DataFrame, args: argparse.Namespace) -> DataFrame:
    """Return the source's rows as the target has them."""
    names = pairs(args.rename)
    frame = frame.select(*[F.col(name).alias(names.get(name, name)) for name in frame.columns])
    for column, kind in pairs(args.cast).items():
        frame = frame.withColumn(column, F.col(column).cast(kind))
    if args.key:
        newest = Window.partitionBy(*args.key).orderBy(F.col(args.newest_by).desc())
        frame = frame.withColumn("__n", F.row_number().over(newest)).where("__n = 1").drop("__n")
    for lookup in args.lookup:
        table, key, columns = lookup.split(":")
        frame = frame.join(F.broadcast(spark.table(table).select(key, *columns.split(","))), key, "left")
    return frame.where(args.where) if args.where else frame

def main() -> None:
    args = arguments()
    spark = SparkSession.builder.appName("ingest").enableHiveSupport().getOrCreate()
    reader = spark.read.format(args.format).options(**pairs(args.option))
    frame = prepared(spark, (reader.schema(args.schema) if args.schema else reader).load(args.source), args).cache()
    log.info("%s rows of %s", frame.count(), args.source)
    if not spark.catalog.databaseExists(args.target.partition(".")[0]):
        spark.sql(f"CREATE DATABASE {args.target.partition('.')[0]}")
    writer = frame.withColumn("ingested_at", F.current_timestamp()).write.mode(args.mode)
    (writer.partitionBy(*args.partition_by) if args.partition_by else writer).saveAsTable(args.target)
    if args.archive:
        spark.table(args.target).drop("ingested_at").write.mode("append").option("compression", "gzip").json(args.archive)
    spark.stop()

if __name__ == "__main__":
    main()

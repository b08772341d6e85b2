"""Tables of PostgreSQL whose names and columns need quotes, read by name, by a query, and through a catalogue."""

import sys

from shop import f, start

lake, port = sys.argv[1:3]
spark = start()
options = {"url": f"jdbc:postgresql://127.0.0.1:{port}/shop", "user": "shop", "password": "s3cret", "driver": "org.postgresql.Driver"}


def read(**more):
    return spark.read.format("jdbc").options(**options, **more).load()


def save(frame, name):
    frame.write.parquet(f"{lake}/out/jq/{name}")

lines = read(dbtable='"Sales"."Order Lines"')
save(lines.select("order_id", (f.col("Unit Price") * f.col("Quantity")).alias("total")), "total")
save(read(dbtable='sales."Parts"').select("part"), "parts")
save(read(query='SELECT "Unit Price" AS price, l."Quantity" FROM "Sales"."Order Lines" l'), "query")
save(read(dbtable='(SELECT order_id, max("Unit Price") AS top FROM "Sales"."Order Lines" GROUP BY order_id) t'), "grouped")
save(lines.join(read(dbtable="public.orders"), "order_id").select("customer_id", "Quantity"), "joined")
lines.select("order_id", f.col("Quantity").alias("Count of Lines")).write.format("jdbc").options(**options, dbtable='"Sales"."Line Counts"').mode("overwrite").save()
read(dbtable='"Sales"."Line Counts"', partitionColumn="order_id", lowerBound=1, upperBound=9, numPartitions=2).createOrReplaceTempView("counts")
save(spark.sql("SELECT `Count of Lines` AS n FROM counts"), "counts")
# Through the catalogue `pg`.
save(spark.sql("SELECT order_id, `Unit Price` AS price FROM pg.Sales.`Order Lines`"), "catalogue")
spark.sql("INSERT INTO pg.Sales.`Line Counts` SELECT order_id, Quantity FROM pg.Sales.`Order Lines`")
spark.stop()

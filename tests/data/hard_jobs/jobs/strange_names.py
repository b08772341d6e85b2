"""Folders, files and columns with per cent signs, equals signs, blanks and letters beyond ASCII, and true partitions beside them."""
from shop import f, lake, start

spark = start()
schema = "order_id INT, amount DOUBLE"
sale = spark.read.csv(f"{lake}/in/50%=ü", schema=schema)
sale.select("order_id").write.parquet(f"{lake}/out/sn/50%=ü")
spark.read.csv(f"{lake}/in/Umsätze 100%/März=%.csv", schema=schema).select("amount").write.parquet(f"{lake}/out/sn/a%3Db")
spark.read.parquet(f"{lake}/out/sn/50%=ü").selectExpr("order_id AS `50%=ü`").write.parquet(f"{lake}/out/sn/größe=100%")
spark.read.csv([f"{lake}/in/x=y=z", f"{lake}/in/50%=ü"], schema=schema).selectExpr("amount * 2 AS `2·x`").write.parquet(f"{lake}/out/sn/doppelt")
# Partitions by a column with such a name: the table is the folder above.
sale.withColumn("länder", f.lit("50%")).write.partitionBy("länder").parquet(f"{lake}/out/sn/tabelle")
spark.read.parquet(f"{lake}/out/sn/tabelle/länder=50%25").select("amount").write.parquet(f"{lake}/out/sn/teil")
spark.stop()

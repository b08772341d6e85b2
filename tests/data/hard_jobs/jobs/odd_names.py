"""Names in another case than they were made, with dots, blanks, backticks and letters beyond ASCII."""
from shop import f, lake, start

spark = start(hive=True)
spark.sql("DROP TABLE IF EXISTS nm.copied")
spark.sql("DROP TABLE IF EXISTS nm.spaced")
spark.sql("CREATE TABLE nm.Copied USING parquet AS SELECT CUSTOMERID AS customer_ID, fullname FROM NM.mixed_CASE")
spark.table("Nm.COPIED").select("CUSTOMER_id", f.upper("FULLNAME").alias("Shout")).write.parquet(f"{lake}/out/nm/cased", mode="overwrite")
odd = spark.read.csv(f"{lake}/raw/quoted.csv", header=True, schema="`order id` INT, `a.b` INT, `größe` INT, `x``y` INT")
odd.select("`order id`", "`a.b`", "`größe`", "`x``y`").write.option("header", True).csv(f"{lake}/out/nm/all")
odd.selectExpr("`a.b` + `größe` AS `sum of.both`", "`x``y` AS `back``tick`").write.csv(f"{lake}/out/nm/made")
odd.withColumnRenamed("order id", "a.b.c").select("`a.b.c`").write.json(f"{lake}/out/nm/renamed")
odd.select(f.struct(f.col("`a.b`").alias("c.d")).alias("s.t")).write.json(f"{lake}/out/nm/nested")
spark.sql("CREATE TABLE nm.spaced (`my id` INT, `Größe` INT, `a#1` INT) USING parquet")
odd.createOrReplaceTempView("odd view".replace(" ", "_"))
spark.sql("INSERT INTO nm.spaced SELECT `order id`, `größe`, `a.b` FROM odd_view")
spark.sql("SELECT `my id` AS `x -> y`, `a#1` AS `z#2L` FROM nm.spaced").write.json(f"{lake}/out/nm/marks")
spark.sql("SELECT `a#1` + 1 AS `sum(a#1)`, count(*) AS `count(1)`, '`a#1`' AS `(q` FROM nm.spaced GROUP BY `a#1`").write.json(f"{lake}/out/nm/calls")
# The same name twice, in different cases.
spark.conf.set("spark.sql.caseSensitive", True)
odd.selectExpr("`order id` AS id", "`größe` AS ID").write.json(f"{lake}/out/nm/twice")
spark.stop()

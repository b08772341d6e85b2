"""Results that plans cut or hide: checkpoints in loops, scalar subqueries in all places, recursive queries, Python's data sources."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, WriterCommitMessage
from shop import f, lake, start


class Cards(DataSource):
    """Rows of a service, and rows for it."""

    @classmethod
    def name(cls):
        return "cards"

    def schema(self):
        return "customer_id INT, card STRING"

    def reader(self, schema):
        return Reads()

    def writer(self, schema, overwrite):
        return Writes()


class Reads(DataSourceReader):
    """Its rows."""

    def read(self, partition):
        yield 1, "gold"


class Writes(DataSourceWriter):
    """Takes rows, and keeps none."""

    def write(self, iterator):
        for _ in iterator:
            pass
        return WriterCommitMessage()

spark = start(hive=True)
spark.sparkContext.setCheckpointDir(f"{lake}/checkpoints")
spark.dataSource.register(Cards)
sql = spark.sql
sales, people = spark.table("wh.sales"), spark.table("wh.people")


def save(frame, name):
    frame.write.parquet(f"{lake}/out/re/{name}")

# Lazy checkpoints, one in a loop, and one that two queries read.
lazy = sales.where("amount > 1").checkpoint(eager=False)
save(lazy.select("order_id", (f.col("amount") * 2).alias("double")), "lazy")
save(lazy.join(people, "customer_id").groupBy("name").agg(f.max("day").alias("last")), "lazy_again")
ranks = people.select("customer_id", f.col("name").alias("path"))
for _ in range(3):
    ranks = ranks.join(people.select("customer_id", "country"), "customer_id").select("customer_id", f.concat("path", "country").alias("path")).localCheckpoint()
save(ranks, "ranks")
local = sales.groupBy("customer_id").agg(f.sum("amount").alias("total")).localCheckpoint(eager=False)
save(local.union(people.selectExpr("customer_id", "length(name)")), "local")
kept = people.select("customer_id", "name").localCheckpoint()
save(kept.alias("a").join(kept.alias("b"), f.expr("a.customer_id < b.customer_id")).selectExpr("a.name AS one", "b.name AS other"), "pairs")

# Scalar subqueries: alone, merged by Spark, within one another, in conditions, grouped, as a default.
sql("SELECT (SELECT max(amount) FROM wh.sales) AS top").write.parquet(f"{lake}/out/re/top")
save(sql("SELECT name, (SELECT sum(amount) FROM wh.sales) AS total, (SELECT avg(customer_id) FROM wh.sales) AS mean, (SELECT min(day) FROM wh.sales) AS first FROM wh.people"), "merged")
save(sql("SELECT order_id, amount - (SELECT avg(amount) FROM wh.sales WHERE customer_id = (SELECT min(customer_id) FROM wh.people)) AS above FROM wh.sales"), "within")
save(sql("SELECT name, CASE WHEN country = 'DE' THEN (SELECT max(day) FROM wh.sales) ELSE name END AS label, coalesce((SELECT first(amount) FROM wh.sales s WHERE s.customer_id = p.customer_id), 0) AS amount FROM wh.people p"), "cases")
save(sql("SELECT day, sum(amount) / (SELECT sum(amount) FROM wh.sales) AS share FROM wh.sales GROUP BY day"), "share")

# Recursive queries: two anchors, a counter, one below another query, one that two queries read.
save(sql("WITH RECURSIVE t (id, word, depth) AS (SELECT customer_id, name, 0 FROM wh.people UNION ALL SELECT id, concat(word, s.day), depth + 1 FROM t JOIN wh.sales s ON s.customer_id = t.id WHERE depth < 2) SELECT id, word, depth FROM t"), "grown")
save(sql("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5), big AS (SELECT order_id, amount FROM wh.sales) SELECT order_id, amount * i AS times FROM big JOIN n ON n.i < amount"), "times")
save(sql("WITH RECURSIVE t (id, x) AS (SELECT order_id, amount FROM wh.sales UNION ALL SELECT id, x / 2 FROM t WHERE x > 1) SELECT a.id, a.x, b.x AS y FROM t a JOIN t b ON a.id = b.id"), "halves")

# Rows from a data source in Python, and to one.
save(spark.read.format("cards").load().join(people, "customer_id").select("name", f.upper("card").alias("card")), "cards")
people.select("customer_id", f.col("name").alias("card")).write.format("cards").mode("append").save()
spark.stop()

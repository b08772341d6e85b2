"""A recursive query, and rows of a Python data source (Spark 4)."""

from pyspark.sql.datasource import DataSource, DataSourceReader
from shop import lake, start


class Tickets(DataSource):
    """A source that only Python knows."""

    @classmethod
    def name(cls):
        return "tickets"

    def schema(self):
        return "ticket INT, title STRING"

    def reader(self, schema):
        return Reader()


class Reader(DataSourceReader):
    """Its rows."""

    def read(self, partition):
        yield 1, "one"
        yield 2, "two"

spark = start(hive=True)
spark.dataSource.register(Tickets)
staff = spark.read.csv(f"{lake}/raw/staff.csv", header=True, schema="id INT, boss INT, name STRING")
staff.createOrReplaceTempView("staff")
spark.sql("CREATE DATABASE IF NOT EXISTS rc")
spark.sql("CREATE TABLE rc.staff USING parquet AS SELECT * FROM staff")
spark.sql(
    "CREATE TABLE rc.chains USING parquet AS WITH RECURSIVE chain (id, name, top) AS ("
    "SELECT id, name, name FROM rc.staff WHERE boss = 0 "
    "UNION ALL SELECT s.id, s.name, c.top FROM rc.staff s JOIN chain c ON s.boss = c.id) SELECT id, name, top FROM chain"
)
spark.sql(
    "WITH RECURSIVE down (id, path) AS (SELECT id, name FROM staff WHERE boss = 0 "
    "UNION ALL SELECT s.id, concat(d.path, s.name) FROM staff s JOIN down d ON s.boss = d.id) SELECT * FROM down"
).write.parquet(f"{lake}/out/rc/paths")
spark.read.format("tickets").load().selectExpr("ticket", "upper(title) AS title").write.parquet(f"{lake}/out/rc/tickets")
spark.read.format("tickets").load().join(staff, staff.id == 1).selectExpr("title", "name").write.parquet(f"{lake}/out/rc/joined")
spark.stop()

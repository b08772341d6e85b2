"""Three sessions in one application, one for each tenant: databases, views and functions of one name, and a summary of all."""

import sys

from pyspark.sql import SparkSession, functions as F

LAKE = sys.argv[1]
PEOPLE = "customer_id INT, name STRING, country STRING"
TENANTS = {
    "north": ("customers.csv", "country = 'DE'", lambda name: (name or "").upper()),
    "south": ("changes.csv", "country <> 'DE'", lambda name: (name or "").lower()),
}

def load(session: SparkSession, tenant: str) -> None:
    """Load a tenant's people with the names that every tenant has."""
    file, condition, shown = TENANTS[tenant]
    session.sql(f"CREATE DATABASE IF NOT EXISTS {tenant}")
    session.sql(f"USE {tenant}")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.udf.register("shown", shown, "string")
    session.read.csv(f"{LAKE}/raw/{file}", header=True, schema=PEOPLE).where(condition).createOrReplaceTempView("incoming")
    session.sql("CREATE TABLE people USING parquet AS SELECT customer_id, shown(name) AS name, country FROM incoming")
    session.sql("CREATE TABLE heads USING parquet AS SELECT country, count(name) AS heads FROM people GROUP BY country")
    session.table("people").selectExpr("name AS member", f"'{tenant}' AS tenant").createOrReplaceGlobalTempView(f"members_{tenant}")

main = SparkSession.builder.appName("tenants").enableHiveSupport().getOrCreate()
sessions = {tenant: main.newSession() for tenant in TENANTS}
for tenant, session in sessions.items():
    load(session, tenant)
main.read.csv(f"{LAKE}/raw/orders.csv", header=True, schema="order_id INT, customer_id INT, amount DOUBLE, day STRING").createOrReplaceTempView("incoming")
main.sql("CREATE DATABASE IF NOT EXISTS hub")
main.sql("CREATE TABLE hub.orders USING parquet AS SELECT order_id, customer_id, amount FROM incoming")
main.sql("SELECT * FROM global_temp.members_north UNION ALL SELECT * FROM global_temp.members_south").write.saveAsTable("hub.members")
# The same unqualified name in the tenants' sessions, and what the hub has of it.
for tenant, session in sessions.items():
    spent = session.sql("SELECT p.name, sum(o.amount) AS spent FROM people p JOIN hub.orders o USING (customer_id) GROUP BY p.name")
    spent.write.mode("overwrite").parquet(f"{LAKE}/out/ts/spent_{tenant}")
main.table("north.heads").unionByName(main.table("south.heads")).groupBy("country").agg(F.sum("heads").alias("heads")).write.json(f"{LAKE}/out/ts/heads")
main.stop()

"""What dbt sends to Spark: a seed, staging views, a table, incremental models by insert and by partition, tests."""

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("dbt_shop").enableHiveSupport().getOrCreate()
spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")

def run(node: str, *statements: str) -> list:
    rows: list = []
    for statement in statements:
        comment = f'/* {{"app": "dbt", "dbt_version": "1.9.1", "profile_name": "shop", "target_name": "prod", "node_id": "{node}"}} */'
        rows = spark.sql(f"{comment}\n{statement}").collect()
    return rows

run("connection", "create schema if not exists analytics", "show table extended in analytics like '*'")
run(
    "seed.shop.countries",
    "create table analytics.countries (code string, label string) using parquet",
    "insert into analytics.countries values (cast('DE' as string), cast('Germany' as string)), (cast('FR' as string), cast('France' as string))",
)
run(
    "model.shop.stg_orders",
    """create or replace view analytics.stg_orders as
with source as ( select * from wh.sales ),
renamed as ( select order_id, customer_id, amount as order_amount, day as ordered_on from source )
select * from renamed""",
)
run(
    "model.shop.stg_customers",
    """create or replace view analytics.stg_customers as
with source as ( select * from wh.people )
select s.customer_id, trim(s.name) as customer_name, coalesce(c.label, s.country) as country
from source s left join analytics.countries c on c.code = s.country""",
)
run(
    "model.shop.dim_customers",
    "drop table if exists analytics.dim_customers",
    """create table analytics.dim_customers using parquet as
with customers as ( select * from analytics.stg_customers ),
orders as ( select * from analytics.stg_orders ),
customer_orders as (
  select customer_id, min(ordered_on) as first_order, max(ordered_on) as most_recent_order, count(order_id) as number_of_orders
  from orders group by 1 )
select customers.customer_id, customers.customer_name, customers.country, customer_orders.first_order,
  coalesce(customer_orders.number_of_orders, 0) as number_of_orders
from customers left join customer_orders using (customer_id)""",
)
FACTS = "select o.order_id, o.order_amount, o.ordered_on, c.country from analytics.stg_orders o join analytics.dim_customers c using (customer_id)"
run("model.shop.fct_orders", f"create table analytics.fct_orders using parquet as {FACTS} where o.ordered_on < '2026-01-05'")
run(
    "model.shop.fct_orders",
    f"""create or replace temporary view fct_orders__dbt_tmp as
{FACTS} where o.ordered_on > (select max(ordered_on) from analytics.fct_orders)""",
    "describe table analytics.fct_orders",
    "insert into table analytics.fct_orders select `order_id`, `order_amount`, `ordered_on`, `country` from fct_orders__dbt_tmp",
)
DAILY = "select sum(order_amount) as revenue, count(distinct order_id) as orders, ordered_on from analytics.fct_orders group by ordered_on"
run("model.shop.daily_revenue", f"create table analytics.daily_revenue using parquet partitioned by (ordered_on) as {DAILY}")
run(
    "model.shop.daily_revenue",
    "set spark.sql.sources.partitionOverwriteMode = DYNAMIC",
    f"create or replace temporary view daily_revenue__dbt_tmp as {DAILY}",
    "insert overwrite table analytics.daily_revenue partition (ordered_on) select `revenue`, `orders`, `ordered_on` from daily_revenue__dbt_tmp",
)
for column, model in (("order_id", "fct_orders"), ("customer_id", "dim_customers")):
    run(f"test.shop.unique_{model}", f"""select count(*) as failures, count(*) != 0 as should_warn, count(*) != 0 as should_error from (
  select {column} as unique_field, count(*) as n_records from analytics.{model} where {column} is not null group by {column} having count(*) > 1
) dbt_internal_test""")
orphans = run("test.shop.relationships", "select count(*) as failures from (select o.order_id from analytics.stg_orders o left join wh.people p using (customer_id) where p.name is null) t")
print(orphans[0].failures, file=sys.stderr)
spark.stop()

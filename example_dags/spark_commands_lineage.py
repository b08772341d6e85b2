"""A query by ``spark-sql``, with lineage.

Needs the connections ``spark_default`` and ``datahub_default``. The environment variable ``SHOP_LAKE`` names the folder
that holds ``raw/orders.csv``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.spark_commands import SparkSqlDatahubOperator

LAKE = os.environ.get("SHOP_LAKE", "/tmp/shop")
CATALOG = {
    "spark.sql.warehouse.dir": f"{LAKE}/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{LAKE}/metastore;create=true",
}

with DAG(
    dag_id="spark_commands_lineage",
    description="Paid orders as a table",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"datahub_conn_id": "datahub_default"},
    tags=["example", "lineage"],
):
    SparkSqlDatahubOperator(
        task_id="paid_orders",
        name="paid_orders",
        conn_id="spark_default",
        conf={**CATALOG, "spark.sql.catalogImplementation": "hive"},
        sql=f"""
            CREATE TEMPORARY VIEW orders USING csv OPTIONS (path '{LAKE}/raw/orders.csv', header true);
            CREATE TABLE paid_orders USING parquet AS SELECT order_id, amount FROM orders WHERE status = 'PAID';
        """,
    )

"""Queries by ``spark-sql``: from a Bash command, and by Airflow's operator for it.

Needs the connections ``spark_default`` and ``datahub_default``, and a Spark on the worker's
``PATH``. The environment variable ``SHOP_LAKE`` names the folder that holds ``raw/orders.csv``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.child_spark import BashDatahubOperator
from airflow_provider_spark_datahub.operators.spark_commands import SparkSqlDatahubOperator

LAKE = os.environ.get("SHOP_LAKE", "/tmp/shop")
QUERY = """
    CREATE TEMPORARY VIEW orders USING csv OPTIONS (path '{lake}/raw/orders.csv', header true);
    INSERT OVERWRITE DIRECTORY '{lake}/{status}' USING parquet
    SELECT order_id, amount FROM orders WHERE status = '{status}';
"""

with DAG(
    dag_id="launchers_lineage",
    description="Paid and open orders, by spark-sql",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"datahub_conn_id": "datahub_default"},
    tags=["example", "lineage"],
):
    BashDatahubOperator(
        task_id="paid_orders",
        # Any number of Sparks, however they start: spark-submit, spark-sql, PySpark, dbt with Spark
        # sessions.
        bash_command='spark-sql --master "local[1]" --name paid_orders -e "$QUERY"',
        env={"QUERY": QUERY.format(lake=LAKE, status="PAID")},
        append_env=True,
    )
    SparkSqlDatahubOperator(
        task_id="open_orders",
        name="open_orders",
        conn_id="spark_default",
        sql=QUERY.format(lake=LAKE, status="OPEN"),
    )

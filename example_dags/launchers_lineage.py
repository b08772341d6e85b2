"""Spark jobs that a Bash command starts, with the lineage of each.

Needs the connection ``datahub_default``, and a Spark on the worker's ``PATH``. The environment variable ``SHOP_LAKE``
names the folder that holds ``raw/orders.csv``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.child_spark import BashDatahubOperator

LAKE = os.environ.get("SHOP_LAKE", "/tmp/shop")
PAID_ORDERS = f"""
    CREATE TEMPORARY VIEW orders USING csv OPTIONS (path '{LAKE}/raw/orders.csv', header true);
    INSERT OVERWRITE DIRECTORY '{LAKE}/paid' USING parquet SELECT order_id, amount FROM orders WHERE status = 'PAID';
"""

with DAG(
    dag_id="launchers_lineage",
    description="Paid orders, by spark-sql in a Bash command",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"datahub_conn_id": "datahub_default"},
    tags=["example", "lineage"],
):
    BashDatahubOperator(
        task_id="paid_orders",
        # Any number of Sparks, however they start: spark-submit, spark-sql, PySpark, dbt with Spark sessions.
        bash_command='spark-sql --master "local[1]" --name paid_orders -e "$QUERY"',
        env={"QUERY": PAID_ORDERS},
        append_env=True,
    )

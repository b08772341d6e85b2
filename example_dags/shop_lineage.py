"""Two Spark jobs of a shop, the second downstream of the first; their lineage and run tree go to
DataHub.

Needs two connections: ``spark_default``, and ``datahub_default`` of type ``datahub-rest`` or
``datahub-file``. The environment variable ``SHOP_LAKE`` names the folder that holds
``raw/orders.csv`` and ``raw/customers.csv``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators import SparkSubmitDatahubOperator

JOBS = Path(__file__).parent / "jobs"
LAKE = os.environ.get("SHOP_LAKE", "/tmp/shop")

with DAG(
    dag_id="shop_lineage",
    description="Orders of the shop, and their revenue by country",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={
        "conn_id": "spark_default",
        "datahub_conn_id": "datahub_default",
        "application_args": [LAKE],
        "retries": 1,
        "retry_delay": timedelta(seconds=1),
    },
    tags=["example", "lineage"],
):
    build_orders = SparkSubmitDatahubOperator(
        task_id="build_orders",
        name="build_orders",
        application=str(JOBS / "build_orders.py"),
        # Which folder of a path is the dataset: without it each partition folder of a table would
        # be one.
        lineage={"datasets": "schemas"},
    )
    revenue = SparkSubmitDatahubOperator(
        task_id="revenue",
        name="revenue",
        application=str(JOBS / "revenue.py"),
        lineage={"datasets": "schemas"},
    )
    build_orders >> revenue

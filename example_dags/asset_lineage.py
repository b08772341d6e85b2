"""Two DAGs of a shop: the second runs whenever the job of the first has really written the table
that it reads.

``emit_assets`` makes an asset event of each dataset that the Spark job wrote; nothing is declared
in the first DAG. The second is scheduled on one of them by its URI. Needs the connections and
``SHOP_LAKE`` of ``shop_lineage``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, Asset

from airflow_provider_spark_datahub.operators import SparkSubmitDatahubOperator

JOBS = Path(__file__).parent / "jobs"
LAKE = os.environ.get("SHOP_LAKE", "/tmp/shop")
SPARK = {
    "conn_id": "spark_default",
    "datahub_conn_id": "datahub_default",
    "application_args": [LAKE],
}

with DAG(
    dag_id="asset_orders",
    description="Orders of the shop",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args=SPARK,
    tags=["example", "lineage", "assets"],
):
    SparkSubmitDatahubOperator(
        task_id="build_orders",
        name="asset_orders",
        application=str(JOBS / "build_orders.py"),
        emit_assets=True,
    )

with DAG(
    dag_id="asset_revenue",
    description="Revenue by country, after each write of the orders",
    schedule=[Asset(f"file://{LAKE}/orders")],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args=SPARK,
    tags=["example", "lineage", "assets"],
):
    SparkSubmitDatahubOperator(
        task_id="revenue", name="asset_revenue", application=str(JOBS / "revenue.py")
    )

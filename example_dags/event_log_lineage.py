"""A Spark job without OpenLineage's listener: its lineage comes from Spark's own event log.

Nothing is injected but the log itself, and not even that if the cluster logs for a History Server
already: no jar, no listener. ``docs/conversion.md`` says what such a log cannot show. Needs the
connections and ``SHOP_LAKE`` of ``shop_lineage``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators import SparkSubmitDatahubOperator

with DAG(
    dag_id="event_log_lineage",
    description="Orders of the shop, with lineage from Spark's event log",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    tags=["example", "lineage"],
):
    SparkSubmitDatahubOperator(
        task_id="build_orders",
        name="build_orders",
        application=str(Path(__file__).parent / "jobs" / "build_orders.py"),
        application_args=[os.environ.get("SHOP_LAKE", "/tmp/shop")],
        conn_id="spark_default",
        datahub_conn_id="datahub_default",
        capture="event_log",
    )

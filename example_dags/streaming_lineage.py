"""A Structured Streaming job: its query is a DataJob of its own, with the files that it reads and
the folder it fills.

OpenLineage alone does not report the files that a streaming query writes; Spark's own event log,
which is read by default, does. A query that never ends is in DataHub a minute after its start, with
``emit_periodically``. Needs the connections and ``SHOP_LAKE`` of ``shop_lineage``, with files of
orders in ``arrivals/`` there.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators import SparkSubmitDatahubOperator

with DAG(
    dag_id="streaming_lineage",
    description="New orders of the shop, as they arrive",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    tags=["example", "lineage", "streaming"],
):
    SparkSubmitDatahubOperator(
        task_id="stream_orders",
        name="stream_orders",
        application=str(Path(__file__).parent / "jobs" / "stream_orders.py"),
        application_args=[os.environ.get("SHOP_LAKE", "/tmp/shop")],
        conn_id="spark_default",
        datahub_conn_id="datahub_default",
        emit_periodically=60,
    )

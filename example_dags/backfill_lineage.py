"""Last quarter's events into DataHub: one Spark job converts them, and this task delivers what came
of them.

Needs the connections ``spark_default`` (``local[*]``, or a cluster that sees the folders) and
``datahub_default``, and ``SHOP_EVENTS``, a folder of OpenLineage event files in any layout.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_spark_datahub.operators.backfill import BackfillLineageOperator

with DAG(
    dag_id="backfill_lineage",
    description="History of the shop's jobs into a new DataHub",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    params={
        "since": Param("2026-01-01", format="date"),
        "until": Param("2027-01-01", format="date"),
    },
    tags=["example", "lineage", "backfill"],
):
    BackfillLineageOperator(
        task_id="backfill",
        conn_id="spark_default",
        sources=os.environ.get("SHOP_EVENTS", "/tmp/shop/events"),
        # One folder per question, so that a next try goes on and another question does not mix with
        # it.
        out=os.environ.get("SHOP_BACKFILL", "/tmp/shop/backfill")
        + "/{{ params.since }}_{{ params.until }}",
        since="{{ params.since }}",
        until="{{ params.until }}",
        lineage={"datasets": "schemas"},
        datahub_conn_id="datahub_default",
        rate=500,
        retries=2,
    )

"""Deliver the pending entries of the outbox, of all DAGs: lineage that DataHub did not take when a
task ended.

Every ten minutes, for nine minutes at most: a DataHub that is down for a night does not keep a
worker busy, since each run gives it up after three failed deliveries, and the other entries wait
for the next run.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.deliver_lineage import DeliverLineageOperator

with DAG(
    dag_id="deliver_lineage",
    description="Lineage that waits in the outbox",
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["example", "lineage"],
):
    DeliverLineageOperator(task_id="deliver", max_seconds=540)

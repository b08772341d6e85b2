"""Lineage tasks that never run: their DAG run still has its end, through a connection in Airflow's database."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator

with DAG(
    dag_id="stored_connection",
    description="Nothing to do today",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"datahub_conn_id": "datahub_stored"},
):
    ShortCircuitOperator(task_id="anything_to_do", python_callable=lambda: False) >> SparkSubmitDatahubOperator(
        task_id="never_runs", name="never_runs", application="job.py"
    )

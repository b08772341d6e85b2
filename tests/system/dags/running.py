"""A streaming query that runs until a file asks it to stop, shown while it runs."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import CALLBACKS, JOBS, QUICK_SPARK, data_folder

FOLDER = data_folder()

with DAG(
    dag_id="running",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"conf": QUICK_SPARK, "datahub_conn_id": "datahub_file", **CALLBACKS},
):
    SparkSubmitDatahubOperator(
        task_id="stream",
        name="stream",
        application=str(JOBS / "stream_until_stopped.py"),
        application_args=[str(FOLDER), f"{FOLDER}/stop"],
        lineage={"capture_streaming": True},
        emit_periodically=1,
    )

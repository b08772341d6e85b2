"""Lineage tasks that never run, or end beside ``execute``; through a connection in Airflow's
database.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NoReturn

from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator


def skip(*_: object) -> NoReturn:
    """Skip the task, before or after ``execute``."""
    raise AirflowSkipException("nothing to do")


with DAG(
    dag_id="stored_connection",
    description="Nothing to do today",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"datahub_conn_id": "datahub_stored"},
):
    ShortCircuitOperator(
        task_id="anything_to_do", python_callable=lambda: False
    ) >> SparkSubmitDatahubOperator(task_id="never_runs", name="never_runs", application="job.py")
    SparkSubmitDatahubOperator(task_id="skipped_before", application="job.py", pre_execute=skip)
    SparkSubmitDatahubOperator(task_id="skipped_after", application="job.py", post_execute=skip)

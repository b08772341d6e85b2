"""Three DAGs: two, with lineage by policy, are scheduled on the table that the Spark job of the
first writes, and on what a task without lineage makes of it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator

START = datetime(2026, 1, 1, tzinfo=UTC)
LINEAGE = {
    "datahub_conn_id": "datahub_file",
    "emit_assets": True,
    "retries": 1,
    "retry_delay": timedelta(seconds=1),
}

with DAG(
    dag_id="asset_writer",
    schedule=None,
    start_date=START,
    default_args=LINEAGE,
    is_paused_upon_creation=False,
):
    write = SparkSubmitDatahubOperator(
        task_id="write", name="write", application="write.py", application_args=["1"]
    )
    write >> PythonOperator(
        task_id="export", python_callable=print, outlets=[Asset("file:///export")]
    )

for dag_id, asset, number in (
    ("asset_reader", "file:///out/1", "2"),
    ("export_reader", "file:///export", "3"),
):
    with DAG(
        dag_id=dag_id,
        schedule=[Asset(asset)],
        start_date=START,
        default_args=LINEAGE,
        is_paused_upon_creation=False,
    ):
        SparkSubmitOperator(
            task_id="read", name="read", application="read.py", application_args=[number]
        )

"""The example's two tasks; the Spark job of the first fails once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import CALLBACKS, EXAMPLE_JOBS, JOBS, QUICK_SPARK, data_folder

with DAG(
    dag_id="retried_shop",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={
        "conf": QUICK_SPARK,
        "datahub_conn_id": "datahub_file",
        "lineage": {"datasets": "schemas"},
        "application_args": [str(data_folder())],
        "retries": 1,
        "retry_delay": timedelta(seconds=1),
        **CALLBACKS,
    },
):
    orders = SparkSubmitDatahubOperator(
        task_id="build_orders",
        name="build_orders",
        application=str(JOBS / "flaky_build_orders.py"),
        py_files=str(EXAMPLE_JOBS / "build_orders.py"),
        emit_assets=True,
    )
    revenue = SparkSubmitDatahubOperator(
        task_id="revenue", name="revenue", application=str(EXAMPLE_JOBS / "revenue.py")
    )
    orders >> revenue

"""The example's two tasks; the Spark job of the first fails once."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import EXAMPLE_JOBS, JOBS, data_folder, system_dag

with system_dag(
    "retried_shop",
    lineage={"datasets": "schemas"},
    application_args=[str(data_folder())],
    retries=1,
    retry_delay=timedelta(seconds=1),
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

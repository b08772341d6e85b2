"""A streaming query that runs until a file asks it to stop, shown while it runs."""

from __future__ import annotations

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import JOBS, data_folder, system_dag

FOLDER = data_folder()

with system_dag("running"):
    SparkSubmitDatahubOperator(
        task_id="stream",
        name="stream",
        application=str(JOBS / "stream_until_stopped.py"),
        application_args=[str(FOLDER), f"{FOLDER}/stop"],
        emit_periodically=1,
    )

"""What happens to a task whose listener cannot be loaded, and to one whose time runs out."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import JOBS, data_folder, system_dag

FOLDER = data_folder()

with system_dag("hard_times") as dag:
    dag.user_defined_macros = {"task_pid": os.getpid}
    SparkSubmitDatahubOperator(
        task_id="wrong_scala",
        name="wrong_scala",
        application=str(JOBS / "copy_csv.py"),
        application_args=[f"{FOLDER}/first.csv", f"{FOLDER}/first", f"{FOLDER}/first.runs"],
        openlineage_jar=f"{FOLDER}/openlineage-spark_2.12-1.53.0.jar",
    )
    SparkSubmitDatahubOperator(
        task_id="timed_out",
        name="timed_out",
        application=str(JOBS / "copy_and_hang.py"),
        application_args=[
            f"{FOLDER}/second.csv",
            f"{FOLDER}/second",
            f"{FOLDER}/jvm_pid",
            "{{ task_pid() }}",
        ],
        execution_timeout=timedelta(minutes=4),
    )

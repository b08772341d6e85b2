"""A task that is killed while its Spark runs, which then writes."""

from __future__ import annotations

import os

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import JOBS, data_folder, system_dag

FOLDER = data_folder()

with system_dag("orphaned") as dag:
    dag.is_paused_upon_creation = False
    dag.user_defined_macros = {"task_pid": os.getpid}
    SparkSubmitDatahubOperator(
        task_id="killed",
        name="killed",
        application=str(JOBS / "write_after_the_kill.py"),
        application_args=[
            f"{FOLDER}/first.csv",
            f"{FOLDER}/first",
            f"{FOLDER}/go",
            "{{ task_pid() }}",
        ],
    )

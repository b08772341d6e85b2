"""Three DAGs that run one script, the last by the policy alone, and two with a ``main.py`` of their own."""

from __future__ import annotations

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_spark_datahub.operators.child_spark import BashDatahubOperator
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import JOBS, data_folder, system_dag

FOLDER = data_folder()

for number in (1, 2, 3):
    with system_dag(f"ingest_{number}"):
        operator = SparkSubmitOperator if number == 3 else SparkSubmitDatahubOperator
        operator(
            task_id="load",
            name=f"ingest_{number}",
            application=str(JOBS / "copy_csv.py"),
            application_args=[f"{FOLDER}/in.csv", f"{FOLDER}/out", f"{FOLDER}/runs", "ingest"],
        )
for number in (1, 2):
    with system_dag(f"main_{number}", conf=None):
        BashDatahubOperator(
            task_id="load",
            bash_command=f"spark-submit {FOLDER}/main.py {FOLDER}/in.csv {FOLDER}/out {FOLDER}/runs",
        )

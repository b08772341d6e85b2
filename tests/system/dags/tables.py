"""Two DAGs that run one script under one name, with tasks in a row that write tables.

One has a mapped task, and a task whose first attempt reads something else and fails.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import JOBS, data_folder, system_dag

FOLDER = str(data_folder())
TASK: dict[str, Any] = {
    "name": "tables",
    "application": str(JOBS / "write_tables.py"),
    "retries": 1,
    "retry_delay": timedelta(seconds=1),
}
FAILS_FIRST = "{{ 'fail' if ti.try_number == 1 else 'h=raw/h' }}"


def task(task_id: str, *steps: str) -> SparkSubmitDatahubOperator:
    """Return a task that writes tables."""
    return SparkSubmitDatahubOperator(task_id=task_id, application_args=[FOLDER, *steps])


with system_dag("tables", **TASK):
    (
        task("first", "a=raw/a")
        >> task("second", "b=raw/b", "c=raw/c+a")
        >> task("third", "summary=c", "report=b+raw/d")
    )

with system_dag("other_tables", **TASK):
    copies = SparkSubmitDatahubOperator.partial(task_id="first").expand(
        application_args=[[FOLDER, "e=raw/e"], [FOLDER, "f=raw/f"]]
    )
    retried = task("retried", "g=raw/{{ 'wrong' if ti.try_number == 1 else 'g' }}", FAILS_FIRST)
    copies >> retried

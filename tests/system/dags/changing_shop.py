"""Orders, and what others make of them: one needs the column vat, one reads what that made, one
only counts.

A task without lineage exports them, and another one reads the export.
"""

from __future__ import annotations

import os
import shutil

from airflow.sdk import task

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import JOBS, system_dag

with system_dag("changing_shop"):
    orders, revenue, buyers, report, partners = (
        SparkSubmitDatahubOperator(
            task_id=step,
            name=step,
            application=str(JOBS / "shop_step.py"),
            application_args=[os.environ.get("SHOP_LAKE", ""), step],
        )
        for step in ("orders", "revenue", "buyers", "report", "partners")
    )

    @task
    def export() -> None:
        lake = os.environ["SHOP_LAKE"]
        shutil.rmtree(f"{lake}/export", ignore_errors=True)
        shutil.copytree(f"{lake}/orders", f"{lake}/export")

    orders >> [revenue, buyers]
    revenue >> report
    orders >> export() >> partners

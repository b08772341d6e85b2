"""Orders, and what three tasks make of them: one needs the column vat, one reads what that made, one only counts."""

from __future__ import annotations

import os

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.system.reports import JOBS, system_dag

with system_dag("changing_shop"):
    orders, revenue, buyers, report = (
        SparkSubmitDatahubOperator(
            task_id=step,
            name=step,
            application=str(JOBS / "shop_step.py"),
            application_args=[os.environ.get("SHOP_LAKE", ""), step],
        )
        for step in ("orders", "revenue", "buyers", "report")
    )
    orders >> [revenue, buyers]
    revenue >> report

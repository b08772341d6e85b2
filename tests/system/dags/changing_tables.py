"""The shop of changing_shop, with tables of Iceberg and Delta."""

from __future__ import annotations

import os

from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from tests.connectors import JARS, PROPERTIES
from tests.system.reports import JOBS, QUICK_SPARK, system_dag

LAKE = os.environ.get("SHOP_LAKE", "")

with system_dag("changing_tables"):
    orders, revenue, buyers, report = (
        SparkSubmitDatahubOperator(
            task_id=step,
            name=step,
            application=str(JOBS / "table_step.py"),
            application_args=[LAKE, step],
            conf={**QUICK_SPARK, **PROPERTIES, "spark.sql.catalog.ice.warehouse": LAKE},
            driver_class_path=":".join(JARS),
        )
        for step in ("orders", "revenue", "buyers", "report")
    )
    orders >> revenue >> [buyers, report]

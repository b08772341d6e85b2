"""What the DAGs of the system tests have in common: how they find their data and save their lineage
reports.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

JOBS = Path(__file__).parent / "jobs"
EXAMPLE_JOBS = Path(__file__).parents[2] / "example_dags" / "jobs"
QUICK_SPARK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.log.level": "WARN",
}


def data_folder() -> Path:
    """Where the tasks' data is."""
    return Path(os.environ["SYSTEM_FOLDER"])


def save_report(context: Any) -> None:
    """Save the report of a try as a downstream task would get it; a callback of every end of a try."""
    ti = context["ti"]
    mapped = ti.map_index is not None and ti.map_index >= 0
    report = ti.xcom_pull(
        task_ids=ti.task_id, key="lineage_report", map_indexes=ti.map_index if mapped else -1
    )
    name = f"{ti.task_id}{f'[{ti.map_index}]' if mapped else ''} try {ti.try_number}.json"
    (data_folder() / "reports" / name).write_text(json.dumps(report))


def system_dag(dag_id: str, **default_args: Any) -> DAG:
    """Return a DAG that nothing schedules, whose tasks save their reports."""
    callbacks = {f"on_{end}_callback": save_report for end in ("success", "failure", "retry")}
    return DAG(
        dag_id=dag_id,
        schedule=None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        default_args={
            "conf": QUICK_SPARK,
            "datahub_conn_id": "datahub_file",
            **callbacks,
            **default_args,
        },
    )

"""What the DAGs of the system tests have in common: how they find their data and save their lineage reports."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

JOBS = Path(__file__).parent / "jobs"
EXAMPLE_JOBS = Path(__file__).parents[2] / "example_dags" / "jobs"
QUICK_SPARK = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.log.level": "WARN"}


def data_folder() -> Path:
    """Where the tasks' data is."""
    return Path(os.environ["SYSTEM_FOLDER"])


def save_report(context: Any) -> None:
    """Save the report of a try as a downstream task would get it; a callback of every end of a try."""
    ti = context["ti"]
    mapped = ti.map_index is not None and ti.map_index >= 0
    report = ti.xcom_pull(task_ids=ti.task_id, key="lineage_report", map_indexes=ti.map_index if mapped else -1)
    name = f"{ti.task_id}{f'[{ti.map_index}]' if mapped else ''} try {ti.try_number}.json"
    (data_folder() / "reports" / name).write_text(json.dumps(report))


CALLBACKS = {
    "on_success_callback": save_report,
    "on_failure_callback": save_report,
    "on_retry_callback": save_report,
}

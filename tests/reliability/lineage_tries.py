"""One try of a task with the same recorded job, under a policy and within a budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.operators.spark_submit import LineagePendingError
from tests.operators.tries import FakeSpark, TaskInstance, TaskState, context_of, execute, operator_with_lineage

CASE = "a_csv_join_agg"
POLICIES = ("warn", "retry", "fail")
BUDGET = 3.0
"""Seconds."""

SetEnvironment = Callable[[str, str], None]


def run_try(
    spark: FakeSpark, policy: str, state: TaskState, number: int = 1, budget: float = BUDGET
) -> tuple[bool, dict[str, Any]]:
    """Whether the try succeeded, and its report."""
    operator = operator_with_lineage(
        spark, datahub_conn_id="lineage", lineage_on_failure=policy, lineage_timeout=budget, name=CASE
    )
    ti = TaskInstance(try_number=number, max_tries=1)
    try:
        execute(operator, context_of(operator, ti, state))
    except LineagePendingError:
        return False, ti.xcoms["lineage_report"]
    return True, ti.xcoms["lineage_report"]


def connect(environment: SetEnvironment, **connection: Any) -> None:
    """Make this the connection of the tries."""
    environment("AIRFLOW_CONN_LINEAGE", json.dumps(connection))


def prepare(folder: Path, environment: SetEnvironment) -> FakeSpark:
    """A Spark, with all that lineage keeps below ``folder``."""
    environment("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    for kind in ("events", "outbox"):
        environment(f"AIRFLOW__SPARK_DATAHUB__{kind.upper()}_LOCATION", str(folder / kind))
    return FakeSpark(folder, environment)

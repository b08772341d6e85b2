"""One attempt of a task with the same recorded job, under a policy and within a budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.operators.task_lineage import LineagePendingError
from tests.operators.tries import (
    FakeSpark,
    TaskInstance,
    TaskState,
    context_of,
    execute,
    operator_with_lineage,
)
from tests.patience import BUDGETS, within

CASE = "a_csv_join_agg"
POLICIES = ("warn", "retry", "fail")
ENOUGH = 60.0
"""Seconds for lineage if the sink answers: more than a busy machine needs."""

SetEnvironment = Callable[[str, str], None]


def run_attempt(
    spark: FakeSpark,
    policy: str,
    state: TaskState,
    number: int = 1,
    budget: float = ENOUGH,
    task: str = "",
) -> tuple[bool, dict[str, Any]]:
    """Return whether the attempt succeeded, and its report.

    :param task: id of one task of several, which may be tried ten times.
    """
    ids: dict[str, Any] = {"task_id": task} if task else {}
    operator = operator_with_lineage(
        spark,
        datahub_conn_id="lineage",
        lineage_on_failure=policy,
        lineage_timeout=budget,
        name=task or CASE,
        **ids,
    )
    ti = TaskInstance(try_number=number, max_tries=10 if task else 1, **ids)
    try:
        execute(operator, context_of(operator, ti, state))
    except LineagePendingError:
        return False, ti.xcoms["lineage_report"]
    return True, ti.xcoms["lineage_report"]


def connect(environment: SetEnvironment, **connection: Any) -> None:
    """Make this the connection of the attempts."""
    environment("AIRFLOW_CONN_LINEAGE", json.dumps(connection))


def prepare(folder: Path, environment: SetEnvironment) -> FakeSpark:
    """Return a Spark; all that lineage keeps is below ``folder``."""
    environment(
        "AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"})
    )
    _locate(folder, environment)
    return FakeSpark(folder, environment)


def _locate(folder: Path, environment: SetEnvironment) -> None:
    for kind in ("events", "outbox"):
        environment(f"AIRFLOW__SPARK_DATAHUB__{kind.upper()}_LOCATION", str(folder / kind))


@dataclass(frozen=True)
class FirstAttempt:
    """First attempt of a task, during a fault.

    :param folder: holds the outbox.
    :param budget: the seconds that it had for lineage.
    """

    folder: Path
    spark: FakeSpark
    state: TaskState
    budget: float
    succeeded: bool
    report: dict[str, Any]

    @property
    def outbox(self) -> Path:
        return self.folder / "outbox"

    def use(self, environment: SetEnvironment) -> None:
        """Make the folders and the Spark of this attempt those of the next attempt, too."""
        _locate(self.folder, environment)
        self.spark.use()

    @property
    def words(self) -> str:
        """Return all texts of the report."""
        return " ".join([self.report["reason"] or "", *self.report["warnings"]])


def first_attempt(
    folder: Path,
    environment: SetEnvironment,
    policy: str,
    said: str,
    budgets: Sequence[float] = BUDGETS,
) -> FirstAttempt:
    """Run the first attempt of a task; again, of another task and with more time, if the time was
    too short.

    :param said: what the report says if the time was long enough to convert the events and to meet
        the fault.
    """
    return within(
        lambda budget: _attempt_within(budget, folder, environment, policy),
        lambda attempt: said in attempt.words and bool(attempt.report["proposals"]),
        budgets,
    )


def _attempt_within(
    budget: float, folder: Path, environment: SetEnvironment, policy: str
) -> FirstAttempt:
    place = folder / f"{budget:g} s"
    place.mkdir()
    spark, state = prepare(place, environment), TaskState()
    spark.writes(CASE)
    return FirstAttempt(
        place, spark, state, budget, *run_attempt(spark, policy, state, budget=budget)
    )

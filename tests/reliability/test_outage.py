"""A DAG of twenty tasks during an outage of DataHub: Spark runs once per task, and all of it arrives afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.operators.spark_submit import LineagePendingError
from tests.cli.commands import run as command
from tests.operators.tries import FakeSpark, TaskInstance, TaskState, context_of, execute, operator_with_lineage
from tests.oracles.gms import GmsStandIn
from tests.reliability.bad_servers import closed_port

TASKS = [f"task_{number:02d}" for number in range(20)]
TRIES_IN_THE_OUTAGE = 2


class Day:
    """The tries of the DAG's tasks, each task with its own state in Airflow."""

    def __init__(self, spark: FakeSpark, policy: str) -> None:
        self._spark = spark
        self._policy = policy
        self._states = {task: TaskState() for task in TASKS}

    def run_try(self, task: str, number: int) -> bool:
        """Whether the try succeeded."""
        operator = operator_with_lineage(
            self._spark,
            task_id=task,
            name=task,
            datahub_conn_id="gms",
            lineage_on_failure=self._policy,
            lineage_timeout=0.5,
        )
        ti = TaskInstance(task_id=task, try_number=number, max_tries=10)
        try:
            execute(operator, context_of(operator, ti, self._states[task]))
        except LineagePendingError:
            return False
        return True


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def connect(url: str) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_GMS", json.dumps({"conn_type": "datahub-rest", "host": url}))

    return connect


def tasks_told(gms: GmsStandIn) -> set[str]:
    """The tasks whose DataHub run is complete."""
    assert gms.dropped == []
    runs = {one["entityUrn"]: json.loads(one["aspect"]["value"])["name"] for one in gms.stored if is_of_a_run(one)}
    return {task for task in TASKS if any(task in name for name in runs.values())}


def is_of_a_run(proposal: dict[str, str]) -> bool:
    return proposal["aspectName"] == "dataProcessInstanceProperties"


@pytest.mark.parametrize("policy", ["warn", "retry", "fail"])
def test_spark_runs_once_per_task(
    policy: str, spark: FakeSpark, connect: Callable[[str], None], tmp_path: Path
) -> None:
    spark.writes("a_csv_join_agg")
    day = Day(spark, policy)
    connect(f"http://127.0.0.1:{closed_port()}")
    waiting = TASKS
    for number in range(1, TRIES_IN_THE_OUTAGE + 1):
        waiting = [task for task in waiting if not day.run_try(task, number)]
        assert waiting == ([] if policy == "warn" else TASKS)

    with GmsStandIn() as gms:
        connect(gms.url)
        assert all(day.run_try(task, TRIES_IN_THE_OUTAGE + 1) for task in waiting)
        assert command("emit", "--outbox", tmp_path / "outbox").exit_code == 0
        assert tasks_told(gms) == set(TASKS)
        edges = [one for one in gms.stored if one["aspectName"] == "dataJobInputOutput"]
        with_tables = {one["entityUrn"] for one in edges if "revenue_by_country" in one["aspect"]["value"]}
        assert len(with_tables) >= len(TASKS)
    assert len(spark.runs) == len(TASKS)
    assert command("pending", "--outbox", tmp_path / "outbox").exit_code == 0

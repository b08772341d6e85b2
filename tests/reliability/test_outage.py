"""A DAG of twenty tasks in an outage of DataHub: Spark runs once per task, and all lineage arrives afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import run as command
from tests.operators.tries import FakeSpark, TaskState
from tests.oracles.gms import GmsStandIn
from tests.reliability.lineage_tries import connect, run_attempt
from tests.servers.process import closed_port

TASKS = [f"task_{number:02d}" for number in range(20)]
ATTEMPTS_IN_THE_OUTAGE = 2


class Day:
    """Attempts of the DAG's tasks, each task with its own state in Airflow."""

    def __init__(self, spark: FakeSpark, policy: str) -> None:
        self._spark = spark
        self._policy = policy
        self._states = {task: TaskState() for task in TASKS}

    def run_attempt(self, task: str, number: int) -> bool:
        """Return whether the attempt succeeded."""
        return run_attempt(self._spark, self._policy, self._states[task], number, task=task)[0]


@pytest.fixture
def connect_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda url: connect(monkeypatch.setenv, conn_type="datahub-rest", host=url)


def tasks_with_runs(gms: GmsStandIn) -> set[str]:
    """Return the tasks whose DataHub run is complete."""
    assert gms.dropped == []
    runs = {
        proposal["entityUrn"]: json.loads(proposal["aspect"]["value"])["name"]
        for proposal in gms.stored
        if is_of_a_run(proposal)
    }
    return {task for task in TASKS if any(task in name for name in runs.values())}


def is_of_a_run(proposal: dict[str, str]) -> bool:
    return proposal["aspectName"] == "dataProcessInstanceProperties"


def test_one_task_finds_out_and_the_others_keep_their_lineage(
    spark: FakeSpark, connect_to: Callable[[str], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each attempt says in one WARNING why and what to do."""
    connect_to(f"http://127.0.0.1:{closed_port()}")
    spark.writes("a_csv_join_agg")
    day = Day(spark, "warn")
    for number, task in enumerate(TASKS[:3]):
        capfd.readouterr()
        assert day.run_attempt(task, 1)
        lines = capfd.readouterr().out.splitlines()
        (warning,) = (line for line in lines if "[warning" in line and "ineage" in line)
        assert "Connection refused, " in warning
        assert number == 0 or "no other task of this host asks it again before " in warning
        assert (
            f'the next run of the DAG delivers it, and "spark-datahub emit --outbox {tmp_path / "outbox"}"' in warning
        )
    with GmsStandIn() as gms:
        connect_to(gms.url)  # another server is asked at once
        assert day.run_attempt(TASKS[3], 1)
        assert tasks_with_runs(gms) >= {TASKS[3]}


@pytest.mark.parametrize("policy", ["warn", "retry", "fail"])
def test_spark_runs_once_per_task(
    policy: str, spark: FakeSpark, connect_to: Callable[[str], None], tmp_path: Path
) -> None:
    spark.writes("a_csv_join_agg")
    day = Day(spark, policy)
    waiting = TASKS
    with GmsStandIn() as server_in_maintenance:
        server_in_maintenance.fail_next(503, headers={"Retry-After": "3600"}, times=10_000)
        connect_to(server_in_maintenance.url)
        for number in range(1, ATTEMPTS_IN_THE_OUTAGE + 1):
            waiting = [task for task in waiting if not day.run_attempt(task, number)]
            assert waiting == ([] if policy == "warn" else TASKS)
        assert server_in_maintenance.stored == []

    with GmsStandIn() as gms:
        connect_to(gms.url)
        assert all(day.run_attempt(task, ATTEMPTS_IN_THE_OUTAGE + 1) for task in waiting)
        assert command("emit", "--outbox", tmp_path / "outbox").exit_code == 0
        assert tasks_with_runs(gms) == set(TASKS)
        edges = [proposal for proposal in gms.stored if proposal["aspectName"] == "dataJobInputOutput"]
        with_tables = {
            proposal["entityUrn"] for proposal in edges if "revenue_by_country" in proposal["aspect"]["value"]
        }
        assert len(with_tables) >= len(TASKS)
    assert len(spark.runs) == len(TASKS)
    assert command("pending", "--outbox", tmp_path / "outbox").exit_code == 0

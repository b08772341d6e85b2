"""Each fault under each policy: the task ends as its policy says, waits for nothing that hangs, and
loses nothing.

The table in ``docs/reliability.md`` lists the same faults; a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import run as command
from tests.operators.tries import FakeSpark, TaskState
from tests.oracles.gms import GmsStandIn
from tests.patience import BUDGETS, PATIENCE
from tests.reliability.catalogue import catalogue
from tests.reliability.faults import FAULTS, Fault
from tests.reliability.lineage_tries import (
    CASE,
    ENOUGH,
    POLICIES,
    connect,
    first_attempt,
    run_attempt,
)
from tests.servers.process import closed_port

MATRIX = Path(__file__).parents[2] / "docs" / "reliability.md"


# Each of these takes seconds, and ends as 400 does.
_AS_400 = {"409": "warn", "413": "retry", "422": "fail"}
EACH = [
    pytest.param(fault, policy, id=f"{fault.name}-{policy}")
    for fault in FAULTS
    for policy in POLICIES
    if _AS_400.get(fault.name, policy) == policy
]


@pytest.mark.parametrize(("fault", "policy"), EACH)
def test_fault(
    fault: Fault,
    policy: str,
    undisturbed: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    with fault.serve() as url:
        connect(monkeypatch.setenv, conn_type="datahub-rest", host=url)
        # A sink that refuses proposals for good is asked about each of them, and ends when it has
        # answered.
        budgets = BUDGETS if fault.lineage == "pending" else (ENOUGH,)
        first = first_attempt(tmp_path, monkeypatch.setenv, policy, fault.said, budgets)

    report = first.report
    assert (
        report[{"pending": "pending", "quarantined": "rejected"}[fault.lineage]]
        == report["proposals"]
        > 0
    )
    assert fault.said in first.words
    record_property("share of the budget", report["seconds"] / first.budget)
    assert report["seconds"] < first.budget + PATIENCE
    assert first.succeeded is (policy == "warn" or fault.lineage == "quarantined")

    with GmsStandIn() as gms:
        connect(monkeypatch.setenv, conn_type="datahub-rest", host=gms.url)
        if fault.lineage == "quarantined":
            assert command("requeue", "--all", "--outbox", first.outbox).exit_code == 0
        if not first.succeeded:
            assert run_attempt(first.spark, policy, first.state, number=2)[0]
        assert command("emit", "--outbox", first.outbox).exit_code == 0
        assert len(first.spark.runs) == 1
        assert catalogue(gms) >= undisturbed
        if first.succeeded:
            assert catalogue(gms) == undisturbed
    assert command("pending", "--outbox", first.outbox).exit_code == 0


def test_the_documented_matrix_is_this_one() -> None:
    matrix = (
        MATRIX.read_text()
        .partition("## Fault matrix")[2]
        .partition("\n## ")[0]
        .partition("\n### ")[0]
    )
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in matrix.splitlines()
        if line.startswith("| ")
    ]
    documented = {
        (name, lineage, task) for lineage, task, names in rows[1:] for name in names.split("; ")
    }
    outcomes = {"pending": "UP_FOR_RETRY, then success", "quarantined": "success"}
    assert documented == {(fault.name, fault.lineage, outcomes[fault.lineage]) for fault in FAULTS}


def test_the_other_tasks_of_a_host_ask_a_server_that_is_down_no_more(
    spark: FakeSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Each attempt says in one WARNING why and what to do."""
    connect(monkeypatch.setenv, conn_type="datahub-rest", host=f"http://127.0.0.1:{closed_port()}")
    spark.writes(CASE)
    for number in range(3):
        capfd.readouterr()
        assert run_attempt(spark, "warn", TaskState(), task=f"task_{number}")[0]
        (warning,) = (
            line
            for line in capfd.readouterr().out.splitlines()
            if "[warning" in line and "ineage" in line
        )
        assert "Connection refused, " in warning
        assert number == 0 or "no other task of this host asks it again before " in warning
        assert (
            f'sees the outbox, delivers it, and "spark-datahub emit --outbox {tmp_path / "outbox"}"'
            in warning
        )
    with GmsStandIn() as gms:
        connect(
            monkeypatch.setenv, conn_type="datahub-rest", host=gms.url
        )  # another server is asked at once
        assert run_attempt(spark, "warn", TaskState(), task="task_3")[1]["pending"] == 0
        assert any("task_3" in json.dumps(proposal) for proposal in gms.stored)
        assert gms.dropped == []

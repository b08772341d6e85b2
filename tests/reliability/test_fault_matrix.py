"""Each fault under each policy: the task ends as it is told to, waits for nothing that hangs, and nothing is lost.

The table in ``docs/reliability.md`` lists the same faults; a test holds it to them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import run as command
from tests.operators.tries import FakeSpark, TaskState
from tests.oracles.gms import GmsStandIn
from tests.patience import PATIENCE
from tests.reliability.catalogue import catalogue
from tests.reliability.faults import FAULTS, Fault
from tests.reliability.lineage_tries import BUDGET, CASE, POLICIES, connect, run_try

MATRIX = Path(__file__).parents[2] / "docs" / "reliability.md"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(
    fault: Fault,
    policy: str,
    spark: FakeSpark,
    undisturbed: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    spark.writes(CASE)
    state = TaskState()
    with fault.serve() as url:
        connect(monkeypatch.setenv, conn_type="datahub-rest", host=url)
        # To find out who is to blame takes a request for each: that is not what the time is measured of.
        budget = BUDGET if fault.lineage == "pending" else 30.0
        succeeded, report = run_try(spark, policy, state, budget=budget)

    assert report[{"pending": "pending", "quarantined": "rejected"}[fault.lineage]] == report["proposals"] > 0
    assert fault.said in " ".join([report["reason"] or "", *report["warnings"]])
    record_property("share of the budget", report["seconds"] / budget)
    assert report["seconds"] < budget + PATIENCE
    assert succeeded is (policy == "warn" or fault.lineage == "quarantined")

    with GmsStandIn() as gms:
        connect(monkeypatch.setenv, conn_type="datahub-rest", host=gms.url)
        if fault.lineage == "quarantined":
            assert command("requeue", "--all", "--outbox", tmp_path / "outbox").exit_code == 0
        if not succeeded:
            assert run_try(spark, policy, state, number=2)[0]
        assert command("emit", "--outbox", tmp_path / "outbox").exit_code == 0
        assert len(spark.runs) == 1
        assert catalogue(gms) >= undisturbed
        if succeeded:
            assert catalogue(gms) == undisturbed
    assert command("pending", "--outbox", tmp_path / "outbox").exit_code == 0


def test_the_documented_matrix_is_this_one() -> None:
    rows = [line.split("|")[1:-1] for line in MATRIX.read_text().splitlines() if line.startswith("| ")]
    documented = {tuple(cell.strip() for cell in row) for row in rows if len(row) == 3}
    outcomes = {"pending": "UP_FOR_RETRY, then success", "quarantined": "success"}
    assert {(fault.name, fault.lineage, outcomes[fault.lineage]) for fault in FAULTS} <= documented

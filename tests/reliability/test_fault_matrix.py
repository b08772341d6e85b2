"""Each fault under each policy: the task ends as it is told to, in time, and nothing is lost.

The table in ``docs/reliability.md`` lists the same faults; a test holds it to them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.operators.spark_submit import LineagePendingError
from tests.cli.commands import run as command
from tests.operators.tries import FakeSpark, TaskInstance, TaskState, context_of, execute, operator_with_lineage
from tests.oracles.gms import GmsStandIn
from tests.reliability.catalogue import catalogue
from tests.reliability.faults import FAULTS, Fault

MATRIX = Path(__file__).parents[2] / "docs" / "reliability.md"
BUDGET = 3.0
CASE = "a_csv_join_agg"
POLICIES = ("warn", "retry", "fail")


def connect(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_GMS", json.dumps({"conn_type": "datahub-rest", "host": url}))


def run_try(spark: FakeSpark, policy: str, state: TaskState, number: int = 1) -> tuple[bool, dict[str, Any]]:
    """Whether the try succeeded, and its report."""
    operator = operator_with_lineage(
        spark, datahub_conn_id="gms", lineage_on_failure=policy, lineage_timeout=BUDGET, name=CASE
    )
    ti = TaskInstance(try_number=number, max_tries=1)
    try:
        execute(operator, context_of(operator, ti, state))
    except LineagePendingError:
        return False, ti.xcoms["lineage_report"]
    return True, ti.xcoms["lineage_report"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What DataHub is told where nothing goes wrong."""
    with pytest.MonkeyPatch.context() as monkeypatch, GmsStandIn() as gms:
        folder = tmp_path_factory.mktemp("undisturbed")
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
        for kind in ("events", "outbox"):
            monkeypatch.setenv(f"AIRFLOW__SPARK_DATAHUB__{kind.upper()}_LOCATION", str(folder / kind))
        spark = FakeSpark(folder, monkeypatch.setenv)
        spark.writes(CASE)
        connect(gms.url, monkeypatch)
        succeeded, report = run_try(spark, "warn", TaskState())
        assert (succeeded, report["pending"], report["reason"]) == (True, 0, None)
        return catalogue(gms)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(
    fault: Fault,
    policy: str,
    spark: FakeSpark,
    undisturbed: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark.writes(CASE)
    state = TaskState()
    with fault.serve() as url:
        connect(url, monkeypatch)
        succeeded, report = run_try(spark, policy, state)

    assert report[{"pending": "pending", "quarantined": "rejected"}[fault.lineage]] == report["proposals"] > 0
    assert fault.said in " ".join([report["reason"] or "", *report["warnings"]])
    assert report["seconds"] <= BUDGET * 1.1
    assert succeeded is (policy == "warn" or fault.lineage == "quarantined")

    with GmsStandIn() as gms:
        connect(gms.url, monkeypatch)
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

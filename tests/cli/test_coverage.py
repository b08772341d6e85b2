"""Tasks with and without lineage, as the command line counts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from airflow_provider_spark_datahub.delivery import Delivery
from airflow_provider_spark_datahub.delivery.outbox import Outbox
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.hooks.lineage_source import LineageSource, TaskReport
from tests.cases import tables
from tests.cli.commands import run
from tests.delivery.outboxes import key, outbox_at, put

MISSING = "there is no event file: the OpenLineage listener did not run"


@pytest.fixture
def outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outbox:
    opened = outbox_at(tmp_path / "outbox")
    monkeypatch.setattr(LineageSource, "_outbox", lambda _: opened)
    return opened


def reported(monkeypatch: pytest.MonkeyPatch, *reports: dict[str, Any]) -> list[object]:
    """Have tasks of two DAGs report; return the queries to the database."""
    asked: list[object] = []
    tasks = [
        TaskReport(
            AttemptKey("shop" if number % 2 else "payroll", "r", f"task{number}", -1, 0), report, 0
        )
        for number, report in enumerate(reports)
    ]

    def answer(_: LineageSource, dag_ids: set[str] | None, **options: Any) -> list[TaskReport]:
        asked.append(options["since"])
        return [task for task in tasks if dag_ids is None or task.key.dag_id in dag_ids]

    monkeypatch.setattr(LineageSource, "reports", answer)
    return asked


def test_reasons_are_counted_without_the_files_that_they_name(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted = put(outbox, AttemptKey("shop", "r", "task9", -1, 0), 1)
    # task9 was killed, and emit has delivered its lineage.
    killed = {"failed": True, "outbox_entry": str(emitted)}
    reports: list[Any] = tables("coverage")["reports"]
    asked = reported(monkeypatch, *reports[:9], killed, *reports[9:])
    emitted.settle(Delivery(1, stored=True), [*emitted.items()])
    put(outbox, key(), 3)
    put(outbox, key(task_id="refused"), 1).quarantine("no such aspect")
    outbox.begin(key(task_id="killed"), connection_id="datahub", events="/e", redo={})
    result = run("coverage", "--since", "2026-01-01", "--json")
    counts = json.loads(result.stdout)
    assert counts.pop("oldest_pending_seconds") < 3600
    assert counts == tables("coverage")["counts"]
    assert result.exit_code == 1
    text = run("coverage", "--dag", "shop").stdout.splitlines()
    assert text[0].startswith("1 of 5 tasks with lineage (20.0 %) since ")
    assert text[1] == f"  2 without: {MISSING}"
    assert text[2] == "  2 without: the jar … does not fit: see …"
    assert text[3].startswith(
        "outbox: 1 entry pending and 1 not converted, the oldest for 0.0 h; 1 quarantined"
    )
    assert len(asked) == 2


def test_nothing_is_wrong(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    reported(monkeypatch, {"inputs": ["a"]})
    result = run("coverage")
    assert (result.exit_code, result.stdout.splitlines()[1]) == (
        0,
        "outbox: 0 entries pending and 0 not converted; 0 quarantined",
    )
    assert outbox.names() == []


def test_a_database_that_cannot_be_read(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OperationalError("SELECT", {}, Exception("no such table: xcom"))

    monkeypatch.setattr(LineageSource, "reports", refuse)
    result = run("coverage")
    assert (result.exit_code, outbox.names()) == (1, [])
    assert result.stderr == "cannot read the reports in Airflow's database: OperationalError\n"

"""``spark-datahub backfill``, with a stand-in for spark-submit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.backfill.results import calls, stand_in
from tests.cases import cases
from tests.cli.commands import run
from tests.conversion.builders import CORPUS
from tests.delivery.connections import connect_to_files
from tests.delivery.samples import delivered, delivered_text

pytestmark = pytest.mark.slow

Backfill = Callable[..., Result]


@pytest.fixture
def backfill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backfill:
    """Run the command on an archive of one job."""
    binary = stand_in(tmp_path, monkeypatch)
    connect_to_files(monkeypatch, "lineage_sink", tmp_path / "sink")
    events = tmp_path / "events"
    events.mkdir()
    shutil.copy(CORPUS / "events/a_csv_join_agg.ndjson", events)

    def call(*options: object) -> Result:
        return run(
            "backfill", events, "--out", tmp_path / "out", "--spark-submit", binary, *options
        )

    return call


def plan_of(call: list[str]) -> dict[str, Any]:
    return dict(json.loads(call[-1]))


def test_the_summary_as_json(backfill: Backfill) -> None:
    done = backfill("--dry-run", "--json")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["runs"] == 1
    assert f"{summary['events']} events of 1 run: " in done.stderr


def test_options_reach_the_cluster(backfill: Backfill, tmp_path: Path) -> None:
    config = tmp_path / "options.yaml"
    config.write_text("env: DEV\n")
    done = backfill(
        *(
            "--since",
            "2020-01-01",
            "--until",
            "2030-01-01",
            "--application",
            "a_*",
            "--run-history",
            "--parts",
            "3",
        ),
        *("--config", config, "--set", "tags=a,b", "--master", "yarn", "--deploy-mode", "cluster"),
        *("--conf", "spark.executor.memory=4g"),
    )
    assert done.exit_code == 0, done.stderr
    (call,) = calls(tmp_path)
    assert call[:8] == [
        *("--name", "spark-datahub backfill", "--master", "yarn", "--deploy-mode", "cluster"),
        *("--conf", "spark.executor.memory=4g"),
    ]
    plan = plan_of(call)
    assert plan.pop("sources") == [str(tmp_path / "events")]
    assert plan == {
        "out": f"file://{tmp_path}/out",
        "options": [{"env": "DEV"}, {"tags": "a,b"}],
        "since": "2020-01-01",
        "until": "2030-01-01",
        "applications": ["a_*"],
        "run_history": True,
        "parts": 3,
        "dry_run": False,
    }


def test_it_delivers_and_a_second_time_has_nothing_to_do(
    backfill: Backfill, tmp_path: Path
) -> None:
    first = backfill("--emit", "lineage_sink", "--rate", "0")
    assert first.exit_code == 0, first.stderr
    assert "14 proposals delivered, 0 rejected; complete: 1 of 1 part" in first.stderr
    sent = delivered_text(tmp_path / "sink")
    assert backfill("--emit", "lineage_sink").exit_code == 0
    assert delivered_text(tmp_path / "sink") == sent
    assert len(calls(tmp_path)) == 1


def test_a_dry_run_delivers_nothing_and_the_real_one_follows(
    backfill: Backfill, tmp_path: Path
) -> None:
    done = backfill("--dry-run", "--emit", "lineage_sink")
    assert done.exit_code == 0
    assert "14 proposals" in done.stderr
    assert not (tmp_path / "out/proposals").exists()
    assert backfill("--emit", "lineage_sink").exit_code == 0
    assert [plan_of(call)["dry_run"] for call in calls(tmp_path)] == [True, False]
    assert len(delivered(tmp_path / "sink")) == 14


def test_since_a_duration_ago(backfill: Backfill, tmp_path: Path) -> None:
    first = backfill("--since", "99999d", "--until", "0s", "--dry-run")
    assert first.exit_code == 0, first.stderr
    assert "23 events of 1 run" in first.stderr
    (call,) = calls(tmp_path)
    since = datetime.fromisoformat(plan_of(call)["since"])
    assert abs(datetime.now(UTC) - since - timedelta(days=99_999)) < timedelta(minutes=10)


def test_a_repeated_backfill_keeps_the_time_that_was_a_duration_ago(
    backfill: Backfill, tmp_path: Path
) -> None:
    assert backfill("--since", "36500d").exit_code == 0
    plan = tmp_path / "out" / "_state" / "plan.json"
    stored = json.loads(plan.read_text())
    plan.write_text(json.dumps({**stored, "since": "1926-01-01T00:00:00Z"}))
    repeated = backfill("--since", "36500d", "--emit", "lineage_sink", "--rate", "0")
    assert repeated.exit_code == 0, repeated.stderr
    assert len(calls(tmp_path)) == 1


@cases("cli")
def test_wrong_options_cost_no_spark_job(
    backfill: Backfill, tmp_path: Path, options: list[str], message: str
) -> None:
    done = backfill(*options)
    assert (done.exit_code, calls(tmp_path)) == (2, [])
    assert message in done.stderr


def test_a_connection_that_cannot_be_used_is_reported(backfill: Backfill) -> None:
    done = backfill("--emit", "nowhere")
    assert done.exit_code == 2
    assert "connection 'nowhere' cannot be used" in done.stderr


def test_the_failure_of_spark_is_reported(
    backfill: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SPARK_STATUS", "1")
    done = backfill("--emit", "lineage_sink")
    assert done.exit_code == 1
    assert "ended with status 1" in done.stderr


def test_a_missing_spark_submit_is_reported(backfill: Backfill, tmp_path: Path) -> None:
    done = backfill("--spark-submit", tmp_path / "none")
    assert done.exit_code == 2
    assert "cannot run" in done.stderr

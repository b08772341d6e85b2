"""Jobs of tasks that are gone, removed from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub import hooks
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.cli.commands import run
from tests.conversion.pairs import Catalog
from tests.conversion.test_retirement import Run, job
from tests.delivery.connections import connect_to_files
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered

DAY_MS = 86_400_000
TWO = {"x": "a", "y": "b"}


@pytest.fixture
def outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """Return the option that names the outbox, whose connection leads to files."""
    connect_to_files(monkeypatch, "lineage_sink", tmp_path / "sink")
    return "--outbox", tmp_path / "outbox"


def sent(folder: Path, task_id: str, *runs: Run, dag_id: str = "shop", age_days: float = 0) -> None:
    """Put a run into the outbox that ended so many days ago."""
    outbox = outbox_at(folder / "outbox")
    key = AttemptKey(dag_id, "r1", task_id, -1, 1)
    end_ms = round(outbox.storage.now_ms() - age_days * DAY_MS)
    made = [proposal for each in runs for proposal in each.proposals(end_ms)]
    outbox.put(key, made, spark_succeeded=True, connection_id="lineage_sink")


def removed(folder: Path, outbox: tuple[str, Path]) -> set[str]:
    """Deliver everything, and return the jobs that DataHub has as removed."""
    assert run("emit", *outbox).exit_code == 0
    catalog = Catalog()
    catalog.apply(map(Proposal.from_obj, delivered(folder / "sink")))
    for urn in catalog.removed:
        assert not catalog.jobs[urn].inputs | catalog.jobs[urn].outputs
    return catalog.removed


@pytest.fixture
def _airflow_has_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "tasks_of_dags", lambda _: {"shop": {"build"}})


@pytest.mark.slow
@pytest.mark.usefixtures("_airflow_has_one_task")
def test_jobs_of_tasks_and_dags_that_are_gone_are_removed(
    tmp_path: Path, outbox: tuple[str, Path]
) -> None:
    sent(tmp_path, "build", Run(TWO))
    sent(tmp_path, "gone", Run(TWO, name="shop.gone"))
    sent(tmp_path, "build", Run({"x": "a"}, name="old.build"), dag_id="old")
    gone = {
        job(name) for name in ("shop.gone", "shop.gone.file.x", "shop.gone.file.y", "old.build")
    }

    listed = run("retire", *outbox, "--dry-run", "--json")
    assert (listed.exit_code, listed.stderr) == (0, "Jobs to remove from DataHub: 4\n")
    retired = json.loads(listed.stdout)["retired"]
    assert {each["job"] for each in retired} == gone
    assert {(each["dag"], each["task"]) for each in retired} == {("shop", "gone"), ("old", "build")}
    assert removed(tmp_path, outbox) == set()

    result = run("retire", *outbox)
    assert f"old  build  {job('old.build')}\n" in result.stdout
    assert f"Next: spark-datahub emit --outbox {outbox[1]}" in result.stderr
    assert removed(tmp_path, outbox) == gone
    assert run("retire", *outbox).stdout == ""
    assert len([*outbox_at(outbox[1]).jobs.all()]) == 1


@pytest.mark.slow
def test_what_airflow_does_not_say_is_not_gone(tmp_path: Path, outbox: tuple[str, Path]) -> None:
    """Its database has no tables here."""
    sent(tmp_path, "build", Run({"x": "a"}, name="orders_1"), age_days=31)
    sent(tmp_path, "build", Run({"x": "a"}, name="orders_2"), age_days=29)
    result = run("retire", *outbox)
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        "No task counts as gone, since Airflow does not answer: Airflow's database" in result.stderr
    )
    assert run("retire", *outbox, "--days", "30").exit_code == 1
    assert removed(tmp_path, outbox) == {job("orders_1")}
    (record,) = outbox_at(outbox[1]).jobs.all()
    assert record.applications.keys() == {job("orders_2")}


@pytest.mark.slow
@pytest.mark.usefixtures("_airflow_has_one_task")
def test_a_job_that_another_task_has_stays(tmp_path: Path, outbox: tuple[str, Path]) -> None:
    sent(tmp_path, "gone", Run({"x": "a"}, name="shared"))
    sent(tmp_path, "build", Run({"x": "a"}, name="shared"))
    assert run("retire", *outbox).exit_code == 0
    assert removed(tmp_path, outbox) == set()
    (record,) = outbox_at(outbox[1]).jobs.all()
    assert record.key.task_id == "build"

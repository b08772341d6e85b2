"""Through DataHub's REST interface, through a connection that refuses, and through one that refuses
at first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracles.gms import GmsStandIn
from tests.patience import PATIENCE
from tests.servers.process import closed_port
from tests.system.airflow_home import AirflowHome, DagTest
from tests.system.catalogue import (
    Catalogue,
    edges,
    output_job,
    patched_paths,
    spark_job,
    task_job,
)

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

DAG = "deliveries"
TOKEN = "a-personal-access-token"
SOURCES = ("first", "second", "kept", "late")


@pytest.fixture(scope="module")
def gms() -> Iterator[GmsStandIn]:
    with GmsStandIn(TOKEN) as stand_in:
        yield stand_in


@pytest.fixture(scope="module")
def delivered(
    airflow_home: AirflowHome, gms: GmsStandIn, tmp_path_factory: pytest.TempPathFactory
) -> DagTest:
    folder = tmp_path_factory.mktemp("deliveries")
    for name in SOURCES:
        (folder / f"{name}.csv").write_text("id,name\n1,Ada\n")
    (folder / "sink").write_text("a file, where the file sink wants a folder")
    connections = {
        "datahub_rest": {"conn_type": "datahub-rest", "host": gms.url, "password": TOKEN},
        "datahub_refused": {
            "conn_type": "datahub-rest",
            "host": f"http://127.0.0.1:{closed_port()}",
        },
        "datahub_file": {"conn_type": "datahub-file", "host": str(folder / "sink")},
    }
    return airflow_home.dags_test(DAG, folder, connections)


@pytest.fixture
def catalogue(delivered: DagTest, gms: GmsStandIn) -> Catalogue:  # noqa: ARG001 (the DAG runs first)
    return Catalogue(gms.stored)


@pytest.fixture
def late(delivered: DagTest) -> Catalogue:
    """Return what the connection took that refused at first."""
    return Catalogue.of_folder(delivered.folder / "sink")


def test_rest_stores_every_proposal(delivered: DagTest, gms: GmsStandIn) -> None:
    assert delivered.succeeded, delivered.output[-20_000:]
    assert gms.dropped == []
    for name in ("mapped[0] try 1", "mapped[1] try 1", "nothing try 1"):
        report = delivered.reports[name]
        assert (report["pending"], report["rejected"], report["stored"]) == (0, 0, True), name
        assert report["delivered"] == report["proposals"] > 0


def test_mapped_instances_have_runs_of_their_own(delivered: DagTest, catalogue: Catalogue) -> None:
    dag_run = catalogue.dag_run(DAG)
    for index, name in enumerate(("first", "second")):
        run = catalogue.task_run(DAG, "mapped", index)
        relationships = catalogue.one(run, "dataProcessInstanceRelationships")
        assert relationships["parentInstance"] == dag_run
        assert relationships["parentTemplate"] == task_job(DAG, "mapped")
        assert catalogue.run_events(run) == [("STARTED", 1, None), ("COMPLETE", 1, "SUCCESS")]
        (spark_run,) = catalogue.children(run)
        assert catalogue.run_events(spark_run) == [
            ("STARTED", None, None),
            ("COMPLETE", None, "SUCCESS"),
        ]
        # The runs of a mapped task only add.
        job = spark_job(DAG, "mapped", f"copy_{index}")
        (added,) = catalogue.all(
            output_job(job, delivered.dataset(name)), "dataJobInputOutput", "PATCH"
        )
        paths = patched_paths(added)
        assert f"/inputDatasetEdges/{delivered.dataset(f'{name}.csv')}" in paths
        assert f"/outputDatasetEdges/{delivered.dataset(name)}" in paths


def test_a_retry_for_lineage_alone_makes_one_asset_event(
    delivered: DagTest, late: Catalogue, airflow_home: AirflowHome
) -> None:
    ((uri, extra),) = airflow_home.asset_events(DAG)
    assert uri == f"file://{delivered.folder / 'late'}"
    assert extra["datahub_urn"] == delivered.dataset("late")
    assert extra["datahub_task_run"] == late.task_run(DAG, "delivered_late")


def test_a_job_that_touches_no_dataset_says_why(delivered: DagTest, catalogue: Catalogue) -> None:
    report = delivered.reports["nothing try 1"]
    assert (report["inputs"], report["outputs"]) == ([], [])
    assert report["events"] > 0
    assert "name no dataset" in report["reason"]
    assert report["reason"] in delivered.output
    run = catalogue.task_run(DAG, "nothing")
    assert catalogue.run_events(run) == [("STARTED", 1, None), ("COMPLETE", 1, "SUCCESS")]


def test_refused_lineage_waits_in_the_outbox(delivered: DagTest) -> None:
    report = delivered.reports["kept try 1"]
    assert (report["delivered"], report["pending"]) == (0, report["proposals"])
    assert "refused" in report["reason"]
    assert report["seconds"] < PATIENCE, "it waited for a server that refuses"
    manifest, *proposals = Path(report["outbox_entry"]).read_text().splitlines()
    assert json.loads(manifest)["spark_succeeded"] is True
    waiting = Catalogue(map(json.loads, proposals))
    waiting.assert_strict()
    assert edges(waiting.one(spark_job(DAG, "kept"), "dataJobInputOutput"), "output") == {
        delivered.dataset("kept")
    }
    assert Path(report["events_file"]).is_file()


def test_a_retry_for_lineage_alone_does_not_run_spark_again(
    delivered: DagTest, late: Catalogue
) -> None:
    assert (delivered.folder / "late.runs").read_text() == "ran\n"
    first, second = (delivered.reports[f"delivered_late try {number}"] for number in (1, 2))
    assert first["pending"] == first["proposals"] > 0
    assert (second["pending"], second["delivered"]) == (0, second["proposals"])
    late.assert_strict()
    assert edges(late.one(spark_job(DAG, "delivered_late"), "dataJobInputOutput"), "output") == {
        delivered.dataset("late")
    }
    run = late.task_run(DAG, "delivered_late")
    assert [event for event in late.run_events(run) if event[0] == "COMPLETE"][-1] == (
        "COMPLETE",
        2,
        "SUCCESS",
    )
    (spark_run,) = late.children(run)
    assert late.run_events(spark_run)[-1] == ("COMPLETE", None, "SUCCESS")


def test_the_listener_reports_the_end_of_the_dag_run_to_every_connection(
    delivered: DagTest, catalogue: Catalogue, late: Catalogue
) -> None:
    for found in (catalogue, late):
        assert found.run_events(found.dag_run(DAG)) == [
            ("STARTED", None, None),
            ("COMPLETE", None, "SUCCESS"),
        ]
    waiting = [
        path
        for path in (delivered.folder / "outbox/pending").rglob("*.jsonl")
        if "COMPLETE" in path.read_text()
    ]
    assert (
        len(waiting) == 2
    )  # of the task and of the DAG run that the refusing connection did not take

"""A connection that is nowhere but in Airflow's database, as ``airflow connections add`` leaves it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.system.airflow_home import AirflowHome, DagTest
from tests.system.catalogue import Catalogue, DagRunKey, instance

pytestmark = pytest.mark.airflow

DAG = "stored_connection"
CONNECTION = "datahub_stored"


@dataclass(frozen=True)
class Stored:
    home: AirflowHome
    run: DagTest
    folder: Path

    @property
    def catalogue(self) -> Catalogue:
        return Catalogue.of_file(self.folder / "lineage.jsonl")


@pytest.fixture(scope="module")
def stored(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    folder = tmp_path_factory.mktemp("stored-connection")
    airflow_home.add_connection(CONNECTION, "datahub-file", str(folder / "lineage.jsonl"))
    return Stored(airflow_home, airflow_home.dags_test(DAG, folder, {}), folder)


def test_the_end_of_dags_test_delivers_through_it(stored: Stored) -> None:
    assert stored.run.succeeded, stored.run.output[-20_000:]
    assert "isn't defined" not in stored.run.output
    assert not list((stored.folder / "outbox").glob("pending/**/*.jsonl"))
    (dag_run,) = stored.catalogue.urns("dataProcessInstance")
    assert stored.catalogue.run_events(dag_run) == [("STARTED", None, None), ("COMPLETE", None, "SUCCESS")]
    run_id = stored.catalogue.one(dag_run, "dataProcessInstanceProperties")["customProperties"]["run_id"]
    assert dag_run == instance(DagRunKey(dag_id=DAG, run_id=run_id))


def test_the_dag_of_tasks_that_never_ran_has_its_name(stored: Stored) -> None:
    info = stored.catalogue.one(f"urn:li:dataFlow:(airflow,{DAG},prod)", "dataFlowInfo")
    assert (info["name"], info["description"]) == (DAG, "Nothing to do today")


def test_the_command_line_checks_and_delivers_through_it(stored: Stored) -> None:
    code, output = stored.home.spark_datahub("doctor", "--connection", CONNECTION, "--write", "--json")
    findings = {finding["subject"]: finding for finding in json.loads(output)["findings"]}
    assert findings["connection"]["verdict"] == findings["delivery"]["verdict"] == "good", (code, output)

"""A connection that is nowhere but in Airflow's database, as ``airflow connections add`` leaves it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.capture.installations import executable
from tests.system.airflow_home import AirflowHome, DagTest
from tests.system.catalogue import Catalogue, DagRunKey, TaskRunKey, instance

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

    @property
    def run_id(self) -> str:
        (run_id,) = set(re.findall(r"run_id=(\S+?),", self.run.output))
        return str(run_id)


@pytest.fixture(scope="module")
def stored(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    folder = tmp_path_factory.mktemp("stored-connection")
    airflow_home.add_connection(CONNECTION, "datahub-file", str(folder / "lineage.jsonl"))
    executable(folder / "bin/spark-submit", "#!/bin/sh\n")
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return Stored(airflow_home, airflow_home.dags_test(DAG, folder, {}, PATH=path), folder)


def test_the_end_of_dags_test_delivers_through_a_stored_connection(stored: Stored) -> None:
    assert stored.run.succeeded, stored.run.output[-20_000:]
    assert "isn't defined" not in stored.run.output
    assert not list((stored.folder / "outbox").glob("pending/**/*.jsonl"))
    dag_run = instance(DagRunKey(dag_id=DAG, run_id=stored.run_id))
    assert stored.catalogue.run_events(dag_run)[-1] == ("COMPLETE", None, "SUCCESS")
    never = instance(TaskRunKey(id=f"{DAG}_never_runs_{stored.run_id}"))
    assert never not in stored.catalogue.urns("dataProcessInstance")


def test_a_task_that_is_skipped_before_execute_has_its_run(stored: Stored) -> None:
    run = instance(TaskRunKey(id=f"{DAG}_skipped_before_{stored.run_id}"))
    assert stored.catalogue.run_events(run) == [("STARTED", 1, None), ("COMPLETE", 1, "SKIPPED")]
    assert "No lineage: the task ended as skipped without starting Spark" in stored.run.output


def test_the_state_after_execute_replaces_the_result_that_execute_reported(stored: Stored) -> None:
    run = instance(TaskRunKey(id=f"{DAG}_skipped_after_{stored.run_id}"))
    events = stored.catalogue.all(run, "dataProcessInstanceRunEvent")
    ends = {event["timestampMillis"]: event["result"]["type"] for event in events if event["status"] == "COMPLETE"}
    assert list(ends.values()) == ["SKIPPED"], "of two events of one time, DataHub keeps the later one"


def test_the_dag_of_tasks_that_never_ran_has_its_name(stored: Stored) -> None:
    info = stored.catalogue.one(f"urn:li:dataFlow:(airflow,{DAG},prod)", "dataFlowInfo")
    assert (info["name"], info["description"]) == (DAG, "Nothing to do today")


def test_the_command_line_checks_and_delivers_through_a_stored_connection(stored: Stored) -> None:
    code, output = stored.home.spark_datahub("doctor", "--connection", CONNECTION, "--write", "--json")
    findings = {finding["subject"]: finding for finding in json.loads(output)["findings"]}
    assert findings["connection"]["verdict"] == findings["delivery"]["verdict"] == "good", (code, output)

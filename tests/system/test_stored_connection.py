"""A connection that is nowhere but in Airflow's database, as ``airflow connections add`` leaves it."""

from __future__ import annotations

import json
import os

import pytest

from tests.capture.installations import executable
from tests.system.airflow_home import AirflowHome, DagTest, sink_in

pytestmark = pytest.mark.airflow

DAG = "stored_connection"
CONNECTION = "datahub_stored"


@pytest.fixture(scope="module")
def stored(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> DagTest:
    folder = tmp_path_factory.mktemp("stored-connection")
    airflow_home.add_connection(CONNECTION, "datahub-file", str(sink_in(folder)))
    executable(folder / "bin/spark-submit", "#!/bin/sh\n")
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return airflow_home.dags_test(DAG, folder, {}, PATH=path)


def test_the_end_of_dags_test_delivers_through_a_stored_connection(stored: DagTest) -> None:
    assert stored.succeeded, stored.output[-20_000:]
    assert "isn't defined" not in stored.output
    assert not list((stored.folder / "outbox").glob("pending/**/*.jsonl"))
    assert stored.catalogue.run_events(stored.catalogue.dag_run(DAG))[-1] == (
        "COMPLETE",
        None,
        "SUCCESS",
    )
    never = stored.catalogue.task_run(DAG, "never_runs")
    assert never not in stored.catalogue.urns("dataProcessInstance")


def test_a_task_that_is_skipped_before_execute_has_its_run(stored: DagTest) -> None:
    run = stored.catalogue.task_run(DAG, "skipped_before")
    assert stored.catalogue.run_events(run) == [("STARTED", 1, None), ("COMPLETE", 1, "SKIPPED")]
    assert "No lineage: the task ended as skipped without starting Spark" in stored.output


def test_the_state_after_execute_replaces_the_result_that_execute_reported(stored: DagTest) -> None:
    run = stored.catalogue.task_run(DAG, "skipped_after")
    events = stored.catalogue.all(run, "dataProcessInstanceRunEvent")
    ends = {
        event["timestampMillis"]: event["result"]["type"]
        for event in events
        if event["status"] == "COMPLETE"
    }
    assert list(ends.values()) == ["SKIPPED"], (
        "of two events of one time, DataHub keeps the later one"
    )


def test_the_dag_of_tasks_that_never_ran_has_its_name(stored: DagTest) -> None:
    info = stored.catalogue.one(f"urn:li:dataFlow:(airflow,{DAG},prod)", "dataFlowInfo")
    assert (info["name"], info["description"]) == (DAG, "Nothing to do today")


@pytest.mark.usefixtures("stored")
def test_the_command_line_checks_and_delivers_through_a_stored_connection(
    airflow_home: AirflowHome,
) -> None:
    code, output = airflow_home.spark_datahub(
        "doctor", "--connection", CONNECTION, "--write", "--json"
    )
    findings = {finding["subject"]: finding for finding in json.loads(output)["findings"]}
    assert findings["connection"]["verdict"] == findings["delivery"]["verdict"] == "good", (
        code,
        output,
    )

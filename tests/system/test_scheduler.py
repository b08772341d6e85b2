"""DAGs that a real scheduler starts; of most, Spark is a script that writes its events."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import running_submits
from tests.operators.copies import write_events
from tests.operators.tries import FakeSpark
from tests.system.airflow_home import AirflowHome, file_connection, sink_in
from tests.system.catalogue import (
    Catalogue,
    DagRunKey,
    TaskRunKey,
    file_dataset,
    instance,
    output_job,
    patched_paths,
    spark_job,
)

pytestmark = pytest.mark.airflow

WRITER, READER, EXPORT_READER = "asset_writer", "asset_reader", "export_reader"
TABLE = "file:///out/1"


@pytest.mark.slow
def test_a_dag_scheduled_on_a_table_runs_once_per_write(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    """The writer runs twice, and the first attempt of its second run fails after it wrote.

    The reader has lineage by policy, which the scheduler's own DAG does not show.
    """
    environment = {"SPARK_HOME": str(tmp_path / "spark")}
    spark = FakeSpark(tmp_path, environment.__setitem__)
    environment["AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR"] = spark.jar
    environment["AIRFLOW__SPARK_DATAHUB__AUTO"] = "SparkSubmitOperator"
    write_events(spark, 1)
    write_events(spark, 2, inputs=("/out/1",))
    write_events(spark, 3, inputs=("/other",))
    sink, connections = sink_in(tmp_path), {"datahub_file": file_connection(tmp_path)}

    with airflow_home.scheduling(
        tmp_path / "airflow", "asset_chain.py", connections, **environment
    ) as home:

        def runs(dag_id: str, state: str = "success") -> list[str]:
            query = "select run_id from dag_run where dag_id = ? and state = ? order by id"
            return [run_id for (run_id,) in home.query(query, dag_id, state)]

        def has_runs(number: int) -> bool:
            return len(runs(READER)) == len(runs(EXPORT_READER)) == number

        server_log = home.folder / "api-server.log"
        home.until(
            lambda: (
                "startup complete" in server_log.read_text()
                and len(home.query("select 1 from dag")) == 3
            )
        )
        for number in (1, 2):
            home.trigger(WRITER)
            home.until(partial(has_runs, number))
            spark.fails_once("1")
        readers = [instance(DagRunKey(dag_id=READER, run_id=run_id)) for run_id in runs(READER)]
        home.until(lambda: all(_has_ended(sink, reader) for reader in readers))
        assert len(home.query("select 1 from dag_run")) == 6, "two runs of each DAG"
        assert home.query("select 1 from asset_dag_run_queue") == []
        writers = [instance(TaskRunKey(id=f"{WRITER}_write_{run_id}")) for run_id in runs(WRITER)]
        events = [event for event in home.asset_events(WRITER) if event[0] == TABLE]

        _, impact = home.spark_datahub("impact", TABLE.removeprefix("file://"), "--json")
        last = {(dag_id, runs(dag_id)[-1]) for dag_id in (WRITER, EXPORT_READER)}

    reached = [one for one in json.loads(impact)["reached"] if one["through"] == f"{WRITER}.export"]
    assert {(one["dag_id"], one["run_id"]) for one in reached} == last
    assert [extra["datahub_task_run"] for _, extra in events] == writers
    catalogue = Catalogue.of_folder(sink)
    catalogue.assert_strict()
    assert [result for *_, result in catalogue.run_events(writers[1])] == [
        None,
        "UP_FOR_RETRY",
        None,
        "SUCCESS",
    ]
    for reader, writer in zip(readers, writers, strict=True):
        assert catalogue.one(reader, "dataProcessInstanceRelationships")["upstreamInstances"] == [
            writer
        ]


def _has_ended(sink: Path, run: str) -> bool:
    return ("COMPLETE", None, "SUCCESS") in Catalogue.of_folder(sink).run_events(run)


# -- a task that is killed while its real Spark runs


@pytest.mark.spark
def test_what_spark_writes_after_its_task_was_killed_is_delivered(
    airflow_home: AirflowHome, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    go = tmp_path / "go"
    request.addfinalizer(go.touch)
    (tmp_path / "first.csv").write_text("id,name\n1,Ada\n")
    (tmp_path / "reports").mkdir()
    sink, connections = sink_in(tmp_path), {"datahub_file": file_connection(tmp_path)}
    variables = {"SYSTEM_FOLDER": tmp_path}
    with airflow_home.scheduling(
        tmp_path / "airflow", "orphaned.py", connections, **variables
    ) as home:
        home.until(lambda: len(home.query("select 1 from dag")) == 1)
        home.trigger("orphaned")
        home.until(lambda: bool(home.query("select 1 from dag_run where state = 'failed'")))
        ((run_id,),) = home.query("select run_id from dag_run")
        run = instance(DagRunKey(dag_id="orphaned", run_id=run_id))
        home.until(
            lambda: ("COMPLETE", None, "FAILURE") in Catalogue.of_folder(sink).run_events(run)
        )
        # A drain that comes too early.
        assert home.spark_datahub("emit", **home.environment)[0] == 0
        (events,) = (home.folder / "events").glob("*/*/*/*.ndjson")
        assert running_submits(str(events)), "Spark outlives its task"
        go.touch()
        home.until(lambda: not running_submits(str(events)))
        assert home.spark_datahub("emit", **home.environment)[0] == 0
    catalogue = Catalogue.of_folder(sink)
    job = output_job(spark_job("orphaned", "killed"), file_dataset(tmp_path / "first"))
    (operations,) = catalogue.all(job, "dataJobInputOutput", "PATCH")
    assert f"/inputDatasetEdges/{file_dataset(tmp_path / 'first.csv')}" in patched_paths(operations)
    assert f"/outputDatasetEdges/{file_dataset(tmp_path / 'first')}" in patched_paths(operations)
    catalogue.assert_strict()

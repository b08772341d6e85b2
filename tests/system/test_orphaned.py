"""A task that is killed while its real Spark runs, under a real scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import running_submits
from tests.system.airflow_home import AirflowHome, file_connection, sink_in
from tests.system.catalogue import Catalogue, DagRunKey, file_dataset, instance, patched_paths, spark_job

pytestmark = [pytest.mark.airflow, pytest.mark.spark]


def test_what_spark_writes_after_its_task_was_killed_is_delivered(
    airflow_home: AirflowHome, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    go = tmp_path / "go"
    request.addfinalizer(go.touch)
    (tmp_path / "first.csv").write_text("id,name\n1,Ada\n")
    (tmp_path / "reports").mkdir()
    sink, connections = sink_in(tmp_path), {"datahub_file": file_connection(tmp_path)}
    variables = {"SYSTEM_FOLDER": tmp_path}
    with airflow_home.scheduling(tmp_path / "airflow", "orphaned.py", connections, **variables) as home:
        home.until(lambda: len(home.query("select 1 from dag")) == 1)
        home.trigger("orphaned")
        home.until(lambda: bool(home.query("select 1 from dag_run where state = 'failed'")))
        ((run_id,),) = home.query("select run_id from dag_run")
        run = instance(DagRunKey(dag_id="orphaned", run_id=run_id))
        home.until(lambda: ("COMPLETE", None, "FAILURE") in Catalogue.of_folder(sink).run_events(run))
        # A drain that comes too early.
        assert home.spark_datahub("emit", **home.environment)[0] == 0
        (events,) = (home.folder / "events").glob("*/*/*/*.ndjson")
        assert running_submits(str(events)), "Spark outlives its task"
        go.touch()
        home.until(lambda: not running_submits(str(events)))
        assert home.spark_datahub("emit", **home.environment)[0] == 0
    catalogue = Catalogue.of_folder(sink)
    (operations,) = catalogue.all(spark_job("orphaned", "killed"), "dataJobInputOutput", "PATCH")
    assert f"/inputDatasetEdges/{file_dataset(tmp_path / 'first.csv')}" in patched_paths(operations)
    assert f"/outputDatasetEdges/{file_dataset(tmp_path / 'first')}" in patched_paths(operations)
    catalogue.assert_strict()

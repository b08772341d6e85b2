"""A streaming job is in the catalogue long before it ends; and jobs that time out, or whose jar
would kill them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.capture.installations import openlineage_jar
from tests.system.airflow_home import AirflowHome, DagTest, sink_in
from tests.system.catalogue import (
    Catalogue,
    edges,
    file_dataset,
    output_job,
    patched_paths,
    spark_job,
    task_job,
)

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

QUERY = spark_job("running", "stream", "paid_orders")
RELATIONSHIPS = "dataProcessInstanceRelationships"


def wait_until(condition: Callable[[], object], run: Future[DagTest]) -> None:
    while not condition():
        assert not run.done(), run.result().output
        time.sleep(0.2)


def patches(sink: Path) -> list[Any]:
    """Return the patches of the edges of the query's output that have arrived."""
    job = output_job(QUERY, file_dataset(sink.parent / "paid"))
    return Catalogue.of_folder(sink).all(job, "dataJobInputOutput", "PATCH")


def run_of_query(catalogue: Catalogue) -> set[str]:
    return {
        one["entityUrn"]
        for one in catalogue.proposals
        if one["aspectName"] == RELATIONSHIPS
        and one["aspect"]["json"].get("parentTemplate") == QUERY
    }


def test_the_lineage_of_a_stream_is_delivered_while_it_runs(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    (tmp_path / "arrivals").mkdir()
    (tmp_path / "arrivals" / "1.csv").write_text("order_id,status\n1,PAID\n2,OPEN\n")
    sink = sink_in(tmp_path)
    with ThreadPoolExecutor(1) as other:
        run = other.submit(airflow_home.dags_test, "running", tmp_path)
        try:
            wait_until(lambda: patches(sink), run)
            running = Catalogue.of_folder(sink)
            assert not run.done()
        finally:
            (tmp_path / "stop").touch()
        done = run.result()
    assert done.succeeded, done.output
    read, written = file_dataset(tmp_path / "arrivals"), file_dataset(tmp_path / "paid")
    paths = {
        path
        for added in running.all(output_job(QUERY, written), "dataJobInputOutput", "PATCH")
        for path in patched_paths(added)
    }
    assert {f"/inputDatasetEdges/{read}", f"/outputDatasetEdges/{written}"} <= paths
    (instance,) = run_of_query(running)
    assert [status for status, _, _ in running.run_events(instance)] == ["STARTED"]
    catalogue = done.catalogue
    catalogue.assert_strict()
    assert run_of_query(catalogue) == {instance}, "the same run at its end"
    assert catalogue.run_events(instance)[-1] == ("COMPLETE", None, "SUCCESS")
    (at_the_end,) = catalogue.all(QUERY, "dataJobInputOutput")
    assert (edges(at_the_end, "input"), edges(at_the_end, "output")) == ({read}, {written})
    report = done.reports["stream try 1"]
    assert (report["pending"], report["warnings"]) == (0, [])
    assert not list((tmp_path / "events").rglob("*")), (
        "everything was delivered: nothing of it stays"
    )


# -- lineage must not cost the job; and a task whose time is over still says what its job had done

DAG = "hard_times"


@pytest.fixture(scope="module")
def hard_times(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> DagTest:
    folder = tmp_path_factory.mktemp("hard-times")
    for name in ("first", "second"):
        (folder / f"{name}.csv").write_text("id,name\n1,Ada\n")
    openlineage_jar(folder / "openlineage-spark_2.12-1.53.0.jar", "2.12")
    return airflow_home.dags_test(DAG, folder)


def test_a_jar_that_would_kill_the_job_is_not_injected(hard_times: DagTest) -> None:
    assert list((hard_times.folder / "first").glob("*.parquet"))
    report = hard_times.reports["wrong_scala try 1"]
    why = "is built for Scala 2.12, Spark 4.3.0 runs on Scala 2.13"
    assert any(
        why in warning and "comes from Spark's own event log" in warning
        for warning in report["warnings"]
    )
    assert why in hard_times.output
    assert (report["events"], report["reason"], report["pending"]) == (0, None, 0)
    assert (
        hard_times.catalogue.one(task_job(DAG, "wrong_scala"), "dataJobInfo")["name"]
        == "wrong_scala"
    )


def test_a_task_that_times_out_leaves_no_spark_submit_behind(hard_times: DagTest) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(int((hard_times.folder / "jvm_pid").read_text()), 0)


def test_a_task_that_times_out_reports_what_its_job_had_done(hard_times: DagTest) -> None:
    catalogue = hard_times.catalogue
    assert not hard_times.succeeded
    assert "AirflowTaskTimeout" in hard_times.output
    report = hard_times.reports["timed_out try 1"]
    assert report["pending"] == 0
    assert report["outputs"] == [hard_times.dataset("second")]
    assert catalogue.all(spark_job(DAG, "timed_out"), "dataJobInputOutput") == []
    job = output_job(spark_job(DAG, "timed_out"), hard_times.dataset("second"))
    (operations,) = catalogue.all(job, "dataJobInputOutput", "PATCH")
    assert f"/outputDatasetEdges/{hard_times.dataset('second')}" in patched_paths(operations)
    runs = {urn: catalogue.run_events(urn) for urn in catalogue.urns("dataProcessInstance")}
    of_the_task = [events for events in runs.values() if ("COMPLETE", 1, "FAILURE") in events]
    of_spark_and_the_dag = [
        events for events in runs.values() if ("COMPLETE", None, "FAILURE") in events
    ]
    assert (len(of_the_task), len(of_spark_and_the_dag)) == (1, 2)
    catalogue.assert_strict()

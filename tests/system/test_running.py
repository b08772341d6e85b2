"""A streaming job that would run for weeks is in the catalogue long before it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.system.airflow_home import AirflowHome, DagTest, sink_in
from tests.system.catalogue import Catalogue, edges, file_dataset, patched_paths, spark_job

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

QUERY = spark_job("running", "stream", "paid_orders")
RELATIONSHIPS = "dataProcessInstanceRelationships"


def wait_until(condition: Callable[[], object], run: Future[DagTest]) -> None:
    while not condition():
        assert not run.done(), run.result().output
        time.sleep(0.2)


def patches(sink: Path) -> list[Any]:
    """Return the patches of the query's edges that have arrived."""
    return Catalogue.of_folder(sink).all(QUERY, "dataJobInputOutput", "PATCH")


def run_of_query(catalogue: Catalogue) -> set[str]:
    return {
        one["entityUrn"]
        for one in catalogue.proposals
        if one["aspectName"] == RELATIONSHIPS and one["aspect"]["json"].get("parentTemplate") == QUERY
    }


def test_the_lineage_of_a_stream_is_delivered_while_it_runs(airflow_home: AirflowHome, tmp_path: Path) -> None:
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
    paths = {path for added in running.all(QUERY, "dataJobInputOutput", "PATCH") for path in patched_paths(added)}
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
    assert not list((tmp_path / "events").rglob("*")), "everything was delivered: nothing of it stays"

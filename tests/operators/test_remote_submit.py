"""Livy and Kubernetes on a real Spark: stand-ins of their interfaces call the real
``spark-submit``.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.connections import connect
from tests.operators.tries import report_of
from tests.servers.livy import Livy
from tests.servers.spark_operator import spark_operator
from tests.system.airflow_home import OPENLINEAGE_JAR, REPOSITORY, SPARK_ENV
from tests.system.catalogue import Catalogue, Column, direct_columns, edges, file_dataset, spark_job

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Run a task of the example DAG; the real Spark is on the PATH. Return its report."""
    monkeypatch.setenv("PATH", f"{SPARK_ENV / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYSPARK_PYTHON", str(SPARK_ENV / "bin/python"))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SHOP_LAKE", str(tmp_path))
    monkeypatch.setenv("OPENLINEAGE_JAR", OPENLINEAGE_JAR.resolve().as_uri())
    monkeypatch.setenv("AIRFLOW_CONN_DATAHUB_DEFAULT", os.environ["AIRFLOW_CONN_DATAHUB_FILE"])
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/orders.csv").write_text(
        "order_id,customer_id,amount,status\n1,7,10.5,PAID\n2,8,3.0,OPEN\n"
    )
    (tmp_path / "raw/customers.csv").write_text("customer_id,name,country\n7,Ada,PT\n8,Max,DE\n")
    dag = runpy.run_path(str(REPOSITORY / "example_dags/remote_lineage.py"))["dag"]

    def executed(task_id: str) -> Any:
        return report_of(dag.get_task(task_id), run_id="run")

    return executed


def assert_lineage(folder: Path, report: Any, task_id: str, application: str) -> None:
    assert (report["pending"], report["reason"], report["warnings"]) == (0, None, [])
    (gap,) = report["gaps"]
    assert gap.startswith("no Spark event log: the driver runs on another machine")
    catalogue = Catalogue.of_folder(folder / "sink")
    catalogue.assert_strict()
    orders, customers = (
        file_dataset(folder / "raw" / f"{name}.csv") for name in ("orders", "customers")
    )
    written = file_dataset(folder / "orders")
    job = catalogue.one(spark_job("shop", task_id, application), "dataJobInputOutput")
    assert (edges(job, "input"), edges(job, "output")) == ({orders, customers}, {written})
    assert {
        (Column(orders, "amount"), Column(written, "amount")),
        (Column(orders, "amount"), Column(written, "amount_with_tax")),
        (Column(customers, "country"), Column(written, "country")),
    } <= direct_columns(job)
    assert not list((folder / "events").rglob("*.ndjson"))


def test_a_batch_of_livy_has_lineage_with_a_real_spark(
    run: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Livy(tmp_path / "livy.log") as livy:
        connect(monkeypatch, "livy_default", conn_type="livy", host=livy.url)
        report = run("through_livy")
    assert_lineage(tmp_path, report, "through_livy", "orders_through_livy")


def test_an_application_on_kubernetes_has_lineage_with_a_real_spark(
    run: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spark_operator(monkeypatch, tmp_path / "drivers.log"):
        report = run("on_kubernetes")
    # The application's own name ends in a suffix that is another one in each run.
    assert_lineage(tmp_path, report, "on_kubernetes", "orders-on-kubernetes")

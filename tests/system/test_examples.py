"""The example DAGs that no other system test runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery.outbox.entries import Outbox
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.delivery.samples import upserts
from tests.system.airflow_home import REPOSITORY, AirflowHome, DagTest, file_connection
from tests.system.catalogue import Catalogue, edges, file_dataset, spark_job, task_job

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

ORDERS = "order_id,customer_id,amount,status,order_date\n1,7,10.5,PAID,2026-01-03\n2,8,3.0,OPEN,2026-02-04\n"


def example(
    home: AirflowHome, dag_id: str, folder: Path, **variables: Any
) -> tuple[DagTest, Catalogue]:
    """Run an example DAG, and return the run and the strictly checked proposals that it delivered."""
    connections = {"datahub_default": file_connection(folder)}
    dags = REPOSITORY / "example_dags"
    run = home.dags_test(dag_id, folder, connections, AIRFLOW__CORE__DAGS_FOLDER=dags, **variables)
    assert run.succeeded, run.output
    catalogue = run.catalogue
    catalogue.assert_strict()
    return run, catalogue


def test_the_example_streaming_lineage_delivers_what_its_jobs_did(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    (tmp_path / "arrivals").mkdir()
    (tmp_path / "arrivals" / "1.csv").write_text(ORDERS)
    _, catalogue = example(airflow_home, "streaming_lineage", tmp_path, SHOP_LAKE=tmp_path)
    query = catalogue.one(
        spark_job("streaming_lineage", "stream_orders", "paid_orders"), "dataJobInputOutput"
    )
    assert edges(query, "input") == {file_dataset(tmp_path / "arrivals")}
    assert edges(query, "output") == {file_dataset(tmp_path / "paid_orders")}
    application = catalogue.one(
        spark_job("streaming_lineage", "stream_orders"), "dataJobInputOutput"
    )
    assert (edges(application, "input"), edges(application, "output")) == (set(), set())
    assert not list((tmp_path / "events").rglob("*")), (
        "everything was delivered: nothing of it stays"
    )


def test_the_example_event_log_lineage_delivers_what_its_jobs_did(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "orders.csv").write_text(ORDERS)
    (tmp_path / "raw" / "customers.csv").write_text(
        "customer_id,name,country\n7,Ada,PT\n8,Max,DE\n"
    )
    run, catalogue = example(airflow_home, "event_log_lineage", tmp_path, SHOP_LAKE=tmp_path)
    assert "OpenLineageSparkListener" not in run.output
    job = catalogue.one(spark_job("event_log_lineage", "build_orders"), "dataJobInputOutput")
    orders, customers = (tmp_path / "raw" / f"{name}.csv" for name in ("orders", "customers"))
    assert edges(job, "input") == {file_dataset(orders), file_dataset(customers)}
    assert edges(job, "output") == {file_dataset(tmp_path / "orders")}
    priced = f"urn:li:schemaField:({file_dataset(tmp_path / 'orders')},amount_with_tax)"
    [lineage] = [
        lineage for lineage in job["fineGrainedLineages"] if priced in lineage["downstreams"]
    ]
    assert lineage["upstreams"] == [f"urn:li:schemaField:({file_dataset(orders)},amount)"]
    assert not list((tmp_path / "events").rglob("*")), (
        "everything was delivered: nothing of it stays"
    )


@pytest.mark.slow
def test_the_example_launchers_lineage_delivers_what_its_jobs_did(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "orders.csv").write_text(ORDERS)
    _, catalogue = example(airflow_home, "launchers_lineage", tmp_path, SHOP_LAKE=tmp_path)
    for name, folder in (("paid_orders", "PAID"), ("open_orders", "OPEN")):
        read, written = file_dataset(tmp_path / "raw/orders.csv"), file_dataset(tmp_path / folder)
        task, job = (
            catalogue.one(of("launchers_lineage", name), "dataJobInputOutput")
            for of in (task_job, spark_job)
        )
        assert (edges(job, "input"), edges(job, "output")) == ({read}, {written})
        assert (edges(task, "input"), edges(task, "output")) == (set(), {written})
    assert catalogue.have_both_sources == [True, True]
    assert not list((tmp_path / "events").rglob("*")), (
        "everything was delivered: nothing of it stays"
    )


def test_the_example_deliver_lineage_drains_the_outbox(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    outbox = Outbox(LocalStorage(tmp_path / "outbox"))
    for dag_id in ("shop", "bank"):
        outbox.put(
            AttemptKey(dag_id, "run", "build", -1, 1),
            upserts(3, dag_id),
            spark_succeeded=True,
            connection_id="datahub_default",
        )
    run, catalogue = example(airflow_home, "deliver_lineage", tmp_path)
    assert "2 entries settled (6 proposals delivered, 0 rejected), 0 pending" in run.output
    assert len(catalogue.proposals) == 6
    assert outbox.names() == []


def test_the_example_backfill_lineage_delivers_an_archive(
    airflow_home: AirflowHome, tmp_path: Path
) -> None:
    _, catalogue = example(
        airflow_home,
        "backfill_lineage",
        tmp_path,
        SHOP_EVENTS=REPOSITORY / "tests/data/corpus/events",
        SHOP_BACKFILL=tmp_path / "backfill",
        PYSPARK_PYTHON=REPOSITORY / ".venv-spark/bin/python",
        # Spark has the package only from the operator, without Airflow and DataHub.
        PYTHONPATH="",
    )
    urn = "urn:li:dataJob:(urn:li:dataFlow:(spark,a_csv_join_agg,analytics),a_csv_join_agg)"
    job = catalogue.one(urn, "dataJobInputOutput")
    assert edges(job, "output") == {file_dataset(Path("/lake/out/a/revenue_by_country"))}
    summary = json.loads((tmp_path / "backfill/2026-01-01_2027-01-01/summary.json").read_text())
    assert (summary["events"], summary["runs"]) == (271, 10)
    # The progress of streaming queries is not a run event.
    assert summary["quarantined"] == 13

"""The main promise: a DAG run of two Spark tasks, one of them retried, is in DataHub when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery import Delivery
from airflow_provider_spark_datahub.delivery.outbox import OutboxRecords
from tests.delivery.outboxes import outbox_at
from tests.servers.chromium import Chromium
from tests.system.airflow_home import AirflowHome, DagTest, file_connection
from tests.system.catalogue import (
    Catalogue,
    Column,
    direct_columns,
    edges,
    indirect_columns,
    output_job,
    patched_paths,
    spark_job,
    task_job,
)
from tests.system.test_lineage_page import ApiServer, eventually

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

DAG = "retried_shop"
ORDERS = "order_id,customer_id,order_date,amount,status\n1,7,2026-01-03,10.5,PAID\n2,8,2026-02-04,3.0,OPEN\n"
CUSTOMERS = "customer_id,name,country\n7,Ada,DE\n8,Bob,FR\n"


@pytest.fixture(scope="module")
def shop(airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> DagTest:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "raw").mkdir()
    (folder / "raw/orders.csv").write_text(ORDERS)
    (folder / "raw/customers.csv").write_text(CUSTOMERS)
    return airflow_home.dags_test(DAG, folder)


@pytest.fixture(scope="module")
def catalogue(shop: DagTest) -> Catalogue:
    return shop.catalogue


def test_every_proposal_was_accepted_by_a_strict_gms(shop: DagTest, catalogue: Catalogue) -> None:
    catalogue.assert_strict()
    assert list(shop.reports) == ["build_orders try 1", "build_orders try 2", "revenue try 1"]
    for report in shop.reports.values():
        assert (report["pending"], report["rejected"], report["reason"], report["bad_events"]) == (
            0,
            0,
            None,
            0,
        )
        assert report["delivered"] == report["proposals"] > 0
        assert report["stored"] is True
    assert not (shop.folder / "outbox/pending").exists()
    assert not list((shop.folder / "events").rglob("*.ndjson"))


def test_the_dag_run_has_its_tasks_and_its_result(shop: DagTest, catalogue: Catalogue) -> None:
    assert shop.succeeded, shop.output[-20_000:]
    urn = catalogue.dag_run(DAG)
    assert catalogue.one(urn, "dataProcessInstanceRelationships") == {
        "parentTemplate": f"urn:li:dataFlow:(airflow,{DAG},prod)",
        "upstreamInstances": [],
    }
    assert catalogue.one(urn, "dataProcessInstanceProperties")["type"] == "BATCH_AD_HOC"
    assert catalogue.run_events(urn) == [("STARTED", None, None), ("COMPLETE", None, "SUCCESS")]
    started, ended = catalogue.all(urn, "dataProcessInstanceRunEvent")
    assert ended["durationMillis"] == ended["timestampMillis"] - started["timestampMillis"] > 0
    assert catalogue.children(urn) == [
        catalogue.task_run(DAG, "build_orders"),
        catalogue.task_run(DAG, "revenue"),
    ]


def test_the_task_runs_have_their_attempts_and_upstream_runs(catalogue: Catalogue) -> None:
    orders, revenue = catalogue.task_run(DAG, "build_orders"), catalogue.task_run(DAG, "revenue")
    assert catalogue.one(orders, "dataProcessInstanceRelationships") == {
        "parentTemplate": task_job(DAG, "build_orders"),
        "parentInstance": catalogue.dag_run(DAG),
        "upstreamInstances": [],
    }
    assert catalogue.one(revenue, "dataProcessInstanceRelationships") == {
        "parentTemplate": task_job(DAG, "revenue"),
        "parentInstance": catalogue.dag_run(DAG),
        "upstreamInstances": [orders],
    }
    assert catalogue.run_events(orders) == [
        ("STARTED", 1, None),
        ("COMPLETE", 1, "UP_FOR_RETRY"),
        ("STARTED", 2, None),
        ("COMPLETE", 2, "SUCCESS"),
    ]
    assert catalogue.run_events(revenue) == [("STARTED", 1, None), ("COMPLETE", 1, "SUCCESS")]


def test_each_spark_run_is_below_its_task_run_with_its_result(catalogue: Catalogue) -> None:
    failed, succeeded = catalogue.children(catalogue.task_run(DAG, "build_orders"))
    (revenue,) = catalogue.children(catalogue.task_run(DAG, "revenue"))
    for urn, name, result in (
        (failed, "build_orders", "FAILURE"),
        (succeeded, "build_orders", "SUCCESS"),
        (revenue, "revenue", "SUCCESS"),
    ):
        assert catalogue.run_events(urn) == [("STARTED", None, None), ("COMPLETE", None, result)]
        assert catalogue.one(urn, "dataProcessInstanceRelationships")[
            "parentTemplate"
        ] == spark_job(DAG, name)
    assert catalogue.urns("dataProcessInstance") == {
        catalogue.dag_run(DAG),
        catalogue.task_run(DAG, "build_orders"),
        catalogue.task_run(DAG, "revenue"),
        failed,
        succeeded,
        revenue,
    }


def test_only_the_successful_attempt_makes_an_asset_event(
    shop: DagTest, catalogue: Catalogue, airflow_home: AirflowHome
) -> None:
    uris = [f"file://{shop.folder / name}" for name in ("orders", "staged_orders")]
    events = airflow_home.asset_events(DAG)
    assert [uri for uri, _ in events] == uris
    assert {extra["datahub_task_run"] for _, extra in events} == {
        catalogue.task_run(DAG, "build_orders")
    }
    assert [shop.reports[f"build_orders try {number}"]["assets"] for number in (1, 2)] == [[], uris]


def test_a_failed_attempt_only_adds_edges(shop: DagTest, catalogue: Catalogue) -> None:
    staged, raw = shop.dataset("staged_orders"), shop.dataset("raw/orders.csv")
    expected = {
        output_job(spark_job(DAG, "build_orders"), staged): [
            f"/inputDatasetEdges/{raw}",
            f"/outputDatasetEdges/{staged}",
        ],
        task_job(DAG, "build_orders"): [f"/outputDatasetEdges/{staged}"],
        spark_job(DAG, "build_orders"): [],
    }
    for job, datasets in expected.items():
        (operations,) = catalogue.all(job, "dataJobInputOutput", "PATCH")
        assert [path for path in patched_paths(operations) if "DatasetEdges/" in path] == datasets


def test_the_jobs_read_and_write_their_datasets(shop: DagTest, catalogue: Catalogue) -> None:
    build, revenue_job = spark_job(DAG, "build_orders"), spark_job(DAG, "revenue")
    built, staged = shop.dataset("orders"), shop.dataset("staged_orders")
    revenue_by_country = shop.dataset("revenue_by_country")
    orders, customers = shop.dataset("raw/orders.csv"), shop.dataset("raw/customers.csv")
    truth = {
        build: (set[str](), set[str]()),
        output_job(build, staged): ({orders}, {staged}),
        output_job(build, built): ({orders, customers}, {built}),
        # Its only input reaches its only output.
        revenue_job: ({built}, {revenue_by_country}),
        # A task is upstream of other tasks: what it read is not upstream of what they write.
        task_job(DAG, "build_orders"): (set[str](), {staged, built}),
        task_job(DAG, "revenue"): (set[str](), {revenue_by_country}),
    }
    for job, sides in truth.items():
        found = catalogue.one(job, "dataJobInputOutput")
        assert (edges(found, "input"), edges(found, "output")) == sides
        if job.startswith(build[:-1]):
            assert found["inputDatajobs"] == [task_job(DAG, "build_orders")]
    revenue = catalogue.one(task_job(DAG, "revenue"), "dataJobInputOutput")
    assert revenue["inputDatajobs"] == [task_job(DAG, "build_orders")]
    every = {urn for sides in truth.values() for side in sides for urn in side}
    assert catalogue.urns("dataset") == every


def test_build_orders_has_its_column_lineage(shop: DagTest, catalogue: Catalogue) -> None:
    raw, staged, built = map(shop.dataset, ("raw/orders.csv", "staged_orders", "orders"))
    jobs = (output_job(spark_job(DAG, "build_orders"), urn) for urn in (staged, built))
    aspects = [catalogue.one(job, "dataJobInputOutput") for job in jobs]
    lineages = [lineage for aspect in aspects for lineage in aspect["fineGrainedLineages"]]
    found = {"fineGrainedLineages": lineages}
    customers = shop.dataset("raw/customers.csv")
    copied = ("order_id", "customer_id", "order_date", "amount", "status")
    assert direct_columns(found) == {
        *((Column(raw, name), Column(staged, name)) for name in copied),
        *((Column(raw, name), Column(built, name)) for name in copied),
        (Column(raw, "amount"), Column(built, "amount_with_tax")),
        (Column(customers, "name"), Column(built, "name")),
        (Column(customers, "country"), Column(built, "country")),
    }
    assert indirect_columns(found) == {
        Column(raw, "status"),
        Column(raw, "customer_id"),
        Column(customers, "customer_id"),
    }


def test_the_tab_of_the_task_in_airflows_frame_and_colours(
    shop: DagTest, airflow_home: AirflowHome, browser: Chromium, tmp_path: Path
) -> None:
    [(run,)] = airflow_home.query("select run_id from dag_run where dag_id = ?", DAG)
    # A second connection waits for its DataHub.
    outbox = outbox_at(shop.folder / "outbox")
    last = next(
        one for one in OutboxRecords(outbox).newest(None) if one.key.task_id == "build_orders"
    )
    [record] = [one for one in OutboxRecords(outbox).of([last.key]) if one.key == last.key]
    waits = outbox.put(
        record.key, list(record.proposals), spark_succeeded=True, connection_id="datahub_prod"
    )
    refused = "DataHub at http://gms:8080 is not available (Connection refused)"
    waits.settle(Delivery(0, pending=record.proposals, problem=refused), record.proposals)
    location, connections = shop.folder / "outbox", {"datahub_file": file_connection(shop.folder)}
    sizes = "const part = document.querySelector(arguments[0]); return [part.scrollWidth - part.clientWidth]"
    with airflow_home.api_server(
        tmp_path,
        {"editor": "user"},
        connections,
        "/flow",
        AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION=location,
    ) as url:
        ApiServer(url, shop.folder).log_in("editor", browser)
        for theme, picture in (("light", "airflow"), ("dark", "airflow-dark")):
            browser.size(1440, 900)
            browser.run(f"localStorage.setItem('theme', '{theme}')")
            browser.driver.get(
                f"{url}/dags/{DAG}/runs/{run}/tasks/build_orders/plugin/spark_lineage_task"
            )
            eventually(lambda: bool(browser.driver.find_elements("css selector", "iframe")))
            browser.driver.switch_to.frame(browser.find("iframe"))
            eventually(lambda: bool(browser.driver.find_elements("css selector", "svg .box")))
            # On a light system.
            assert browser.run("return matchMedia('(prefers-color-scheme: dark)').matches") == (
                theme == "dark"
            )
            # Everything is in sight: the problem, the whole drawing, and each column of the table.
            parts = ("html", ".view", ".attempts")
            assert [browser.run(sizes, part) for part in parts] == [[0], [0], [0]], theme
            rows = [
                row.text.split()
                for row in browser.driver.find_elements("css selector", "#attempts tbody tr")
            ]
            assert [row[:5] for row in rows if row[0] == "build_orders"] == [
                ["build_orders", "2", "success", "success", "pending"],
                ["build_orders", "1", "failed", "failed", "delivered"],
            ]
            problem = browser.find("#now").text
            assert refused in problem
            assert "Deliver now" in problem
            browser.driver.switch_to.default_content()
            browser.picture(picture, 900, 1440)
        browser.size(420, 900)
        browser.driver.get(f"{url}/plugin/spark_lineage")
        eventually(lambda: bool(browser.driver.find_elements("css selector", "iframe")))
        browser.driver.switch_to.frame(browser.find("iframe"))
        eventually(lambda: bool(browser.driver.find_elements("css selector", "#attempts a")))
        assert browser.run(sizes, "html") == [0]
        right = (
            "return [...document.querySelectorAll('#attempts :is(a, td)')]"
            ".map((e) => e.getBoundingClientRect().right)"
        )
        assert max(browser.run(right)) <= browser.run("return innerWidth")
        browser.driver.switch_to.default_content()

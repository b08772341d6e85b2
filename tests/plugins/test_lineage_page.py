"""The page in Airflow's API server: who may look and press, which texts are escaped, and what a
browser is allowed.
"""

from __future__ import annotations

import html
import re
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import pytest
import uvicorn
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.dag import DagModel
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_provider_spark_datahub.conversion import Fingerprint, Proposal, SilentTasks, Use
from airflow_provider_spark_datahub.delivery import Delivery, Rejection
from airflow_provider_spark_datahub.delivery.outbox import Histories, Outbox, OutboxRecords
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.hooks import LineageSource, Scope, TaskReport
from airflow_provider_spark_datahub.plugins import lineage_page
from airflow_provider_spark_datahub.plugins.spark_datahub import SparkDatahubPlugin
from airflow_provider_spark_datahub.task import LineageReport
from tests.airflow_versions import AIRFLOW
from tests.cases import cases
from tests.delivery.connections import connect_to_files
from tests.delivery.outboxes import outbox_at, proposals_in
from tests.patience import join, wait_until
from tests.servers.chromium import Chromium
from tests.servers.loopback import LoopbackServer
from tests.visualization.conftest import HOSTILE, dataset, event, hostile, lineage, run_proposals

__all__ = ["hostile"]

RUN = {"dag_id": "shop", "run_id": "manual__1"}
TASK = {**RUN, "task_id": "build", "map_index": "{MAP_INDEX}"}
KEY = AttemptKey("shop", "manual__1", "build", -1, 1)
ADDRESSES = ["runs", "run", "task", "reached", "proposals"]
HERE = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}


class Source(LineageSource):
    """Source without Airflow's database."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.reported: list[TaskReport] = []
        self.states = {("shop", "manual__1"): "failed"}
        self.tries: dict[AttemptKey, str] = {}

    def run_states(self, runs: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
        return {run: state for run, state in self.states.items() if run in runs}

    def reports(
        self,
        dag_ids: Collection[str] | None,
        scope: Scope | None = None,
        most: int | None = 500,
        since: datetime | None = None,
    ) -> list[TaskReport]:
        assert dag_ids is not None
        assert since is None
        found = [each for each in self.reported if each.key.dag_id in dag_ids]
        return [each for each in found if scope is None or scope.matches(each.key)][:most]

    def attempts(self, scope: Scope, most: int | None = 500) -> dict[AttemptKey, str]:  # noqa: ARG002
        tasks = [AttemptKey(scope.dag_id, scope.run_id, task, -1, 1) for task in ("build", "sum")]
        return {
            **dict.fromkeys(tasks, ""),
            **{key: state for key, state in self.tries.items() if scope.matches(key)},
        }

    def _outbox(self) -> Outbox:
        return self.outbox


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(outbox_at(tmp_path / "outbox"))


@pytest.fixture
def client(source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(
        DagModel, "get_team_name", staticmethod(lambda *_, **__: None), raising=False
    )
    if AIRFLOW >= (3, 2):  # before, it has no list of tokens that were revoked
        monkeypatch.setattr(
            "airflow.models.revoked_token.RevokedToken.is_revoked", lambda *_, **__: False
        )
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "a secret of the tests, " * 4)
    manager = create_auth_manager()
    monkeypatch.setattr(type(manager), "get_authorized_dag_ids", lambda *_, **__: {"shop"})
    page = lineage_page.create_app()
    page.dependency_overrides[LineageSource] = lambda: source
    server = FastAPI(root_path="/airflow")
    server.mount("/spark-datahub", page)
    with TestClient(server, base_url="http://airflow.example/airflow/spark-datahub/") as opened:
        yield opened


def sign_in(client: TestClient, role: str | None) -> None:
    user = SimpleAuthManagerUser(username=f"a {role}", role=role)
    present(client, create_auth_manager().generate_jwt(user))


def present(client: TestClient, jwt: str) -> None:
    client.cookies.set("_token", jwt)


def put(source: Source, *proposals: Any, dag: str = "shop", task: str = "build") -> Any:
    key = AttemptKey(dag, "manual__1", task, -1, 1)
    return source.outbox.put(key, list(proposals), spark_succeeded=True, connection_id="sink")


def report(dag: str, run_id: str, reason: str) -> TaskReport:
    return TaskReport(AttemptKey(dag, run_id, "empty", -1, 0), {"reason": reason}, 2**42)


JOB = lineage("job", [dataset("a")], [dataset("b")], [])


def token(client: TestClient) -> str:
    match = re.search(r'data-token="([^"]*)"', client.get("run", params=RUN).text)
    assert match
    return match[1]


def press(client: TestClient, action: str = "deliver", **changes: Any) -> Any:
    headers = {
        **HERE,
        "X-Page-Token": changes.pop("token", None) or token(client),
        **changes.pop("headers", {}),
    }
    return client.post(action, params=changes.pop("params", RUN), headers=headers, content="{}")


def test_the_page_of_a_task_has_the_end_of_its_dag_run(client: TestClient, source: Source) -> None:
    sign_in(client, "user")
    run = "urn:li:dataProcessInstance:run"
    put(
        source,
        *run_proposals(run, "shop_manual__1", "urn:li:dataFlow:(airflow,shop,prod)", None, ()),
        event(run, 1),
    )
    put(source, event(run, 9, "SUCCESS", lasted=8), task="")
    page = client.get("task", params=TASK).text
    assert ">SUCCESS<" in page
    assert ">RUNNING<" not in page
    assert "end of the DAG run" not in page
    # It is delivered with the DAG run.
    assert "1 for sink" in client.get("run", params=RUN).text


def rows(page: str) -> list[list[str]]:
    """Return the words of each cell of the attempts or runs, by row; reasons are rows of their own."""
    found = re.findall(
        "<tr.*?>(.*?)</tr>", page.partition('id="attempts"')[2].partition("</table>")[0], re.DOTALL
    )
    cells = [re.findall("<t[hd].*?</t[hd]>", row, re.DOTALL) for row in found]
    return [[" ".join(re.sub("<.*?>", " ", cell).split()) for cell in row] for row in cells]


def test_each_attempt_says_why_it_failed_and_why_it_is_pending(
    client: TestClient, source: Source
) -> None:
    sign_in(client, "user")
    for number, delivery in (
        (1, Delivery(1)),
        (2, Delivery(0, pending=(JOB,), problem="no answer at noon")),
    ):
        key = AttemptKey("shop", "manual__1", "build", -1, number)
        begun, _ = source.outbox.begin(key, connection_id="sink", events=None, redo={})
        begun.finish([JOB], spark_succeeded=False, failure=f"exit code {number}").settle(
            delivery, [JOB]
        )
    report = {
        "failure": "exit code 2",
        "inputs": ["raw"],
        "pending": 1,
        "reason": "no answer in the morning",
    }
    source.reported = [TaskReport(replace(KEY, try_number=0), report, 2**42)]
    source.tries = {
        KEY: "failed",
        replace(KEY, try_number=2): "failed",
        replace(KEY, try_number=3): "queued",
    }
    page = client.get("run", params=RUN).text
    # The outbox knows the last delivery, and what failed is not the attempt that is still queued.
    (_, second, why, first, failed) = [row[:7] for row in rows(page)]
    assert second == ["build", "2", "failed", "failed", "pending", "1 / 0", "1 for sink"]
    assert first == ["build", "1", "failed", "failed", "delivered", "1 / 1", "1 for sink"]
    assert [why, failed] == [["exit code 2 no answer at noon"], ["exit code 1"]]
    problem = " ".join(
        re.sub("<.*?>", " ", page.partition('id="now"')[2].partition("</p>")[0]).split()
    )
    assert "build try 2 Airflow failed Spark failed lineage pending exit code 2" in problem
    assert "press Deliver now" in problem


def test_an_attempt_has_its_own_state_and_not_that_of_another(
    client: TestClient, source: Source
) -> None:
    sign_in(client, "user")
    second = replace(KEY, try_number=2)
    put(source, JOB).settle(Delivery(1), [JOB])
    other = source.outbox.put(second, [JOB], spark_succeeded=True, connection_id="other")
    other.settle(Delivery(1), [JOB])
    waits, _ = source.outbox.begin(second, connection_id="sink", events=None, redo={})
    pending = {"inputs": ["raw"], "pending": 1, "outbox_entry": str(waits)}
    source.reported = [TaskReport(replace(KEY, try_number=0), pending, 2**42)]
    source.tries = {KEY: "failed", second: "running"}
    assert [row[4] for row in rows(client.get("task", params=TASK).text)[1:]] == [
        "in progress",
        "delivered",
    ]
    assert rows(client.get("runs").text)[1][2:4] == ["failed", "in progress"]
    source.tries[second] = "success"
    assert [row[4] for row in rows(client.get("task", params=TASK).text)[1:] if row[4:]] == [
        "unfinished",
        "delivered",
    ]
    # Receipts of the first attempt and of another connection say nothing of this entry, which
    # another server may have.
    waits.discard()
    assert rows(client.get("runs").text)[1][3] == "unknown"


def test_the_list_has_the_state_that_the_outbox_has_today(
    client: TestClient, source: Source
) -> None:
    sign_in(client, "viewer")
    down = {
        "inputs": ["raw", "rates"],
        "outputs": ["orders"],
        "pending": 1,
        "reason": "DataHub is down",
    }
    entry = put(source, proposal := lineage("build", [dataset("raw")], [dataset("orders")], []))
    here = TaskReport(KEY, {**down, "outbox_entry": str(entry)}, 2**42)
    source.reported = [here, TaskReport(replace(KEY, run_id="elsewhere"), down, 2**41)]
    elsewhere = ["shop", "elsewhere", "", "unknown", "2 / 1"]
    (_, first, why, second, _) = rows(client.get("runs").text)
    assert first[:5] == ["shop", "manual__1", "failed", "pending", "2 / 1"]
    assert second[:5] == elsewhere
    (_, attempt, reason) = rows(client.get("run", params=RUN).text)
    assert attempt[4:7] == ["pending", "2 / 1", "1 for sink"]
    assert reason == why == ["DataHub is down"]
    entry.settle(Delivery(1), [proposal])
    (_, first, second, _) = rows(client.get("runs").text)
    assert first[:5] == ["shop", "manual__1", "failed", "delivered", "2 / 1"]
    assert second[:5] == elsewhere
    assert [row[4] for row in rows(client.get("run", params=RUN).text)] == ["lineage", "delivered"]
    for chosen in (
        {"state": "delivered"},
        {"dag_id": "shop", "state": "delivered"},
        {"state": "delivered", "dag_id": ""},
    ):
        listed = [cell for row in rows(client.get("runs", params=chosen).text) for cell in row]
        assert listed.count("manual__1") == listed.count("delivered") == 1, chosen
        assert "elsewhere" not in listed
    assert "There is no such run." in client.get("runs", params={"state": "quarantined"}).text


def put_write(source: Source, orders: str, *readers: tuple[str, str]) -> None:
    """Keep a write of a table, and readers: DAG and task."""
    histories = Histories(source.outbox.storage)
    for place, (dag, task) in enumerate((("shop", "build"), *readers)):
        key, use, at = (
            AttemptKey(dag, "manual__1", task, -1, 1),
            {orders: Use(versions=("3",))},
            10_000 * place,
        )
        reads, writes = (use, {}) if place else ({}, use)
        record = Fingerprint(key, at, at + 1, True, "", reads, writes, logical_ms=86_400_000)
        histories.write(record, max_age=1e9)
    put(source, lineage("job", [dataset("a")], [orders], []))


def test_a_table_leads_to_the_task_instances_that_read_its_write(
    client: TestClient, source: Source
) -> None:
    put_write(source, dataset("orders"), ("shop", "sum"))
    # The way must not name a DAG that the viewer may not see.
    for dag, task, reads, silent in (
        ("secret", "spy", dataset("orders"), SilentTasks(after=("export",))),
        ("shop", "late", dataset("b"), SilentTasks(started=(("secret", "manual__1", "export"),))),
    ):
        key, use = AttemptKey(dag, "manual__1", task, -1, 1), {reads: Use(versions=("3",))}
        record = Fingerprint(
            key, 20_000, 20_001, True, "", use, logical_ms=86_400_000, silent=silent
        )
        Histories(source.outbox.storage).write(record, max_age=1e9)
    sign_in(client, "viewer")
    may = type(create_auth_manager()).is_authorized_dag
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            type(create_auth_manager()),
            "is_authorized_dag",
            lambda *arguments, **options: (
                options["details"].id == "shop" and may(*arguments, **options)
            ),
        )
        page = client.get("task", params=TASK).text
        [link] = re.findall(r'href="(reached[^"]*)"', page)
        reached = client.get(html.unescape(link))
    assert rows(reached.text)[1:] == [
        ["shop", "manual__1", "sum", "read", "1970-01-02 00:00:00"],
        [
            "shop",
            "manual__1",
            "late",
            "inferred through a task without lineage",
            "1970-01-02 00:00:00",
        ],
    ]
    assert "2 of 4 downstream task instances read it; 2 may have" in reached.text
    assert "You may not see 2 others." in reached.text
    assert "secret" not in reached.text
    nothing = client.get("reached", params={**TASK, "dataset": dataset("b")}).text
    assert "No task instance is known to have read what it wrote." in nothing


def test_an_unknown_run_is_not_found_and_a_browser_without_session_logs_in(
    client: TestClient,
) -> None:
    reads = {"Accept": "text/html,*/*"}
    answer = client.get(
        "run", params={**RUN, "run_id": "a b"}, headers=reads, follow_redirects=False
    )
    assert answer.status_code == 307
    login, _, back = answer.headers["location"].partition("?next=")
    assert login == "/api/v2/auth/login"
    assert unquote(back) == "/airflow/spark-datahub/run?dag_id=shop&run_id=a+b"
    sign_in(client, "viewer")
    answer = client.get("run", params={**RUN, "run_id": "<b>"}, headers=reads)
    assert answer.status_code == 404
    assert "Airflow has no run &lt;b&gt; of the DAG shop." in answer.text


def test_a_page_without_lineage_says_why(client: TestClient, source: Source) -> None:
    sign_in(client, "viewer")
    assert "No attempt has reported lineage" in client.get("run", params=RUN).text
    put(source, event("urn:li:dataProcessInstance:run", 9, "FAILURE", lasted=8), task="")
    assert "No attempt has reported lineage" in client.get("run", params=RUN).text
    source.outbox.begin(KEY, connection_id="sink", events="/events", redo={})
    assert "the attempt was killed, or had no time left" in client.get("run", params=RUN).text
    source.reported = [TaskReport(KEY, {"reason": "there is no event file"}, 2**42)]
    assert "No lineage: there is no event file" in client.get("run", params=RUN).text


@pytest.mark.parametrize("more", [False, True])
def test_a_run_says_that_it_has_more_tasks_than_the_page_shows(
    client: TestClient, source: Source, *, more: bool
) -> None:
    sign_in(client, "viewer")
    put(source, event("urn:li:dataProcessInstance:run", 9, "FAILURE", lasted=8))
    # Two tasks have no map index.
    source.tries = {
        AttemptKey("shop", RUN["run_id"], "many", index, 1): "success"
        for index in range(498 + more)
    }
    page = client.get("run", params=RUN).text
    assert ("The newest 500 task instances, and all that the outbox has." in page) is more


def test_the_page_of_a_dag_draws_its_newest_run(client: TestClient, source: Source) -> None:
    sign_in(client, "viewer")
    assert "<svg" not in client.get("runs", params={"dag_id": "shop"}).text
    put(source, lineage("build", [dataset("raw")], [dataset("orders")], []))
    delivered = lineage("sum", [dataset("orders")], [dataset("totals")], [])
    put(source, delivered, task="sum").settle(Delivery(1), [delivered])
    # Of the newest run only the report is known here.
    source.reported = [report("shop", "manual__2", "no events")]
    page = client.get("runs", params={"dag_id": "shop"}).text
    assert page.index("manual__2") < page.index("manual__1")
    assert "The drawing is of manual__1." in page
    for name in ("raw", "orders", "totals"):
        assert f">{name}</text>" in page
    assert "<svg" not in client.get("runs").text


def test_every_address_needs_a_signed_in_user(client: TestClient, source: Source) -> None:
    put(source, JOB)
    for address in ADDRESSES:
        assert client.get(address, params=TASK).status_code == 401, address
    assert client.post("deliver", params=RUN, headers=HERE, content="{}").status_code == 401
    present(client, "forged")
    assert client.get("run", params=RUN).status_code == 403
    assert client.get("openapi.json").status_code == client.get("docs").status_code == 404


@cases("lineage_page")
def test_each_address_asks_for_the_same_right(
    client: TestClient,
    source: Source,
    monkeypatch: pytest.MonkeyPatch,
    role: str | None,
    reads_dags_alone: bool,
    may_look: bool,
    may_deliver: bool,
) -> None:
    put(source, JOB)
    sign_in(client, "admin")
    manager, page_token = type(create_auth_manager()), token(client)
    may = manager.is_authorized_dag

    def asked(*arguments: Any, **options: Any) -> bool:
        of_dag = options.get("access_entity") is None or not reads_dags_alone
        return of_dag and bool(may(*arguments, **options))

    monkeypatch.setattr(manager, "is_authorized_dag", asked)
    sign_in(client, role)
    for address in ADDRESSES:
        assert (client.get(address, params=TASK).status_code == 200) is may_look, address
    runs = client.get("runs")
    assert (runs.status_code, "manual__1" in runs.text) == (200, may_look)
    for action in ("deliver", "requeue"):
        own_token = token(client) if may_deliver else page_token
        assert (press(client, action, token=own_token).status_code == 200) is may_deliver, action


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "sink"
    connect_to_files(monkeypatch, "sink", path)
    return path


def test_a_quarantined_entry_is_shown_with_its_reason_and_requeued(
    client: TestClient, source: Source
) -> None:
    entry = put(source, JOB)
    (proposal,) = proposals_in(entry)
    entry.settle(Delivery(0, (Rejection(proposal, "<b>no such aspect</b>"),)), [proposal])
    sign_in(client, "user")
    text = client.get("run", params=RUN).text
    assert "&lt;b&gt;no such aspect&lt;/b&gt;" in text
    assert press(client, "requeue").json() == {"message": "1 quarantined entry is pending again"}
    assert len(source.outbox.names()) == 1


@cases("lineage_page")
def test_requests_to_deliver_are_accepted_from_the_page_only(
    client: TestClient, source: Source, sink: Path, changes: dict[str, Any], status: int
) -> None:
    put(source, JOB)
    sign_in(client, "user")
    assert press(client, **changes).status_code == status
    assert sink.exists() == (status == 200)


def test_a_token_belongs_to_one_user_and_expires(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(client, "admin")
    of_another = token(client)
    sign_in(client, "user")
    assert press(client, token=of_another).status_code == 403
    mine = token(client)
    assert press(client, token=mine).status_code == 200
    monkeypatch.setattr(lineage_page, "_TOKEN_SECONDS", -1)
    assert press(client, token=mine).status_code == 403
    assert client.get("deliver", params=RUN).status_code == 405


def test_a_browser_may_run_nothing_but_the_page(client: TestClient, source: Source) -> None:
    put(
        source,
        *(
            lineage(name, [dataset(name)], [dataset("b")], [])
            for name in HOSTILE
            if "\ud800" not in name
        ),
    )
    source.reported = [
        TaskReport(KEY, {"reason": HOSTILE[0], "warnings": [HOSTILE[1]], "events": HOSTILE[2]}, 0)
    ]
    sign_in(client, "user")
    for address in ("runs", "run", "task"):
        answer = client.get(address, params=TASK)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'self'" in policy
        assert "unsafe" not in policy
        assert "<script>alert" not in answer.text
        assert "<img" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r'(href|data-action)="/', answer.text)  # works behind any prefix
    download = client.get("proposals", params=TASK)
    assert download.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in download.headers["content-security-policy"]


def test_the_list_of_runs_is_of_readable_dags_and_without_lineage_it_says_why(
    client: TestClient, source: Source
) -> None:
    put(source, JOB, dag="payroll")
    put(source, JOB)
    source.reported = [
        report("shop", "manual__2", "the listener did not run"),
        report("payroll", "manual__2", "nobody's business"),
    ]
    sign_in(client, "viewer")
    text = client.get("runs").text
    assert "payroll" not in text
    assert "business" not in text
    assert re.search(
        r"manual__2.*no lineage.*the listener did not run.*manual__1.*pending", text, re.DOTALL
    )
    empty = {**RUN, "run_id": "manual__2", "task_id": "empty"}
    assert "No lineage: the listener did not run" in client.get("task", params=empty).text
    assert client.get("task", params=RUN).status_code == 422


def test_the_page_shows_the_reports_if_the_outbox_cannot_be_read(
    client: TestClient, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    source.reported = [TaskReport(KEY, {"inputs": ["a"]}, 5)]
    monkeypatch.setattr(OutboxRecords, "newest", refuse)
    monkeypatch.setattr(OutboxRecords, "of", refuse)
    sign_in(client, "viewer")
    assert re.search(r"manual__1.*Permission denied", client.get("runs").text, re.DOTALL)
    assert client.get("run", params=RUN).status_code == 503


@pytest.mark.parametrize("value", [5, "x", [5], {"a": []}, None, True])
def test_a_badly_typed_report_is_shown_by_its_other_fields(
    client: TestClient, source: Source, value: object
) -> None:
    pushed = {**dict.fromkeys(LineageReport().to_obj(), value), "failure": "the job failed"}
    source.reported = [report for report in [TaskReport.read(KEY, pushed, 5)] if report]
    sign_in(client, "viewer")
    assert client.get("runs").status_code == 200
    assert re.search(r">failed<.*the job failed", client.get("run", params=RUN).text, re.DOTALL)


def test_the_views_of_airflow_lead_to_the_page(client: TestClient) -> None:
    sign_in(client, "user")
    destinations = {view["destination"]: view["href"] for view in SparkDatahubPlugin.external_views}
    assert set(destinations) == {"nav", "dag", "dag_run", "task_instance"}
    for href in destinations.values():
        address = (
            href.replace("{DAG_ID}", "shop")
            .replace("{RUN_ID}", "manual__1")
            .replace("{TASK_ID}", "build")
        )
        assert client.get(f"http://airflow.example/airflow{address}").status_code == 200, address


ATTACKS = Path(__file__).with_name("attacks.js").read_text()
"""What a page of another origin of the same site does, to which the browser therefore gives the
cookies.
"""


@pytest.mark.slow
def test_in_a_browser_no_other_site_presses_and_no_name_runs(
    client: TestClient, source: Source, sink: Path, browser: Chromium, hostile: list[Proposal]
) -> None:
    names = [name for name in HOSTILE if "\ud800" not in name]
    put(source, *hostile)
    source.reported = [TaskReport(KEY, {"reason": HOSTILE[0], "warnings": names}, 0)]
    jwt = create_auth_manager().generate_jwt(SimpleAuthManagerUser(username="a user", role="user"))
    seen: list[tuple[str, bool, int]] = []
    with served(watched(client.app, seen)) as server, LoopbackServer(AnyPage) as evil:
        page = f"{server}/airflow/spark-datahub/run?{urlencode(RUN)}"
        browser.driver.get(f"{server}/airflow/nothing")
        browser.driver.add_cookie({"name": "_token", "value": jwt, "path": "/"})
        browser.driver.get(evil.url)
        framed, simple, *asked, read = browser.driver.execute_async_script(
            ATTACKS, page.replace("/run?", "/deliver?")
        )
        assert (framed, asked, read) == ("TypeError", ["TypeError", "opaque 0"], "TypeError")
        assert simple == "opaque 0"
        wait_until(lambda: [status for method, _, status in seen if method == "POST"] == [403] * 4)
        assert all(has_cookie for method, has_cookie, _ in seen if method == "POST")
        assert not sink.exists()
        browser.complaints()
        browser.driver.get(page)
        shown = browser.run("return document.body.textContent")
        assert [name for name in names[:6] if name not in shown] == []
        assert (
            browser.run(
                "return document.querySelectorAll('img, iframe, [onmouseover], [onerror]').length"
            )
            == 0
        )
        assert [
            said for said in browser.complaints() if "/deliver?" not in said
        ] == []  # a refusal may be logged late
        browser.find("button[data-action^=deliver]").click()
        wait_until(sink.exists)


def watched(app: Any, seen: list[tuple[str, bool, int]]) -> Any:
    """Return an application that notes each request's method, whether it has the cookie, and the
    answer's status.
    """

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                seen.append(
                    (
                        scope["method"],
                        b"_token=" in dict(scope["headers"]).get(b"cookie", b""),
                        message["status"],
                    )
                )
            await send(message)

        await app(scope, receive, sent)

    return noting


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an application on a free port of this host; yield its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        join(thread)


class AnyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>evil</title><body></body>")

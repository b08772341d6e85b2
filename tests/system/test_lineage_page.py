"""The page *Spark lineage* in a real API server behind a URL prefix, as a person with a real
browser has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.delivery.outboxes import outbox_at
from tests.patience import HANGS
from tests.servers.chromium import Chromium
from tests.system.airflow_home import AirflowHome, file_connection, sink_in, status_of
from tests.visualization.conftest import dataset, lineage

pytestmark = pytest.mark.airflow

TASK = "dag_id=unknown_to_airflow&run_id=manual__1&task_id=build&map_index={MAP_INDEX}"
USERS = {"editor": "user", "viewer": "viewer", "nobody": ""}


def eventually(check: Callable[[], bool], seconds: float = HANGS) -> None:
    from selenium.common.exceptions import StaleElementReferenceException

    until = time.monotonic() + seconds
    while True:
        with suppress(
            StaleElementReferenceException
        ):  # the page was replaced between finding and reading
            if check():
                return
        assert time.monotonic() < until
        time.sleep(0.1)


@dataclass(frozen=True)
class ApiServer:
    url: str
    delivered: Path

    def log_in(self, user: str, browser: Chromium) -> None:
        browser.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        browser.driver.get(f"{self.url}/auth/login/")
        eventually(lambda: len(browser.driver.find_elements("css selector", "input")) == 2)
        name, password = browser.driver.find_elements("css selector", "input")
        name.send_keys(user)
        password.send_keys(f"password of {user}")
        browser.find("button[type=submit]").click()
        eventually(lambda: "/auth/login" not in browser.driver.current_url)

    def page_of(self, user: str, browser: Chromium) -> str:
        """Log in, open the page of the task, and return its text."""
        self.log_in(user, browser)
        browser.complaints()
        browser.requests()
        browser.driver.get(f"{self.url}/spark-datahub/task?{TASK}")
        return browser.find("body").text


@pytest.fixture(scope="module")
def server(
    airflow_home: AirflowHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    folder = tmp_path_factory.mktemp("page")
    proposals = [lineage("build_orders", [dataset("raw")], [dataset("orders")], [])]
    key = AttemptKey("unknown_to_airflow", "manual__1", "build", -1, 1)
    outbox_at(folder / "outbox").put(key, proposals, spark_succeeded=True, connection_id="sink")
    settings = {"AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION": folder / "outbox"}
    with airflow_home.api_server(
        folder, USERS, {"sink": file_connection(folder)}, "/flow", **settings
    ) as url:
        yield ApiServer(url, sink_in(folder))


def test_an_editor_sees_the_lineage_and_delivers_it_in_a_browser(
    server: ApiServer, browser: Chromium
) -> None:
    assert status_of(f"{server.url}/spark-datahub/task?{TASK}") == 401
    browser.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    browser.driver.get(f"{server.url}/spark-datahub/task?{TASK}")
    eventually(lambda: "/auth/login" in browser.driver.current_url)
    assert "Invalid" not in server.page_of("viewer", browser)
    assert browser.driver.find_elements("css selector", "button[data-action]") == []
    assert "You may look, but not deliver" in browser.find("#now").text

    assert "Forbidden" in server.page_of("nobody", browser)
    assert "build_orders" not in browser.driver.page_source

    server.page_of("editor", browser)
    assert [text.text for text in browser.driver.find_elements("css selector", "svg .title")] == [
        "raw",
        "orders",
        "build_orders",
    ]
    assert not server.delivered.exists()
    browser.find("button[data-action]").click()
    eventually(lambda: "delivered" in browser.find("#attempts td .state").text)
    (file,) = server.delivered.iterdir()
    assert file.read_text().count("dataJobInputOutput") == 1
    assert "1 entry settled (1 proposal delivered" in browser.find("#outcome").text
    assert browser.driver.find_elements("css selector", "button[data-action]") == []
    assert browser.complaints() == []
    assert [
        request for request in browser.requests() if not request.startswith(f"{server.url}/")
    ] == []

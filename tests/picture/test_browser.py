"""The page in a real browser: what it asks for, what it traces and finds, and how it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub.picture.graph import fold
from airflow_provider_spark_datahub.picture.page import page
from tests.picture.conftest import HOSTILE
from tests.servers.chromium import Chromium, installed


@pytest.fixture
def opened(request: pytest.FixtureRequest, browser: Chromium, tmp_path: Path) -> Chromium:
    """The page of the proposals of the fixture that the test names."""
    file = tmp_path / "lineage.html"
    file.write_text(page(fold(request.getfixturevalue(request.param))), encoding="utf-8")
    browser.open(file)
    return browser


@pytest.mark.parametrize("opened", ["daily_sales", "hostile"], indirect=True)
def test_it_loads_nothing_and_the_console_is_silent(opened: Chromium) -> None:
    (asked,) = opened.requests()
    assert asked.startswith("file:///")
    for every in opened.driver.find_elements("css selector", "button, summary"):
        opened.run("arguments[0].click()", every)
    assert opened.requests() == []
    assert opened.complaints() == []


@pytest.mark.parametrize("opened", ["hostile"], indirect=True)
def test_hostile_names_are_read_as_they_are_and_run_nothing(opened: Chromium) -> None:
    assert opened.run("return document.scripts.length") == 1
    assert opened.run("return document.querySelectorAll('img, iframe, [onmouseover], [onerror]').length") == 0
    shown = opened.run("return document.querySelector('main').textContent")
    for name in HOSTILE[:6]:
        assert name in shown
    assert r"\u202egnp.elbat\u202c" in shown
    # Right-to-left words stay where they are: what follows them is not drawn in front of them.
    (row,) = [row for row in opened.driver.find_elements("css selector", ".row") if HOSTILE[7] in row.text]
    kind, right_to_left = row.find_elements("css selector", ".dim, .name")
    assert kind.rect["x"] < right_to_left.rect["x"]


@pytest.mark.parametrize(("in_ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_a_browser_it_is_skipped_but_not_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", in_ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(outcome, match="chromium-driver"):
        installed()

"""The page in a real browser: what it asks for, what it traces and finds, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub import visualization
from airflow_provider_spark_datahub.cli.convert import read_sources
from airflow_provider_spark_datahub.conversion import Proposal
from tests.cli.commands import run
from tests.servers.chromium import Chromium
from tests.visualization.conftest import HOSTILE, MIDNIGHT, dataset, lineage

EVENTS = Path(__file__).parents[1] / "data" / "more_jobs" / "events"
CORPUS = Path(__file__).parents[1] / "data" / "corpus" / "events"
ENTER, ESCAPE, TAB = "\ue007", "\ue00c", "\ue004"

QUESTIONS = Path(__file__).with_name("questions.js").read_text()
Open = Callable[..., Chromium]


@pytest.fixture
def show(browser: Chromium, tmp_path: Path) -> Open:
    """Open the page of proposals."""

    def opened(proposals: list[Proposal], width: int | None = None) -> Chromium:
        file = tmp_path / "lineage.html"
        file.write_text(
            visualization.render_page(visualization.Graph.of(proposals)), encoding="utf-8"
        )
        browser.open(file, width)
        return browser

    return opened


@pytest.fixture
def chain(browser: Chromium, tmp_path: Path) -> Chromium:
    """Return the page of a recorded job: CSV files, two tables, a folder (jobs/r_tables_chain.py of
    more_jobs).
    """
    file = tmp_path / "lineage.html"
    assert run("show", EVENTS / "r_tables_chain.ndjson", "-o", file).exit_code == 0
    browser.open(file)
    return browser


def ask(browser: Chromium, question: str, *arguments: object) -> Any:
    """Call a function of ``questions.js`` in the page."""
    return browser.run(f"{QUESTIONS}\nreturn {question}(...arguments)", *arguments)


def lit_lines(browser: Chromium) -> set[str]:
    return set(ask(browser, "litLines"))


def shown_columns(browser: Chromium) -> set[str]:
    return set(ask(browser, "shownColumns"))


def trace_column(browser: Chromium, table: str, column: str) -> None:
    ask(browser, "rowOf", table, column).find_element("css selector", "button").click()


@pytest.mark.parametrize("which", ["daily_sales", "hostile"])
def test_it_loads_nothing_and_the_console_is_silent(
    show: Open, which: str, request: pytest.FixtureRequest
) -> None:
    browser = show(request.getfixturevalue(which))
    (asked,) = browser.requests()
    assert asked.startswith("file:///")
    assert ask(browser, "pressAll") > 20
    browser.find("#find").send_keys("order", ENTER, ESCAPE, ESCAPE)
    assert browser.requests() == []
    assert browser.complaints() == []


def test_hostile_names_are_read_as_they_are_and_run_nothing(
    show: Open, hostile: list[Proposal]
) -> None:
    browser = show(hostile)
    assert browser.run("return document.scripts.length") == 1
    assert (
        browser.run(
            "return document.querySelectorAll('img, iframe, [onmouseover], [onerror]').length"
        )
        == 0
    )
    shown = browser.run("return document.querySelector('main').textContent")
    for name in HOSTILE[:6]:
        assert name in shown
    assert r"\u202egnp.elbat\u202c" in shown
    # Right-to-left words stay where they are: what follows them is not drawn in front of them.
    (row,) = [
        row
        for row in browser.driver.find_elements("css selector", ".row")
        if HOSTILE[7] in row.text
    ]
    kind, right_to_left = row.find_elements("css selector", ".dim, .name")
    assert kind.rect["x"] < right_to_left.rect["x"]


# From the job's code: `base` is the CSV file, `agg` sums its amounts per customer, `big` is what of
# `agg` is above 10.
IN_BASE = {"orders.csv > r_tables_chain 1/3", "r_tables_chain 1/3 > chain.base"}
IN_AGG = IN_BASE | {"chain.base > r_tables_chain 2/3", "r_tables_chain 2/3 > chain.agg"}
IN_BIG = IN_AGG | {"chain.agg > r_tables_chain 3/3", "r_tables_chain 3/3 > big"}
TOTALS = {"orders.csv.amount", "chain.base.amount", "chain.agg.total", "big.total"}
CUSTOMERS = {f"{table}.customer_id" for table in ("orders.csv", "chain.base", "chain.agg", "big")}


@pytest.mark.parametrize(
    ("table", "column", "columns", "lines"),
    [
        ("big", "total", TOTALS, IN_BIG),
        ("orders.csv", "amount", TOTALS, IN_BIG),
        ("chain.agg", "customer_id", CUSTOMERS, IN_BIG),
        ("chain.base", "status", {"orders.csv.status", "chain.base.status"}, IN_BASE),
    ],
)
def test_a_column_is_traced_from_where_it_comes_to_where_it_goes(
    chain: Chromium, table: str, column: str, columns: set[str], lines: set[str]
) -> None:
    before = shown_columns(chain)
    trace_column(chain, table, column)
    assert shown_columns(chain) == columns
    assert lit_lines(chain) == lines
    assert chain.find("tr.chosen button").get_attribute("aria-pressed") == "true"
    chain.press(ESCAPE)
    assert shown_columns(chain) == before
    assert lit_lines(chain) == set()


def test_filters_and_joins_are_traced_on_request(chain: Chromium) -> None:
    trace_column(chain, "chain.agg", "total")
    assert shown_columns(chain) == TOTALS
    # GROUP BY customer_id makes the totals; the filter on them leaves rows of `big` out.
    chain.find("#deciding").click()
    assert shown_columns(chain) == TOTALS | CUSTOMERS - {"chain.agg.customer_id"}
    chain.find("#deciding").click()
    assert shown_columns(chain) == TOTALS


@pytest.fixture
def around(show: Open) -> Chromium:
    """Return proposals: ``a`` makes ``b``, both make ``c``, and a third job makes ``c`` of ``a``
    alone.
    """
    a, b, c = map(dataset, "abc")

    def same(name: str, source: str, target: str) -> tuple[str, list[str], str]:
        return (
            f"{target}#{name}",
            [f"{source}#{name}"],
            f"-- DIRECT:IDENTITY\nSELECT *\n  FROM {source.split(',')[1]}",
        )

    return show(
        [
            lineage("first", [a], [b], [same("x", a, b)]),
            lineage("second", [a, b], [c], [same("x", b, c), same("z", b, c)]),
            lineage("past", [a], [c], [same("y", a, c), same("x", a, c)]),
        ]
    )


@pytest.mark.parametrize("by_keyboard", [False, True])
def test_a_table_is_traced_without_what_goes_past_it(around: Chromium, by_keyboard: bool) -> None:
    chosen = ask(around, "boxOf", "b")
    if by_keyboard:
        around.run("arguments[0].focus()", chosen)
        around.press(ENTER)
    else:
        chosen.click()
    assert lit_lines(around) == {"a > first", "first > b", "b > second", "second > c"}
    lit = around.driver.find_elements("css selector", ".box.lit .title")
    assert {title.text for title in lit} == {"a", "b", "c", "first", "second"}
    assert around.find("#hint").text == "hive b: comes from 1 table, leads to 1. Esc ends this."
    assert chosen.get_attribute("aria-current") == "true"


def test_each_source_names_its_statement_if_several_write_a_table(around: Chromium) -> None:
    cell = ask(around, "rowOf", "c", "y").find_element("css selector", "td:last-child")
    assert cell.text == "a.y identity statement 2"
    cell.find_element("css selector", ".how[href]").click()
    opened = around.find(".statement[open]")
    assert opened.text == "Statement 2 of past\nSELECT *\n  FROM a"


def test_what_is_looked_for_is_shown_and_enter_goes_from_one_to_the_next(chain: Chromium) -> None:
    chain.find("body").send_keys("/")
    chain.press("BASE")
    assert chain.find("#found").text == "1 table. Enter traces the first, then the next."
    assert {column.split(".")[1] for column in shown_columns(chain)} == {"base"}
    chain.press("\b" * 4, "total")
    assert chain.find("#found").text == "2 columns. Enter traces the first, then the next."
    shown = chain.driver.find_elements("css selector", ".table > summary .name")
    assert [table.text for table in shown if table.text] == ["big", "chain.agg"]
    chain.press(ENTER)
    assert (shown_columns(chain), chain.find("#found").text) == (TOTALS, "1 of 2")
    assert chain.find(".table.chosen .name").text == "big"
    chain.press(ENTER)
    assert chain.find(".table.chosen .name").text == "chain.agg"
    chain.press(ENTER)
    assert chain.find(".table.chosen .name").text == "big"
    # The first Esc ends the trace, the second the search.
    chain.press(ESCAPE)
    assert chain.find("#find").get_property("value") == "total"
    chain.press(ESCAPE)
    assert chain.run("return document.querySelectorAll('.table:not([hidden])').length") == 4
    chain.press("no such name")
    assert chain.find("#found").text == "Nothing has this name."


def test_every_control_is_reached_by_tab(show: Open, daily_sales: list[Proposal]) -> None:
    browser = show(daily_sales)
    controls = ask(browser, "watchFocus")
    browser.find("body").send_keys(TAB)
    browser.press(*[TAB] * (controls - 1))
    assert controls > 30
    assert browser.run("return window.reached.size") == controls


def test_the_graph_can_be_skipped(chain: Chromium) -> None:
    chain.find("#find").click()
    chain.press(TAB)
    assert chain.driver.switch_to.active_element.is_displayed()
    chain.press(ENTER)
    chain.press(TAB)
    assert chain.run("return document.activeElement.closest('section').id") == "tables"


def test_without_javascript_everything_is_there_and_nothing_that_needs_it(
    browser: Chromium, show: Open
) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(
            [
                lineage(
                    "job",
                    [dataset("a")],
                    [dataset("b")],
                    [(f"{dataset('b')}#x", [f"{dataset('a')}#y"], "")],
                )
            ]
        )
        assert shown_columns(browser) == {"a.y", "b.x"}
        assert browser.run("return document.querySelectorAll('td.sources a, svg .box').length") == 4
        assert [
            each
            for each in browser.driver.find_elements("css selector", "button, input")
            if each.is_displayed()
        ] == []
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_zoom_by_keyboard(chain: Chromium) -> None:
    width = "return document.querySelector('svg.network').getBoundingClientRect().width"
    before = chain.run(width)
    chain.run("document.querySelector('.view').focus()")
    chain.press("+")
    assert chain.run(width) == pytest.approx(before * 1.25, abs=0.1)
    chain.press("-")
    assert chain.run(width) == pytest.approx(before, abs=0.1)
    chain.press("0")
    assert chain.run(width) <= chain.find(".view").size["width"]


def in_view(browser: Chromium) -> list[str]:
    """Return the titles of the boxes that the view shows."""
    return list(ask(browser, "boxesInView"))


@pytest.mark.parametrize("width", [None, 420])
def test_the_first_view_has_readable_labels_and_what_is_made_in_the_end(
    show: Open, width: int | None
) -> None:
    def step(number: int) -> Proposal:
        return lineage(
            f"job{number}", [dataset(f"table{number}")], [dataset(f"table{number + 1}")], []
        )

    browser = show([step(number) for number in range(12)], width)
    assert ask(browser, "smallestLabel") >= 11
    assert "table12" in in_view(browser)
    assert "table3" not in in_view(browser)
    browser.find("#find").send_keys("table3")
    assert "table3" in in_view(browser)
    if width is None:
        assert ask(show([step(1)]), "smallestLabel") == 12
        assert in_view(browser) == ["table1", "table2", "job1"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(
    show: Open, daily_sales: list[Proposal], scheme: str
) -> None:
    browser = show(daily_sales)
    browser.emulate(scheme=scheme)
    assert browser.run("return matchMedia('(prefers-color-scheme: dark)').matches") == (
        scheme == "dark"
    )
    trace_column(browser, "sales.orders", "name")
    contrasts: list[tuple[str, float]] = ask(browser, "contrasts")
    assert len(contrasts) > 50
    assert [(text, ratio) for text, ratio in contrasts if ratio < 4.5] == []


def test_tables_unfold_their_columns_in_the_picture(chain: Chromium) -> None:
    assert ask(chain, "picture") == {"columns": [], "lines": [], "lit": [], "overlaps": 0}
    ask(chain, "boxOf", "chain.agg").click()
    chain.find("#unfold").click()
    picture = ask(chain, "picture")
    assert (picture["columns"], picture["overlaps"]) == (["customer_id", "total"], 0)
    # r_tables_chain.py: agg is sum(amount) by customer of base, and the folder written last is a
    # filter of agg.
    assert sorted(picture["lines"]) == sorted(
        [
            "customer_id > customer_id",
            "amount > total",
            "customer_id > customer_id",
            "total > total",
        ]
    )
    chain.press(ESCAPE)
    chain.find("#unfold").click()
    picture = ask(chain, "picture")
    assert (len(picture["columns"]), len(picture["lines"]), picture["overlaps"]) == (14, 9, 0)
    chain.driver.find_element("xpath", "//*[@class='column'][.='total']").click()
    assert sorted(ask(chain, "picture")["lit"]) == ["amount", "amount", "total"]
    chain.press(ESCAPE)
    chain.find("#unfold").click()
    assert ask(chain, "picture") == {"columns": [], "lines": [], "lit": [], "overlaps": 0}
    assert chain.complaints() == []


def test_a_recorded_job_is_drawn_in_light_and_dark(browser: Chromium, tmp_path: Path) -> None:
    file = tmp_path / "lineage.html"
    assert run("show", CORPUS / "b_multi_sql_hive.ndjson", "-o", file).exit_code == 0
    browser.open(file)
    browser.picture("lineage", 670)
    browser.emulate(scheme="dark")
    browser.find("#unfold").click()
    browser.picture("columns", 760)
    picture = ask(browser, "picture")
    assert picture["lines"]
    assert (picture["overlaps"], browser.complaints()) == (0, [])


def test_a_narrow_window_clips_nothing(
    browser: Chromium, tmp_path: Path, daily_sales: list[Proposal]
) -> None:
    row = visualization.AttemptRow(
        ("daily_sales", "scheduled__2026-11-20T00:00:00+00:00"),
        ("success", "pending"),
        ("12 / 3", "28 for datahub_rest_default"),
        (
            "No OpenLineage event file: the listener was not loaded, or the driver could not write to its folder",
        ),
        MIDNIGHT,
        link="run?dag_id=daily_sales",
        raw="proposals?dag_id=daily_sales",
        is_problem=True,
    )
    columns = ("DAG", "run", "Airflow", "lineage", "in / out", "proposals", "when")
    attempts = visualization.Attempts(
        "Runs", columns, [row], [("Deliver now", "deliver", "…")], token="t"
    )
    frame = visualization.Frame(
        "Spark lineage of daily_sales", attempts, script=visualization.read_asset("actions.js")
    )
    chain, *_ = read_sources([EVENTS / "r_tables_chain.ndjson"])
    file = tmp_path / "narrow.html"
    for width, proposals in ((400, [*daily_sales, *chain]), (360, daily_sales)):
        file.write_text(
            visualization.render_page(visualization.Graph.of(proposals), frame=frame),
            encoding="utf-8",
        )
        browser.open(file, width)
        ask(browser, "unfoldAll", True)
        assert browser.run("return document.querySelectorAll('td.sources li').length") > 0
        assert ask(browser, "clipped") == []
        assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [
            width,
            width,
        ]
        assert browser.complaints() == []


def test_hostile_names_do_not_scroll_a_narrow_window_sideways(
    show: Open, hostile: list[Proposal]
) -> None:
    browser = show(hostile, 360)
    assert browser.run("return [innerWidth, document.documentElement.scrollWidth]") == [360, 360]


def test_on_paper_everything_is_there_and_nothing_to_press(chain: Chromium) -> None:
    ask(chain, "unfoldAll", False)
    assert shown_columns(chain) == set()
    chain.emulate(media="print")
    assert shown_columns(chain) >= TOTALS | CUSTOMERS
    # The remaining text of the buttons is the names of columns.
    left = """return [...document.querySelectorAll("button, input")].filter((each) => each.checkVisibility()
        && !each.closest("tr[data-column]")).length"""
    assert chain.run(left) == 0

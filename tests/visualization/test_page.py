"""The HTML page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from airflow_provider_spark_datahub import visualization
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import (
    AttemptRow,
    Attempts,
    Frame,
    Graph,
    render_page,
)
from airflow_provider_spark_datahub.visualization.page import _breakable, _first_of
from tests.cases import cases
from tests.visualization.conftest import (
    DAG_RUN,
    HOSTILE,
    application_run,
    dataset,
    event,
    lineage,
    shown,
)

LAST_APPLICATION = "urn:li:dataProcessInstance:01a1fd25-d000"
STEERING = {"\u202e", "\x00", "\x1b", "\ud800"}
VOID = {"meta", "input", "br", "wbr"}


class Reader(HTMLParser):
    """The elements of a page as a browser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.wrongly_nested: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrongly_nested.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    def attributes(self, name: str) -> list[str]:
        return [value for _, found in self.elements if (value := found.get(name)) is not None]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def read(proposals: list[Proposal]) -> Reader:
    return Reader(render_page(Graph.of(proposals)))


@pytest.mark.parametrize("which", ["daily_sales", "hostile", "nothing"])
def test_it_is_well_formed_and_every_link_leads_somewhere(
    which: str, request: pytest.FixtureRequest
) -> None:
    found = read([] if which == "nothing" else request.getfixturevalue(which))
    assert (found.wrongly_nested, found.open) == ([], [])
    ids = Counter(found.attributes("id"))
    assert max(ids.values()) == 1
    targets = {link.removeprefix("#") for link in found.attributes("href") if link.startswith("#")}
    targets.update(key for keys in found.attributes("data-from") for key in keys.split())
    assert {target for target in targets if not target.startswith("j")} <= ids.keys()


def test_it_needs_nothing_else_and_runs_nothing_else(daily_sales: list[Proposal]) -> None:
    found = read(daily_sales)
    assert not [
        tag
        for tag, _ in found.elements
        if tag in ("link", "img", "iframe", "object", "embed", "base")
    ]
    assert found.attributes("src") == []
    (script,) = found.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [value for value in found.attributes("content") if "default-src" in value]
    (styles,) = re.findall(r"<style>(.*?)</style>", render_page(Graph.of(daily_sales)), re.DOTALL)
    style = base64.b64encode(hashlib.sha256(styles.encode()).digest()).decode()
    allowed = f"style-src 'sha256-{style}'; script-src 'sha256-{digest}'"
    assert policy == f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    text = render_page(Graph.of(daily_sales))
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text


def failed_row(proposals: list[Proposal]) -> str:
    (row,) = re.findall(r'<li id="failed">.*?</li>', render_page(Graph.of(proposals)))
    return str(row)


def test_a_failure_before_a_successful_retry_has_a_link(daily_sales: list[Proposal]) -> None:
    assert "01a1fd23-34f9" in failed_row(daily_sales)


def test_a_failed_dag_run_leads_to_what_made_it_fail(daily_sales: list[Proposal]) -> None:
    ends = {DAG_RUN: {}, "urn:li:dataProcessInstance:revenue": {"attempt": 1}, LAST_APPLICATION: {}}
    proposals = [
        *daily_sales,
        *(event(urn, 92, "FAILURE", lasted=1, **more) for urn, more in ends.items()),
    ]
    assert "4 failed</a>" in render_page(Graph.of(proposals))
    assert LAST_APPLICATION.split(":")[-1] in failed_row(proposals)


def test_what_acts_on_every_column_is_said_once() -> None:
    one, made = dataset("one"), dataset("made")
    both = [(f"{made}#{name}", [f"{one}#{name}"], "DIRECT:IDENTITY") for name in "xy"]
    filters = [(f"{made}#{name}", [f"{one}#kept"], "INDIRECT:FILTER") for name in "xy"]
    text = read([lineage("job", [one], [made], [*both, *filters])]).text
    assert text.count("indirect filter") == 1
    assert "(every column) one.kept indirect filter" in text


def test_hostile_names_are_text(hostile: list[Proposal], daily_sales: list[Proposal]) -> None:
    found, usual = read(hostile), read(daily_sales)
    assert {tag for tag, _ in found.elements} <= {tag for tag, _ in usual.elements} | {"wbr"}
    names = {name for _, attributes in found.elements for name in attributes}
    assert not {name for name in names if name.startswith("on")}
    assert len(found.scripts) == 1
    assert HOSTILE[0] in found.texts
    assert "{{ 7 * 7 }}{% endif %}{# ]]>" in found.texts
    assert not STEERING & set(render_page(Graph.of(hostile)))


def test_words_of_a_server_are_text() -> None:
    name = "".join(HOSTILE)
    row = AttemptRow(
        (name,), (name,), (name,), (name,), 0, "task?a=%22&b=1", "proposals?a=1", is_problem=True
    )
    attempts = Attempts(
        "Attempts",
        ["attempt", "lineage", "proposals", "when"],
        [row],
        [("Deliver now", "deliver?a=1", "Delivering …")],
        "token",
        more=name,
    )
    for graph in (None, Graph.of([])):
        page = render_page(graph, frame=Frame(name, attempts, empty=name))
        found = Reader(page)
        assert not [
            (tag, attributes)
            for tag, attributes in found.elements
            if tag == "img" or "onerror" in attributes
        ]
        assert (found.wrongly_nested, found.open, len(found.scripts)) == ([], [], 1)
        assert not STEERING & set(page)


def test_only_web_pages_are_linked(hostile: list[Proposal]) -> None:
    run = {"name": "r", "externalUrl": "https://airflow.example/dags/x?a=1&b=2"}
    good = Proposal(
        "dataProcessInstance", "urn:li:dataProcessInstance:r", "dataProcessInstanceProperties", run
    )
    hidden = [
        Proposal(
            "dataProcessInstance",
            f"{good.entity_urn}{number}",
            good.aspect_name,
            {**run, "externalUrl": url},
        )
        for number, url in enumerate(
            ["https://airflow.example/\u202emoc.elpmaxe", "https://airflow.example/\x00"]
        )
    ]
    outside = [
        link
        for link in read([*hostile, good, *hidden]).attributes("href")
        if not link.startswith("#")
    ]
    assert outside == ["https://airflow.example/dags/x?a=1&b=2"]


@cases("visualization")
def test_the_page_of_a_driver_is_linked_while_it_lives(url: str, ended: bool, linked: bool) -> None:
    run = "urn:li:dataProcessInstance:app"
    properties = Proposal(
        "dataProcessInstance", run, "dataProcessInstanceProperties", {"externalUrl": url}
    )
    proposals = [*application_run(run, "build"), properties, event(run, 1)]
    links = read([*proposals, *([event(run, 2, "SUCCESS", lasted=1)] if ended else [])]).attributes(
        "href"
    )
    assert (url in links) is linked


def test_the_columns_of_a_table_are_counted_only_if_all_are_known() -> None:
    raw, orders = dataset("raw"), dataset("orders")
    pairs = [(f"{orders}#{name}", [f"{raw}#{name}"], "DIRECT:IDENTITY") for name in ("id", "total")]
    schema = {
        "fields": [{"fieldPath": name, "nativeDataType": "int"} for name in ("id", "total", "note")]
    }
    text = read(
        [
            lineage("job", [raw], [orders], pairs),
            Proposal("dataset", orders, "schemaMetadata", schema),
        ]
    ).text
    assert "raw 2 of its columns take part · read by job" in text
    assert "orders 3 columns · written by job" in text


def test_skipped_proposals_are_reported() -> None:
    text = read([Proposal("dataJob", "urn:li:dataJob:x", "dataJobInputOutput", "<torn>")]).text
    assert "1 problem" in text
    assert "dataJobInputOutput of urn:li:dataJob:x skipped: Expected `object`, got `str`" in text


@cases("visualization")
def test_only_long_names_wrap_and_only_behind_their_joints(name: str, html: str) -> None:
    assert _breakable(name) == html


@pytest.mark.parametrize(("most", "said"), [(3, "a, b, c"), (2, "a, b and 1 more")])
def test_many_names_are_folded(most: int, said: str) -> None:
    assert _first_of(["a", "b", "c"], most) == said


# -- each view of the same DAG run, as a whole, checked against sales_of_a_day by hand


PICTURES = Path(__file__).parents[1] / "data" / "pictures"


def words(proposals: list[Proposal]) -> str:
    """Return the words of the page, a section a line."""
    text = Reader(visualization.render_page(visualization.Graph.of(proposals))).text
    for heading in ("Runs times", "Lineage Choose", "Tables and"):
        text = text.replace(f" {heading}", f"\n{heading}")
    return f"{text}\n"


VIEWS: dict[str, Callable[[list[Proposal]], str]] = {
    "terminal.txt": lambda proposals: shown(proposals, 130),
    "narrow.txt": lambda proposals: shown(proposals, 66),
    "page.txt": words,
    "lineage.mmd": lambda proposals: visualization.render_mermaid(
        visualization.Network.of(visualization.Graph.of(proposals))
    ),
    "lineage.json": lambda proposals: (
        json.dumps(visualization.render_json(visualization.Graph.of(proposals)), indent=2) + "\n"
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_a_dag_run(daily_sales: list[Proposal], name: str) -> None:
    lines = [line.rstrip() for line in VIEWS[name](daily_sales).splitlines()]
    assert lines == (PICTURES / name).read_text(encoding="utf-8").splitlines()

"""SVG, Mermaid and JSON."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from airflow_provider_spark_datahub import visualization
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization.layout import Layout
from airflow_provider_spark_datahub.visualization.network import Box, Network
from tests.visualization.conftest import HOSTILE

NAMESPACE = "{http://www.w3.org/2000/svg}"


def drawn(proposals: list[Proposal]) -> ET.Element:
    return ET.fromstring(
        visualization.render_svg(visualization.Network.of(visualization.Graph.of(proposals)))
    )


def texts(root: ET.Element, style: str) -> list[str]:
    return [
        "".join(text.itertext())
        for text in root.iter(f"{NAMESPACE}text")
        if text.get("class") == style
    ]


def test_each_box_is_drawn_inside_the_sheet_with_its_words(daily_sales: list[Proposal]) -> None:
    root = drawn(daily_sales)
    datasets = "customers.csv orders.csv sales.daily_revenue sales.orders sales.rates sales.rejects"
    assert set(texts(root, "title")) == {*datasets.split(), "build_orders", "revenue"}
    assert len(texts(root, "title")) == 8
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for rect in root.iter(f"{NAMESPACE}rect"):
        assert float(rect.get("x", 0)) + float(rect.attrib["width"]) <= width
        assert float(rect.get("y", 0)) + float(rect.attrib["height"]) <= height


def test_it_says_what_it_is_to_those_who_cannot_see(daily_sales: list[Proposal]) -> None:
    root = drawn(daily_sales)
    assert (root.get("role"), root.get("aria-label")) == ("img", "Lineage of 2 jobs and 6 datasets")


def test_hostile_names_are_text(hostile: list[Proposal]) -> None:
    root = drawn(hostile)
    tags = {element.tag.removeprefix(NAMESPACE) for element in root.iter()}
    assert tags <= {"svg", "title", "style", "rect", "marker", "path", "g", "text", "tspan"}
    assert not [
        name
        for element in root.iter()
        for name in element.attrib
        if name.startswith("on") or "href" in name
    ]
    assert "<script>alert(1)</script>" in texts(root, "title")


def test_it_needs_nothing_else(daily_sales: list[Proposal]) -> None:
    text = visualization.render_svg(visualization.Network.of(visualization.Graph.of(daily_sales)))
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    assert re.findall(r"url\(([^)]*)\)", text) == ["#head"] * 7
    assert "@import" not in text


def test_nothing_is_drawn_of_nothing() -> None:
    assert texts(drawn([]), "title") == []


def test_columns_and_their_lines(daily_sales: list[Proposal]) -> None:
    plain = drawn(daily_sales)
    assert not texts(plain, "column")
    network = visualization.Network.of(visualization.Graph.of(daily_sales), unfolded=True)
    root = ET.fromstring(visualization.render_svg(network))
    columns = [column for box in network.datasets for column in box.columns]
    names = [column.name or "(the table as a whole)" for column in columns]
    assert sorted(texts(root, "column")) == sorted(names)
    values = {
        (source.column, column.key)
        for column in columns
        for source in column.sources
        if not source.label.startswith("indirect")
    }
    lines = [
        path.attrib["d"]
        for path in root.iter(f"{NAMESPACE}path")
        if path.get("class") == "column-edge"
    ]
    assert len(lines) == len(set(lines)) == len(values) > 0
    # A line begins and ends in the middle of the rows of its columns: the texts there are 4 px
    # lower.
    rows = {
        float(text.attrib["y"]) - 4
        for text in root.iter(f"{NAMESPACE}text")
        if text.get("class") == "column"
    }
    for line in lines:
        points = [
            tuple(map(float, point.split(","))) for point in re.findall(r"-?[\d.]+,-?[\d.]+", line)
        ]
        assert {points[0][1], points[-1][1]} <= rows
    bottom = float(root.attrib["height"])
    assert all(row < bottom for row in rows)


LINE = re.compile(
    r'flowchart LR|  [dj]\d+(\["[^"]*"\]|\(\["[^"]*"\]\))|  [dj]\d+ --> [dj]\d+|  classDef [^"]*|  class [j\d,]+ job'
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_never_syntax_markup_or_link(name: str) -> None:
    box = Box("j1", "urn:li:dataJob:x", name.replace("\n", ""), "", name)
    text = visualization.render_mermaid(Network({"j1": box}, (), Layout({}, {}, 0, 0), {}))
    assert re.search(r'j1\(\["<b>(?:[^\W]|[ ._/:=@+,-]|#\d+;)*</b>"\]\)\n', text)


def test_hostile_names_leave_every_line_in_its_shape(hostile: list[Proposal]) -> None:
    text = visualization.render_mermaid(visualization.Network.of(visualization.Graph.of(hostile)))
    assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []


def test_everything_is_json(hostile: list[Proposal]) -> None:
    found = visualization.render_json(visualization.Graph.of(hostile))
    assert json.loads(json.dumps(found)) == found
    assert len(found["problems"]) == len(HOSTILE)

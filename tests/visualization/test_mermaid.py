"""The lineage as Mermaid text."""

from __future__ import annotations

import re

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import build_graph, build_network, render_mermaid
from airflow_provider_spark_datahub.visualization.layout import Layout
from airflow_provider_spark_datahub.visualization.network import Box, Network
from tests.visualization.conftest import HOSTILE

LINE = re.compile(
    r'flowchart LR|  [dj]\d+(\["[^"]*"\]|\(\["[^"]*"\]\))|  [dj]\d+ --> [dj]\d+|  classDef [^"]*|  class [j\d,]+ job'
)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_never_syntax_markup_or_link(name: str) -> None:
    box = Box("j1", "urn:li:dataJob:x", name.replace("\n", ""), "", name)
    text = render_mermaid(Network({"j1": box}, (), Layout({}, {}, 0, 0), {}))
    assert re.search(r'j1\(\["<b>(?:[^\W]|[ ._/:=@+,-]|#\d+;)*</b>"\]\)\n', text)


def test_hostile_names_leave_every_line_in_its_shape(hostile: list[Proposal]) -> None:
    text = render_mermaid(build_network(build_graph(hostile)))
    assert [line for line in text.splitlines() if not LINE.fullmatch(line)] == []

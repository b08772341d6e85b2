"""Each view of the same DAG run, as a whole: ``tests/data/pictures``, checked against ``sales_of_a_day`` by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_spark_datahub import visualization
from airflow_provider_spark_datahub.conversion import Proposal
from tests.visualization.conftest import shown
from tests.visualization.test_page import Reader

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

from __future__ import annotations

import io
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.visualization.graph import build_graph
from airflow_provider_spark_datahub.visualization.terminal import _SHOWN_PROBLEMS, render_terminal
from tests.cases import cases

RUN = "urn:li:dataProcessInstance:r"
HOSTILE = "evil\x1b]0;title\x07\x1b[2J\nname [bold red]x[/] :boom: \u202e"


def shown(proposals: list[Proposal], width: int = 100, *, terminal: bool = True, columns: bool = True) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    with console.capture() as capture:
        render_terminal(build_graph(proposals), console, columns=columns)
    return capture.get()


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return places[0] >= 0 and all(place < following for place, following in pairwise(places))


def test_every_attempt_has_its_own_line_with_its_application_below(daily_sales: list[Proposal]) -> None:
    lines = [re.sub(r"\s+", " ", line).strip() for line in shown(daily_sales, 110).split("Lineage")[0].splitlines()]
    assert lines[1:11] == [
        "DAG run daily_sales scheduled__2026-11-20T00:00:00+00:00 SUCCESS 1 min 30 s 2026-11-20 00:00:01",
        "├─ task build_orders",
        "│ ├─ try 1 UP_FOR_RETRY 12.3 s 2026-11-20 00:00:02",
        "│ │ ╰─ Spark build_orders 01a1fd23-34f9 FAILURE 9.0 s 2026-11-20 00:00:05",
        "│ ╰─ try 2 SUCCESS 35.0 s 2026-11-20 00:00:20",
        "│ ╰─ Spark build_orders 01a1fd24-77de SUCCESS 31.0 s 2026-11-20 00:00:23",
        "╰─ task revenue ← build_orders",
        "╰─ try 1 SUCCESS 30.0 s 2026-11-20 00:01:00",
        "╰─ Spark revenue 01a1fd25-d000 SUCCESS 26.0 s 2026-11-20 00:01:03",
        "",
    ]


def test_the_jobs_are_one_flow_from_left_to_right(daily_sales: list[Proposal]) -> None:
    text = shown(daily_sales, 130)
    [flow] = [line for line in text.splitlines() if "│ revenue │" in line]
    assert in_order(flow, "build_orders", "hive sales.orders", "▶│ revenue │", "▶ hive sales.daily_revenue")
    assert "s3 shop-raw/2026/orders.csv ────┬─▶│ build_orders │" in text
    assert "(again)" not in text


def test_the_table_names_each_output_column_with_its_inputs(daily_sales: list[Proposal]) -> None:
    table = shown(daily_sales).split("Columns")[1]
    rows = [line.split() for line in table.splitlines() if line.strip()]
    assert rows[1:] == [
        ["hive", "sales.orders"],
        ["order_id", "orders.csv.order_id", "identity"],
        ["name", "customers.csv.name", "transformation"],
        ["hive", "sales.daily_revenue"],
        ["revenue", "sales.orders.amount", "aggregation"],
        ["sales.rates.rate"],
    ]
    assert "Columns" not in shown(daily_sales, columns=False)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("terminal", [True, False])
def test_all_that_matters_is_there_at_every_width(daily_sales: list[Proposal], width: int, terminal: bool) -> None:
    text = shown(daily_sales, width, terminal=terminal)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    for part in (
        "scheduled__2026-11-20T00:00:00+00:00",
        "01a1fd24-77de",
        "UP_FOR_RETRY",
        "12.3 s",
        "00:00:02",
        "s3 shop-raw/2026/orders.csv",
        "hive sales.daily_revenue",
        "sales.rates.rate",
    ):
        assert part in text


def test_a_file_gets_plain_ascii(daily_sales: list[Proposal]) -> None:
    text = shown(daily_sales, terminal=False)
    assert text.isascii()
    assert "task revenue  <- build_orders" in text
    assert ">| revenue |" in text


def test_a_terminal_that_is_not_utf_8_gets_what_it_can_show() -> None:
    raw = io.BytesIO()
    properties = {"name": "größe 日本", "created": {"time": 0}}
    with io.TextIOWrapper(raw, encoding="latin-1") as file:
        console = Console(file=file, width=80, force_terminal=True, color_system=None)
        render_terminal(
            build_graph([Proposal("dataProcessInstance", RUN, "dataProcessInstanceProperties", properties)]), console
        )
        file.flush()
        assert raw.getvalue().decode("latin-1").splitlines()[1] == r"run größe \u65e5\u672c"


def hostile_proposals() -> list[Proposal]:
    dataset = f"urn:li:dataset:(urn:li:dataPlatform:s3,{HOSTILE},PROD)"
    job = f"urn:li:dataJob:(urn:li:dataFlow:(spark,{HOSTILE},default),{HOSTILE})"
    column = f"urn:li:schemaField:({dataset},{HOSTILE})"
    lineage = {"upstreams": [column], "downstreams": [column], "transformOperation": HOSTILE}
    edge = [{"destinationUrn": dataset}]
    aspect = {"inputDatasetEdges": edge, "outputDatasetEdges": edge, "fineGrainedLineages": [lineage]}
    relationships = {"parentTemplate": job, "upstreamInstances": [f"urn:li:dataProcessInstance:{HOSTILE}"]}
    event = {"timestampMillis": 10**30, "status": "COMPLETE", "result": {"type": HOSTILE}}
    return [
        Proposal("dataJob", job, "dataJobInputOutput", aspect),
        Proposal("dataProcessInstance", RUN, "dataProcessInstanceProperties", {"name": HOSTILE}),
        Proposal("dataProcessInstance", RUN, "dataProcessInstanceRelationships", relationships),
        Proposal("dataProcessInstance", RUN, "dataProcessInstanceRunEvent", event),
        Proposal("dataProcessInstance", RUN, "dataProcessInstanceRunEvent", {"status": HOSTILE}),
        Proposal("dataset", dataset, HOSTILE, {}),
    ]


@pytest.mark.parametrize("width", [60, 100, 160])
def test_hostile_text_cannot_steer_the_terminal(width: int) -> None:
    text = shown(hostile_proposals(), width)
    assert not set(text) & {"\x1b", "\x07", "\r", "\u202e"}
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "[bold red]" in text
    assert ":boom:" in text


@cases("visualization")
def test_the_reason_is_shown_if_there_is_nothing_to_show(proposals: list[list[Any]], reason: str) -> None:
    assert shown([Proposal(*each) for each in proposals]).splitlines()[0] == f"Nothing to show: {reason}"


def test_what_was_left_out_is_reported(daily_sales: list[Proposal]) -> None:
    broken = Proposal("dataProcessInstance", RUN, "dataProcessInstanceRunEvent", 1)
    status = Proposal("dataset", "urn:li:dataset:x", "status", {})
    text = shown([*daily_sales, *[broken] * (_SHOWN_PROBLEMS + 2), status], 160)
    assert text.count(f"! dataProcessInstanceRunEvent of {RUN} skipped: ") == _SHOWN_PROBLEMS
    assert "! and 2 more like these" in text
    assert f"1 of {len(daily_sales) + _SHOWN_PROBLEMS + 3} proposals with other aspects: status 1" in text


def test_a_run_shows_its_datasets_its_map_index_and_an_upstream_run_that_is_not_there() -> None:
    properties = {"name": "x", "customProperties": {"map_index": "3"}}
    template = "urn:li:dataJob:(urn:li:dataFlow:(airflow,dag,prod),load)"
    relationships = {"parentTemplate": template, "upstreamInstances": ["urn:li:dataProcessInstance:0123456789"]}
    text = shown(
        [
            Proposal("dataProcessInstance", RUN, "dataProcessInstanceProperties", properties),
            Proposal("dataProcessInstance", RUN, "dataProcessInstanceRelationships", relationships),
            Proposal("dataProcessInstance", RUN, "dataProcessInstanceInput", {"inputs": ["urn:li:dataset:x"]}),
        ]
    )
    assert "task load[3]  1 in, 0 out  ← 01234567…" in text


def test_many_upstream_runs_are_folded() -> None:
    upstreams = [f"urn:li:dataProcessInstance:{number:08}x" for number in range(9)]
    relationships = {"upstreamInstances": upstreams}
    text = shown([Proposal("dataProcessInstance", RUN, "dataProcessInstanceRelationships", relationships)], 160)
    assert "00000005…, … 3 more" in text


def test_rich_is_imported_only_to_draw_in_the_terminal() -> None:
    imported = "from airflow_provider_spark_datahub.visualization import render_json, render_svg"
    code = f"import sys; {imported}; print('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import Graph, render_terminal
from airflow_provider_spark_datahub.visualization.terminal import _MOST_PROBLEMS
from tests.cases import cases
from tests.cli.commands import run_apart
from tests.visualization.conftest import dataset, event, job_of_writes, lineage, shown

RUN = "urn:li:dataProcessInstance:r"


def test_without_columns(daily_sales: list[Proposal]) -> None:
    assert "Columns" not in shown(daily_sales, columns=False)


def test_runs_of_several_days_have_dates(daily_sales: list[Proposal]) -> None:
    another_day = event("urn:li:dataProcessInstance:next", 86_400)
    lines = shown([*daily_sales, another_day]).splitlines()
    assert lines[0] == "Runs  times in UTC"
    assert [line[-19:] for line in lines if "RUNNING" in line] == ["2026-11-21 00:00:00"]


def lineage_lines(jobs: dict[str, tuple[str, str]]) -> list[str]:
    """Return the lines of the section for jobs with the tables that they read and write."""
    proposals = [
        lineage(job, [*map(dataset, reads.split())], [*map(dataset, writes.split())], [])
        for job, (reads, writes) in jobs.items()
    ]
    return [line.rstrip() for line in shown(proposals, 60).splitlines()[2:]]


def test_a_job_lists_what_it_reads_and_writes_without_breaking_a_name() -> None:
    name = f"a_table_with_a_long_name_{'x' * 60}"
    assert lineage_lines(
        {"build": (f"{name} b", name), "check": (name, ""), "seed": ("", "b")}
    ) == [
        "seed",
        "  writes  hive b",
        "build",
        f"  reads   hive {name}",
        "          hive b",
        f"  writes  hive {name}",
        "check",
        f"  reads   hive {name}",
    ]


def test_a_job_follows_those_that_write_its_inputs() -> None:
    jobs = {"third": ("b", "c"), "second": ("a", "b"), "first": ("", "a"), "append": ("z", "z")}
    names = [line for line in lineage_lines(jobs) if not line.startswith(" ")]
    assert names == ["first", "append", "second", "third"]
    cycle = {"j1": ("b", "a"), "j2": ("a", "b"), "j0": ("", "b")}
    assert [line for line in lineage_lines(cycle) if not line.startswith(" ")] == ["j0", "j1", "j2"]


def test_each_output_of_a_job_has_what_it_comes_from() -> None:
    raw, codes, silver, gold = map(dataset, ("raw", "codes", "silver", "gold"))
    job = job_of_writes("daily", ([silver, codes], [gold], []), ([raw], [silver], []))
    lines = [line.rstrip() for line in shown(job, 60).splitlines()[2:]]
    assert lines == [
        "daily 1/2",
        "  reads   hive raw",
        "  writes  hive silver",
        "daily 2/2",
        "  reads   hive silver",
        "          hive codes",
        "  writes  hive gold",
    ]


@pytest.mark.parametrize(("count", "shown", "more"), [(12, 12, 0), (13, 12, 1), (19, 12, 7)])
def test_more_than_twelve_datasets_on_a_side_are_counted(count: int, shown: int, more: int) -> None:
    text = "\n".join(
        lineage_lines({"job": (" ".join(f"d{number}" for number in range(count)), "out")})
    )
    assert text.count("hive d") == shown
    assert (f"… {more} more" in text) == bool(more)


def test_a_failed_job_stands_out(daily_sales: list[Proposal]) -> None:
    failed = [*daily_sales, event("urn:li:dataProcessInstance:01a1fd25-d000", 99, "FAILURE")]
    colours = ["\x1b[1;31mrevenue" in coloured(proposals) for proposals in (daily_sales, failed)]
    assert colours == [False, True]


def coloured(proposals: list[Proposal]) -> str:
    console = Console(
        file=io.StringIO(), width=100, force_terminal=True, color_system="standard", no_color=False
    )
    with console.capture() as capture:
        render_terminal(Graph.of(proposals), console)
    return capture.get()


def test_a_terminal_that_is_not_utf_8_gets_what_it_can_show(tmp_path: Path) -> None:
    proposals = tmp_path / "proposals.jsonl"
    properties = {"name": "größe 日本", "created": {"time": 0}}
    proposals.write_text(
        Proposal("dataProcessInstance", RUN, "dataProcessInstanceProperties", properties).to_json()
    )
    done = run_apart("show", proposals, env={"PYTHONIOENCODING": "ascii"})
    assert done.stdout.splitlines()[1].strip() == r"run gr\xf6\xdfe \u65e5\u672c", done.stderr


@pytest.mark.parametrize("width", [60, 100, 160])
def test_hostile_text_cannot_steer_the_terminal(hostile: list[Proposal], width: int) -> None:
    text = shown(hostile, width)
    assert not set(text) & {"\x1b", "\x07", "\r", "\u202e"}
    assert "[bold red]" in text
    assert ":boom:" in text


@cases("visualization")
def test_the_reason_is_shown_if_there_is_nothing_to_show(
    proposals: list[list[Any]], reason: str
) -> None:
    assert (
        shown([Proposal(*each) for each in proposals]).splitlines()[0]
        == f"Nothing to show: {reason}"
    )


def test_what_was_left_out_is_reported(daily_sales: list[Proposal]) -> None:
    broken = Proposal("dataProcessInstance", RUN, "dataProcessInstanceRunEvent", 1)
    status = Proposal("dataset", "urn:li:dataset:x", "status", {})
    text = shown([*daily_sales, *[broken] * (_MOST_PROBLEMS + 2), status], 160)
    assert text.count(f"! dataProcessInstanceRunEvent of {RUN} skipped: ") == _MOST_PROBLEMS
    assert "! and 2 more like these" in text
    assert "status" not in text  # which no view shows


def test_a_run_shows_its_map_index_and_an_upstream_run_that_is_not_there() -> None:
    properties = {"name": "x", "customProperties": {"map_index": "3"}}
    template = "urn:li:dataJob:(urn:li:dataFlow:(airflow,dag,prod),load)"
    relationships = {
        "parentTemplate": template,
        "upstreamInstances": ["urn:li:dataProcessInstance:0123456789"],
    }
    text = shown(
        [
            Proposal("dataProcessInstance", RUN, "dataProcessInstanceProperties", properties),
            Proposal("dataProcessInstance", RUN, "dataProcessInstanceRelationships", relationships),
        ]
    )
    assert "task load[3]  ← 01234567…" in text


def test_a_failed_run_has_its_reason_below_it(daily_sales: list[Proposal]) -> None:
    properties = {
        "name": "x",
        "customProperties": {"errorMessage": "Job aborted: Divide by zero\n\tat java"},
    }
    run = "urn:li:dataProcessInstance:01a1fd23-34f9"
    lines = shown(
        [
            *daily_sales,
            Proposal("dataProcessInstance", run, "dataProcessInstanceProperties", properties),
        ]
    )
    assert "│   │       Job aborted: Divide by zero\n" in lines
    assert "at java" not in lines


def test_many_upstream_runs_are_folded() -> None:
    upstreams = [f"urn:li:dataProcessInstance:{number:08}x" for number in range(9)]
    relationships = {"upstreamInstances": upstreams}
    text = shown(
        [Proposal("dataProcessInstance", RUN, "dataProcessInstanceRelationships", relationships)],
        160,
    )
    assert "00000005…, … 3 more" in text


def test_rich_is_imported_only_to_draw_in_the_terminal() -> None:
    imported = "from airflow_provider_spark_datahub.visualization import render_json, render_svg"
    code = f"import sys; {imported}; print('rich' in sys.modules)"
    assert run_apart(program=code).stdout == "False\n"

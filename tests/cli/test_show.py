"""``spark-datahub show``."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from airflow_provider_spark_datahub.cli.convert import read_sources
from airflow_provider_spark_datahub.conversion import Fingerprint
from airflow_provider_spark_datahub.delivery.outbox import Histories
from tests.cli.commands import JOB, run
from tests.delivery.outboxes import DAG, key, outbox_at, put
from tests.delivery.samples import upsert
from tests.visualization.conftest import dataset, lineage


@pytest.fixture
def proposals(tmp_path: Path) -> Path:
    out = tmp_path / "proposals.jsonl"
    run("convert", JOB, "--exit-code", 0, "-o", out)
    return out


def test_events_show_what_their_proposals_do(proposals: Path) -> None:
    of_events = json.loads(run("show", JOB, "--json").stdout)
    of_proposals = json.loads(run("show", proposals, "--json").stdout)
    assert [job["evidence"][0]["source"] for job in of_events["jobs"]] == ["EVENT"]
    for job in (*of_events["jobs"], *of_proposals["jobs"]):
        job["evidence"] = []
    assert of_events == of_proposals
    assert [job["name"] for job in of_events["jobs"]] == ["a_csv_join_agg"]


def test_a_run_of_a_dag_and_a_whole_outbox(proposals: Path, tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path / "outbox")
    items = read_sources([proposals])[0]
    for run_id, shown in (("old", items), ("new", [])):
        put(outbox, key(run_id=run_id), [*shown, upsert(run_id)])
    Histories(outbox.storage).write(Fingerprint(key(), 1, 2, True), max_age=1e9)
    at = ("--outbox", tmp_path / "outbox", "--json")
    of_run = run("show", "--dag", DAG, "--run", "old", *at)
    assert [job["name"] for job in json.loads(of_run.stdout)["jobs"]] == ["a_csv_join_agg"]
    assert json.loads(run("show", "--dag", DAG, *at).stdout)["jobs"] == []
    assert run("show", "--dag", "another", *at).exit_code == 2
    whole = run("show", tmp_path / "outbox", "--json")
    assert (whole.exit_code, whole.stderr, json.loads(whole.stdout)["jobs"] == []) == (0, "", False)


@pytest.mark.parametrize("suffix", ["html", "svg", "mmd", "json", "txt"])
def test_the_suffix_of_the_output_decides_the_format(
    proposals: Path, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"lineage.{suffix}"
    result = run("show", proposals, "-o", out)
    assert (result.exit_code, result.stdout) == (0, "")
    starts = {
        "html": "<!DOCTYPE html>",
        "svg": "<svg ",
        "mmd": "flowchart LR",
        "json": "{",
        "txt": "Runs",
    }
    assert out.read_text().startswith(starts[suffix])
    assert "a_csv_join_agg" in out.read_text()


def test_the_format_wins_over_the_name(proposals: Path, tmp_path: Path) -> None:
    out = tmp_path / "lineage.html"
    assert run("show", proposals, "--format", "svg", "-o", out).exit_code == 0
    assert ET.parse(out).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_the_rest_is_shown_if_something_cannot_be_read(proposals: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(proposals.read_text() + "no json\n")
    page = tmp_path / "page.html"
    result = run("show", bad, "-o", page)
    count = len(proposals.read_text().splitlines())
    assert (result.exit_code, result.stderr) == (1, f"{bad}, line {count + 1}: not valid JSON\n")
    parser = HTMLParser()
    parser.feed(page.read_text())
    assert f"line {count + 1}: not valid JSON" in page.read_text()


def test_too_many_edges_for_mermaid_are_reported(tmp_path: Path) -> None:
    proposal = lineage("job", [dataset(f"t{number}") for number in range(501)], [], [])
    path = tmp_path / "many.jsonl"
    path.write_text(proposal.to_json())
    result = run("show", path, "--format", "mermaid")
    assert result.exit_code == 0
    assert "501 edges: Mermaid draws 500 at most" in result.stderr


def test_times_in_another_zone(proposals: Path) -> None:
    assert "07:56:31" in run("show", proposals).stdout
    for view in ("terminal", "html"):
        shown = run("show", proposals, "--format", view, "--timezone", "Asia/Kolkata").stdout
        assert "times in Asia/Kolkata" in shown
        assert "13:26:31" in shown
        assert "07:56:31" not in shown

"""``spark-datahub explain``: the chain behind a table or a column, or the rule by which there is
none.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from tests.cases import cases
from tests.cli.commands import run
from tests.conversion.builders import (
    OTHER_QUERY,
    QUERY,
    column,
    column_lineage,
    file,
    query,
    schema,
    whole_application,
)

HARD_JOBS = Path(__file__).parents[1] / "data" / "hard_jobs" / "events"
READ = "INSERT INTO clean SELECT trim(name) AS name FROM raw"
WRITE = "INSERT INTO report SELECT name FROM clean"


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Return the events of an application that makes a report by way of a table of its own."""

    def written(path: str, source: str, kind: str) -> dict[str, Any]:
        fields = {
            "name": [column(source, "day", "INDIRECT:CONDITIONAL"), column(source, "name", kind)]
        }
        return file(
            path,
            schema=schema(("name", "string"), ("day", "date")),
            columnLineage=column_lineage(fields),
        )

    made = whole_application(
        query(run_id=QUERY, second=1, inputs=[file("/lake/raw")], job_facets={"sql": {"query": READ}},
              outputs=[written("/lake/clean", "/lake/raw", "DIRECT:TRANSFORMATION")]),
        query(run_id=OTHER_QUERY, second=2, inputs=[file("/lake/clean")], job_facets={"sql": {"query": WRITE}},
              outputs=[written("/lake/report", "/lake/clean", "DIRECT:IDENTITY")]),
    )  # fmt: skip
    path = tmp_path / "events.ndjson"
    path.write_text("".join(json.dumps(event) + "\n" for event in made))
    return path


def in_order(text: str, *parts: str) -> bool:
    begin = 0
    for part in parts:
        begin = text.find(part, begin)
        if begin < 0:
            raise AssertionError(f"{part!r} is not where it should be in:\n{text}")
        begin += len(part)
    return True


@pytest.mark.parametrize("name", ["report", "lake/report", "file /lake/report", "REPORT"])
def test_a_table_by_way_of_another_one(events: Path, name: str) -> None:
    result = run("explain", events, name)
    assert (result.exit_code, result.stderr) == (0, "")
    assert in_order(result.stdout, "file /lake/report\n", "OpenLineage's events", OTHER_QUERY, WRITE,
                    "from file /lake/clean\n", QUERY, READ, "from file /lake/raw\n")  # fmt: skip
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_column_by_way_of_another_one(events: Path) -> None:
    result = run("explain", events, "report.name")
    assert in_order(result.stdout, "file /lake/report.name\n", "identity", OTHER_QUERY, WRITE,
                    "from file /lake/clean.name\n", "transformation", QUERY, READ,
                    "from file /lake/raw.name", "indirect conditional", "depends on file /lake/raw.day")  # fmt: skip
    nothing = run("explain", events, "report.day")
    assert nothing.exit_code == 0
    assert "section 4.1" in nothing.stdout


def test_a_column_of_a_source_is_called_one(events: Path) -> None:
    shown = run("explain", events, "raw.name")
    assert shown.exit_code == 0
    assert in_order(
        " ".join(shown.stdout.split()),
        "no edge leads to it",
        "it is a column of a source: no job in these files writes",
    )
    assert "constant" not in shown.stdout


def test_json(events: Path) -> None:
    document = json.loads(run("explain", events, "clean", "--json").stdout)
    (step,) = document["steps"]
    assert step["evidence"]["queries"] == [{"run": QUERY, "statement": READ}]
    assert [source["dataset"].split(",")[1] for source in step["sources"]] == ["/lake/raw"]
    assert [reader["evidence"]["queries"][0]["run"] for reader in document["readers"]] == [
        OTHER_QUERY
    ]


def test_what_a_failed_job_read_is_there_though_no_edge_is_sent(tmp_path: Path) -> None:
    started, *_, ended = whole_application()
    read = query("FAIL", inputs=[file("/lake/raw")])
    path = tmp_path / "events.ndjson"
    path.write_text("".join(json.dumps(event) + "\n" for event in (started, read, ended)))
    shown = run("explain", path, "raw", "--exit-code", 1).stdout
    assert in_order(shown, "file /lake/raw\n", "read by spark shop\n")


@cases("cli")
def test_no_edge_has_its_rule(recording: str, name: str, rule: str, words: str) -> None:
    result = run("explain", HARD_JOBS / f"{recording}.ndjson.gz", name)
    assert result.exit_code == 0
    flat = " ".join(result.stdout.split())
    assert rule in flat
    assert words in flat


def test_typing_errors_name_the_nearest(events: Path) -> None:
    for name, hint in (
        ("lake/repart", "lake/report"),
        ("report.nam", "name"),
        ("nothing like it", "clean"),
    ):
        result = run("explain", events, name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert hint in result.stderr
    part = run("explain", events, "/lake/raw/part-1.csv")
    assert part.exit_code == 2
    assert "part of file /lake/raw" in part.stderr


def test_inputs_are_those_of_show(events: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder" / "below"
    folder.mkdir(parents=True)
    (folder / "events.ndjson.gz").write_bytes(gzip.compress(events.read_bytes()))
    (folder / ".part").write_text("not JSON")
    piped = run("explain", "-", "report", stdin=events.read_bytes())
    assert (
        piped.stdout
        == run("explain", tmp_path / "folder", "report").stdout
        == run("explain", events, "report").stdout
    )
    shutil.rmtree(folder)
    assert run("explain", tmp_path / "folder", "report").exit_code == 2

    proposals = tmp_path / "proposals.jsonl"
    for options, words in (
        ((), "do not name the query"),
        (("--set", "capture_evidence=true"), f"{OTHER_QUERY} {WRITE}"),
    ):
        run("convert", events, "-o", proposals, *options)
        shown = run("explain", proposals, "report").stdout
        assert words in " ".join(shown.split())
    run("convert", events, "-o", proposals, "--set", "datasets=schemas")
    assert "only events show why" in " ".join(
        run("explain", proposals, "report.day").stdout.split()
    )


def test_the_page_names_the_queries_and_escapes_them(events: Path, tmp_path: Path) -> None:
    text = events.read_text().replace("trim(name)", "trim(name) <b>")
    events.write_text(text)
    page = tmp_path / "page.html"
    assert run("show", events, "-o", page).exit_code == 0
    html = page.read_text()
    assert in_order(html, "Evidence", "written by", "OpenLineage&#39;s events", QUERY)
    assert "<b>" not in html


def test_a_long_chain_and_a_circle_end(tmp_path: Path) -> None:
    job = "urn:li:dataJob:(urn:li:dataFlow:(spark,a,x),{})"
    name = "urn:li:dataset:(urn:li:dataPlatform:file,/t{},PROD)"
    lines = []
    for number in range(2_000):
        edges = {
            "inputDatasetEdges": [{"destinationUrn": name.format((number + 1) % 2_000)}],
            "outputDatasetEdges": [{"destinationUrn": name.format(number)}],
        }
        lines.append(Proposal("dataJob", job.format(number), "dataJobInputOutput", edges).to_json())
    path = tmp_path / "proposals.jsonl"
    path.write_text("\n".join(lines))
    result = run("explain", path, "t0")
    assert result.exit_code == 0
    assert "(see above)" in result.stdout

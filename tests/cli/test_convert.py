"""The command line: what it writes, what it says, and its exit status."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from airflow_provider_spark_datahub import __version__
from airflow_provider_spark_datahub.conversion.diagnostics import MAX_LISTED
from tests.cases import cases
from tests.cli.commands import JOB, run
from tests.conversion.builders import column, column_lineage, file, query
from tests.oracles.strict import canonical_violations


def aspects(text: str) -> list[str]:
    return [json.loads(line)["aspectName"] for line in text.splitlines()]


def test_version() -> None:
    assert run("--version").output == f"{__version__}\n"


def test_convert_writes_one_proposal_a_line() -> None:
    result = run("convert", JOB, "--exit-code", 0)
    assert result.exit_code == 0
    assert aspects(result.stdout)[:2] == ["dataFlowInfo", "status"]
    assert [problem for line in result.stdout.splitlines() for problem in canonical_violations(json.loads(line))] == []
    assert result.stderr == "23 events, 14 proposals\n"


def test_output_and_standard_output_are_the_same(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert run("convert", JOB, "-o", out).stdout == ""
    assert out.read_text() == run("convert", JOB).stdout
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


@cases("cli")
def test_options(tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("options.yaml").write_text("pipeline_name: nightly\n")
    Path("options.json").write_text('{"pipeline_name": "other"}')
    first = json.loads(run("convert", JOB, *options).stdout.splitlines()[0])
    assert first["entityUrn"] == "urn:li:dataFlow:(spark,nightly,analytics)"


def test_what_is_cut_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGESTION_MAX_SERIALIZED_STRING_LENGTH", "120")
    result = run("convert", JOB)
    assert "column edges left out of column lineage, which would be longer than max_string_length: 25" in result.stderr
    assert not any('fineGrainedLineages":[{' in line for line in result.stdout.splitlines())
    monkeypatch.setenv("INGESTION_MAX_SERIALIZED_STRING_LENGTH", "much")
    assert "INGESTION_MAX_SERIALIZED_STRING_LENGTH is 'much'" in run("convert", JOB).stderr


def test_what_could_not_be_converted_is_reported(tmp_path: Path) -> None:
    # Column edges that do not fit, in one event, three events that are none, one output without a URN.
    columns = column_lineage({f"c{number}": [column("/a", "x")] for number in range(22)})
    too_long = "/" + "x" * 600
    job_event = query(outputs=[file("/z", columnLineage=columns), file(too_long)])
    events = tmp_path / "events.ndjson"
    events.write_text("".join(json.dumps(event) + "\n" for event in ({}, job_event, {}, {})))
    result = run("convert", events, "--set", "max_string_length=5000")
    assert result.exit_code == 1
    assert "column edges left out of column lineage, which would be longer than max_string_length: 5" in result.stderr
    assert f"file {too_long}: " in result.stderr
    assert f"{events}, line 1: not a run event" in result.stderr
    assert " (2 more events like it)\n" in result.stderr
    assert "1 event, " in result.stderr


def test_bad_lines_of_each_file_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    torn, foreign = tmp_path / "torn.ndjson", tmp_path / "foreign.ndjson"
    torn.write_text(JOB.read_text().split("\n")[0] + "\n" + "{torn\n" * (MAX_LISTED + 5))
    foreign.write_text("\n{}\n{}\n")
    result = run("convert", torn, foreign).stderr.splitlines()
    assert sum(line.startswith(f"{torn}, line 2: not valid JSON") for line in result) == 1
    assert f" ({MAX_LISTED + 4} more unusable lines in this file)" in result[0]
    (rejected,) = (line for line in result if line.startswith(str(foreign)))
    assert rejected.startswith(f"{foreign}, line 2: not a run event")
    assert rejected.endswith(" (1 more event like it)")


def test_sinks_of_streaming_queries_from_sparks_event_log(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[1] / "data" / "event_logs"
    (tmp_path / "local-1795257256797").write_bytes((recorded / "streaming-4.3.0.ndjson").read_bytes())
    events = recorded / "streaming-4.3.0.openlineage.ndjson"
    assert "/lake/out/s/paid" not in run("convert", events, "--exit-code", 0).stdout
    result = run("convert", events, "--exit-code", 0, "--event-log", tmp_path)
    assert result.exit_code == 0
    assert "/lake/out/s/paid" in result.stdout


def test_applications_without_the_listener_from_sparks_event_logs_alone(tmp_path: Path) -> None:
    logs = Path(__file__).parents[1] / "data" / "more_jobs" / "logs"
    for number, recording in enumerate(("udf_union-3.5.9", "two_sessions-4.0.5")):
        (tmp_path / f"local-{number}").write_bytes(gzip.decompress((logs / f"{recording}.ndjson.gz").read_bytes()))
    result = run("convert", "--event-log", tmp_path)
    assert result.exit_code == 0
    flows = {json.loads(line)["entityUrn"] for line in result.stdout.splitlines() if "dataFlowInfo" in line}
    assert len(flows) == 3  # the second application had two sessions
    for written in ("/lake/out/union/every", "/lake/out/union/pivot", "/lake/out/two/german_orders"):
        assert written in result.stdout


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    # As root, a file that takes the place of /dev/null breaks the machine.
    master, terminal = os.openpty()
    try:
        device, empty = Path(os.ttyname(terminal)), tmp_path / "empty.ndjson"
        empty.touch()
        assert run("convert", empty, "-o", device).exit_code == 0
        assert device.is_char_device()
    finally:
        os.close(master)
        os.close(terminal)


def test_a_link_is_followed_and_not_replaced(tmp_path: Path) -> None:
    # /dev/stdout is one, if a shell redirects standard output to a file.
    target, link, empty = tmp_path / "target.jsonl", tmp_path / "links" / "link.jsonl", tmp_path / "empty.ndjson"
    link.parent.mkdir()
    link.symlink_to(target)
    target.write_text("old")
    empty.write_text("")
    assert run("convert", empty, "-o", link).exit_code == 0
    assert (link.is_symlink(), target.read_text()) == (True, "")


@pytest.mark.parametrize("to_file", [True, False])
def test_the_summary_as_json(tmp_path: Path, to_file: bool) -> None:
    bad = tmp_path / "bad.ndjson"
    bad.write_text("no json\n")
    options = ["-o", tmp_path / "out.jsonl"] if to_file else []
    result = run("convert", JOB, bad, "--exit-code", 0, "--json", *options)
    summary = json.loads(result.stdout if to_file else result.stderr)
    assert result.exit_code == 1
    assert (summary["events"], summary["proposals"]) == (23, 14)
    assert any("line 1: not valid JSON" in problem for problem in summary["problems"])

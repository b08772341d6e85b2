"""The command line: what it writes, what it says, and its exit status."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import typer
import zstandard

from airflow_provider_spark_datahub import __version__
from airflow_provider_spark_datahub.cli.convert import read_sources
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.conversion.diagnostics import MAX_LISTED
from airflow_provider_spark_datahub.delivery.outbox import Manifest
from airflow_provider_spark_datahub.delivery.outbox.format import StoredObject
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.backfill.results import write_part
from tests.cases import cases
from tests.cli.commands import JOB, run, run_apart
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
    assert [
        problem
        for line in result.stdout.splitlines()
        for problem in canonical_violations(json.loads(line))
    ] == []
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


def test_what_could_not_be_converted_is_reported(tmp_path: Path) -> None:
    # Column edges that do not fit, in one event, three events that are none, one output without a
    # URN.
    columns = column_lineage({f"c{number}": [column("/a", "x")] for number in range(22)})
    too_long = "/" + "x" * 600
    job_event = query(outputs=[file("/z", columnLineage=columns), file(too_long)])
    events = tmp_path / "events.ndjson"
    events.write_text("".join(json.dumps(event) + "\n" for event in ({}, job_event, {}, {})))
    result = run("convert", events, "--set", "max_string_length=5000")
    assert result.exit_code == 1
    assert (
        "column edges left out of column lineage, which would be longer than max_string_length: 5"
        in result.stderr
    )
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
    (tmp_path / "local-1795257256797").write_bytes(
        (recorded / "streaming-4.3.0.ndjson").read_bytes()
    )
    events = recorded / "streaming-4.3.0.openlineage.ndjson"
    assert "/lake/out/s/paid" not in run("convert", events, "--exit-code", 0).stdout
    result = run("convert", events, "--exit-code", 0, "--event-log", tmp_path)
    assert result.exit_code == 0
    assert "/lake/out/s/paid" in result.stdout


def test_applications_without_the_listener_from_sparks_event_logs_alone(tmp_path: Path) -> None:
    logs = Path(__file__).parents[1] / "data" / "more_jobs" / "logs"
    for number, recording in enumerate(("udf_union-3.5.9", "two_sessions-4.0.5")):
        (tmp_path / f"local-{number}").write_bytes(
            gzip.decompress((logs / f"{recording}.ndjson.gz").read_bytes())
        )
    result = run("convert", "--event-log", tmp_path)
    assert result.exit_code == 0
    flows = {
        json.loads(line)["entityUrn"]
        for line in result.stdout.splitlines()
        if "dataFlowInfo" in line
    }
    assert len(flows) == 3  # the second application had two sessions
    for written in (
        "/lake/out/union/every",
        "/lake/out/union/pivot",
        "/lake/out/two/german_orders",
    ):
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
    target, link, empty = (
        tmp_path / "target.jsonl",
        tmp_path / "links" / "link.jsonl",
        tmp_path / "empty.ndjson",
    )
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
    assert (summary["events"], summary["proposals"]) == (23, 16)
    assert any("line 1: not valid JSON" in problem for problem in summary["problems"])


# -- input files of the commands


STATUS = Proposal(
    "dataset", "urn:li:dataset:(urn:li:dataPlatform:file,/a,PROD)", "status", {"removed": False}
)
PATCH = Proposal(
    "dataJob", "urn:li:dataJob:(urn:li:dataFlow:(spark,a,x),a)", "dataJobInputOutput", [], "PATCH"
)
BOTH = [STATUS, PATCH]


def read(*paths: Path) -> tuple[list[Proposal], list[str]]:
    return read_sources(paths)[:2]


def manifest(proposals: int) -> Manifest:
    key = AttemptKey("shop", "manual__1", "build", -1, 1)
    return Manifest(key, "datahub", 1_795_132_800_000, collected=proposals, pending=proposals)


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_both_forms_of_a_file_of_proposals(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines", "".join(f"{proposal.to_json()}\n\n" for proposal in BOTH))
    array = written(tmp_path / "array", "\n" + json.dumps([proposal.to_obj() for proposal in BOTH]))
    assert read(lines) == read(array) == (BOTH, [])


def test_an_entry_of_the_outbox(tmp_path: Path) -> None:
    entry = written(tmp_path / "entry", b"".join(StoredObject.of(manifest(2), BOTH).chunks()))
    assert read(entry) == (BOTH, [])


def test_an_entry_of_the_quarantine(tmp_path: Path) -> None:
    held = b"".join(manifest(0).quarantine_lines([("too long", STATUS), ("unknown", PATCH)]))
    assert read(written(tmp_path / "held", held)) == (BOTH, [])


def test_events_of_several_files_are_converted_together(tmp_path: Path) -> None:
    lines = JOB.read_bytes().splitlines(keepends=True)
    first = written(tmp_path / "first", b"".join(lines[:10]))
    second = written(tmp_path / "second", b"".join(lines[10:]))
    assert read(first, second) == read(JOB)
    assert read(JOB)[1] == []


def test_events_in_an_array_or_over_several_lines(tmp_path: Path) -> None:
    events = [json.loads(line) for line in JOB.read_bytes().splitlines()]
    over_lines = "\n".join(json.dumps(event, indent=2) for event in events)
    for text in (json.dumps(events), json.dumps(events, indent=2), over_lines):
        stored = written(tmp_path / "stored", text)
        assert read(stored) == read(JOB)
        assert run("convert", stored).output == run("convert", JOB).output
    torn = run("convert", written(tmp_path / "torn", over_lines[:-9]))
    last = over_lines.count("\n", 0, over_lines.rindex("\n{")) + 2
    assert f"{tmp_path / 'torn'}, line {last}" in torn.stderr


def test_a_part_of_a_backfill(tmp_path: Path) -> None:
    part = tmp_path / "part-00000.parquet"
    write_part(part, [proposal.to_json() for proposal in BOTH])
    assert read(part)[0] == BOTH


def test_a_part_that_is_cut_off_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = tmp_path / "part-00000.parquet"
    part.write_bytes(b"PAR1")
    with pytest.raises(typer.Exit):
        read(part)
    assert f"{part} cannot be read as a part of a backfill" in capsys.readouterr().err


def test_proposals_and_events_may_be_mixed(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines", STATUS.to_json())
    assert read(JOB, lines)[0] == [STATUS, *read(JOB)[0]]


def test_malformed_lines_are_skipped_and_reported(tmp_path: Path) -> None:
    bad = ["{torn", '{"entityUrn": 1}', "[]" * 2, "3", '"x"', "[" * 100_000]
    path = written(tmp_path / "bad", "\n".join([STATUS.to_json(), *bad, PATCH.to_json()]))
    proposals, problems = read(path)
    assert proposals == BOTH
    assert len(problems) == len(bad)
    assert problems[0] == f"{path}, line 2: not valid JSON"


def test_of_many_problems_the_first_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    _, problems = read(written(tmp_path / "bad", "x\n" * 1000))
    assert problems[-1] == f"{tmp_path / 'bad'}: 980 more like these"
    assert len(problems) == 21


@pytest.mark.slow
def test_compressed_files_are_read_whatever_their_names(tmp_path: Path) -> None:
    events = JOB.read_bytes()
    for number, compressed in enumerate((gzip.compress(events), zstandard.compress(events))):
        stored = written(tmp_path / f"{number}.ndjson", compressed)
        assert read(stored) == read(JOB)
        assert run("convert", stored).stdout == run("convert", JOB).stdout
        assert run("show", "--json", stdin=compressed).stdout == run("show", "--json", JOB).stdout
        torn = written(tmp_path / "torn", compressed[: len(compressed) // 2])
        for command in (["show", torn], ["convert", torn]):
            result = run(*command)
            assert result.exit_code == 1
            assert "is cut off" in result.stderr
            assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["show", "convert"])
def test_a_pipe_needs_no_argument_and_nothing_at_all_is_a_wrong_call(command: str) -> None:
    assert run(command, stdin=JOB.read_bytes()).output == run(command, JOB).output
    done = run_apart(command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Name a file, or pipe one to standard input.\n"

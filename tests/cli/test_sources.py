"""Input files of the commands."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import typer
import zstandard

from airflow_provider_spark_datahub.cli.convert import read_sources
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.outbox import Manifest
from airflow_provider_spark_datahub.delivery.outbox.format import StoredObject
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.backfill.results import write_part
from tests.cli.commands import JOB, run, run_apart

STATUS = Proposal("dataset", "urn:li:dataset:(urn:li:dataPlatform:file,/a,PROD)", "status", {"removed": False})
PATCH = Proposal("dataJob", "urn:li:dataJob:(urn:li:dataFlow:(spark,a,x),a)", "dataJobInputOutput", [], "PATCH")
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


def test_a_part_that_is_cut_off_ends_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize("command", ["show", "convert"])
def test_one_behaviour_of_all_commands(command: str, tmp_path: Path) -> None:
    typo, empty = tmp_path / "evnts.ndjson", written(tmp_path / "empty", "")
    missing = run(command, typo)
    assert missing.exit_code == 2
    assert missing.stderr == f"cannot read {typo}: No such file or directory\n"
    assert run(command, empty).exit_code == 0
    broken = run(command, written(tmp_path / "broken", "{}"))
    assert "KeyError" not in broken.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["show", "convert"])
def test_a_pipe_needs_no_argument_and_nothing_at_all_is_a_wrong_call(command: str) -> None:
    assert run(command, stdin=JOB.read_bytes()).output == run(command, JOB).output
    done = run_apart(command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Name a file, or pipe one to standard input.\n"

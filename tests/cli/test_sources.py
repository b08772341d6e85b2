"""What a person may hand to a command that shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.cli.sources import Sources, read_sources
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.outbox.format import (
    Manifest,
    entry_lines,
    quarantine_lines,
)
from tests.backfill.results import write_part
from tests.cli.commands import run

EVENTS = Path(__file__).parents[1] / "data" / "corpus" / "events"
JOB = EVENTS / "a_csv_join_agg.ndjson"
STATUS = Proposal("dataset", "urn:li:dataset:(urn:li:dataPlatform:file,/a,PROD)", "status", {"removed": False})
PATCH = Proposal("dataJob", "urn:li:dataJob:(urn:li:dataFlow:(spark,a,x),a)", "dataJobInputOutput", [], "PATCH")
BOTH = [STATUS, PATCH]


def read(*paths: Path) -> Sources:
    return read_sources(paths, failed=1)


def manifest(proposals: int) -> Manifest:
    key = AttemptKey("shop", "manual__1", "build", -1, 1)
    return Manifest(key, "datahub", 1_795_132_800_000, collected=proposals, pending=proposals)


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_both_forms_of_a_file_of_proposals(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines", "".join(f"{one.to_json()}\n\n" for one in BOTH))
    array = written(tmp_path / "array", "\n" + json.dumps([one.to_obj() for one in BOTH]))
    assert read(lines) == read(array) == Sources(BOTH, [])


def test_an_entry_of_the_outbox(tmp_path: Path) -> None:
    entry = written(tmp_path / "entry", b"".join(entry_lines(manifest(2), BOTH)))
    assert read(entry) == Sources(BOTH, [])


def test_an_entry_of_the_quarantine(tmp_path: Path) -> None:
    held = b"".join(quarantine_lines(manifest(0), [("too long", STATUS), ("unknown", PATCH)]))
    assert read(written(tmp_path / "held", held)) == Sources(BOTH, [])


def test_events_of_several_files_are_converted_together(tmp_path: Path) -> None:
    lines = JOB.read_bytes().splitlines(keepends=True)
    first = written(tmp_path / "first", b"".join(lines[:10]))
    second = written(tmp_path / "second", b"".join(lines[10:]))
    assert read(first, second) == read(JOB)
    assert read(JOB).problems == []


def test_an_array_of_events(tmp_path: Path) -> None:
    events = [json.loads(line) for line in JOB.read_bytes().splitlines()]
    assert read(written(tmp_path / "array", json.dumps(events))) == read(JOB)


def test_a_part_of_a_backfill(tmp_path: Path) -> None:
    part = tmp_path / "part-00000.parquet"
    write_part(part, [one.to_json() for one in BOTH])
    assert read(part).proposals == BOTH


def test_a_part_that_is_cut_off_ends_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = tmp_path / "part-00000.parquet"
    part.write_bytes(b"PAR1")
    with pytest.raises(typer.Exit):
        read(part)
    assert f"{part} cannot be read as a part of a backfill" in capsys.readouterr().err


def test_proposals_and_events_may_be_mixed(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines", STATUS.to_json())
    assert read(JOB, lines).proposals == [STATUS, *read(JOB).proposals]


def test_what_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    bad = ["{torn", '{"entityUrn": 1}', "[]" * 2, "3", '"x"', "[" * 100_000]
    path = written(tmp_path / "bad", "\n".join([STATUS.to_json(), *bad, PATCH.to_json()]))
    sources = read(path)
    assert sources.proposals == BOTH
    assert len(sources.problems) == len(bad)
    assert sources.problems[0] == f"{path}, line 2: no JSON"


def test_of_many_problems_the_first_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    sources = read(written(tmp_path / "bad", "x\n" * 1000))
    assert sources.problems[-1] == f"{tmp_path / 'bad'}: 980 more like these"
    assert len(sources.problems) == 21


def test_a_file_that_is_missing_ends_the_command(tmp_path: Path) -> None:
    with pytest.raises(typer.Exit) as ended:
        read_sources([tmp_path / "missing"], failed=2)
    assert ended.value.exit_code == 2


@pytest.mark.parametrize("text", [STATUS.to_json().encode(), JOB.read_bytes()])
def test_standard_input(tmp_path: Path, text: bytes) -> None:
    path = written(tmp_path / "file", text)
    assert run("show", "-", "--json", stdin=text).stdout == run("show", path, "--json").stdout

"""The steps of the job give the very bytes that the converter gives in one process."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pyarrow as pa
import pytest

from airflow_provider_spark_datahub.backfill.indexing import EVENTS, PROBLEMS, SCHEMA, _index_lines
from airflow_provider_spark_datahub.backfill.packing import _batches_of
from airflow_provider_spark_datahub.conversion.archive import ArchiveFilter
from tests.backfill.steps import Row, converted, indexed, kept, named, reference
from tests.cases import cases
from tests.conversion.builders import APP, CORPUS, query, settings, whole_application

LINE = json.dumps(query()).encode()


def of_kind(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]


@pytest.mark.slow
def test_the_events_of_an_application_are_one_row() -> None:
    content = b"\n".join(json.dumps(one).encode() for one in whole_application(query()))
    (chunk,) = of_kind(indexed([("f", content)]), EVENTS)
    assert (chunk["group"], chunk["events"], chunk["file"], chunk["offset"]) == (APP, 3, "f", 0)
    assert chunk["until_ms"] - chunk["time_ms"] == 59_000


@cases("backfill")
def test_an_unreadable_line_is_listed_with_its_position_and_reason(line: str, reason: str) -> None:
    rows = indexed([("f", LINE + b"\n\n" + line.encode("latin-1"))])
    (bad,) = of_kind(rows, PROBLEMS)
    assert (bad["file"], bad["offset"]) == ("f", len(LINE) + 2)
    assert reason in bad["reason"]
    assert [row["events"] for row in of_kind(rows, EVENTS)] == [1]


def test_half_of_a_surrogate_pair_does_not_get_further() -> None:
    (chunk,) = of_kind(indexed([("f", LINE[:-1] + b', "x": "\\ud83d"}')]), EVENTS)
    assert chunk["events"] == 1


def test_lines_of_a_part_of_a_large_file_have_offsets_from_its_start() -> None:
    # A part begins with the first line that begins in it, so they may be those of the line before.
    parts = [("f", 0, LINE), ("f", 0, b"bad"), ("f", 0, b""), ("f", 0, LINE), ("f", 5000, b"bad"), ("g", 0, b"bad")]
    schema = pa.schema([("path", pa.string()), ("start", pa.int64()), ("line", pa.binary())])
    rows = named(_index_lines(_batches_of(parts, schema)), SCHEMA)
    assert [(row["file"], row["offset"]) for row in of_kind(rows, PROBLEMS)] == [
        ("f", len(LINE) + 1),
        ("f", 5000),
        ("g", 0),
    ]
    assert sum(row["events"] for row in of_kind(rows, EVENTS)) == 2


OPTIONS = {"datasets": "schemas"}
PATHS = [*sorted((CORPUS / "events").glob("*.ndjson")), CORPUS / "edge" / "events.ndjson"]


def by_entity(rows: Iterable[tuple[str, int, str, str]]) -> dict[str, list[tuple[str, int, str, str]]]:
    found: dict[str, list[tuple[str, int, str, str]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("run_history", [False, True])
@pytest.mark.parametrize("layout", ["one file per job", "one file per event", "parts in any order"])
def test_the_steps_give_what_the_converter_gives(layout: str, run_history: bool) -> None:
    files = [(path.name, path.read_bytes()) for path in PATHS]
    if layout != "one file per job":
        lines = [line for _, content in files for line in content.splitlines(keepends=True)]
        size = 1 if layout == "one file per event" else 13
        random.Random(1).shuffle(lines)
        starts = range(0, len(lines), size)
        files = [(f"{start:05d}", b"".join(lines[start : start + size])) for start in starts]
    wanted = ArchiveFilter(run_history=run_history)
    expected = reference(files, settings(**OPTIONS), wanted)
    rows = converted([files[::3], files[1::3], files[2::3]], settings(**OPTIONS), wanted)
    assert by_entity(
        (row["entity_urn"], row["time_ms"], row["proposal"], row["reason"]) for row in kept(rows, wanted)
    ) == by_entity((one.proposal.entity_urn, one.time_ms, one.proposal.to_json(), one.reason) for one in expected.kept)
    counts = {row["place"]: row["number"] for row in rows if row["kind"] == "count"}
    refused = sum(row["kind"] == "bad" for row in rows)
    assert counts == {"runs": expected.applications, "versions": expected.versions, "quarantined": refused}


@pytest.mark.slow
def test_an_event_that_cannot_be_converted_is_listed_with_its_position() -> None:
    content = b'{"run": {"runId": "r"}, "job": {"name": "x"}, "eventTime": "2026-01-01T00:00:00Z"}\n'
    (row,) = [row for row in converted([[("f", b"\n" + content)]], settings(), ArchiveFilter()) if row["kind"] == "bad"]
    assert (row["place"], row["number"]) == ("f", 1)
    assert "the platform that ran the job is unknown" in row["reason"]

"""Files become chunks by group, links, and problems."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from airflow_provider_spark_datahub.backfill.indexing import EVENTS, PROBLEMS, SCHEMA, _index_lines
from airflow_provider_spark_datahub.backfill.packing import _batches_of
from tests.backfill.steps import Row, indexed, named
from tests.cases import cases
from tests.conversion.builders import APP, query, whole_application

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


def test_a_last_line_without_newline_is_an_event() -> None:
    assert [row["kind"] for row in indexed([("f", LINE)])].count(PROBLEMS) == 0


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

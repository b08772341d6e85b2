"""The steps of the job give the very bytes that the converter gives in one process."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from airflow_provider_spark_datahub.backfill import steps
from airflow_provider_spark_datahub.conversion.archive import ArchiveFilter
from tests.backfill.steps import FILES, Row, converted, kept, mapped, read, reference
from tests.cases import cases
from tests.conversion.builders import APP, CORPUS, query, settings, whole_application

LINE = json.dumps(query()).encode()


def problems(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["reason"] is not None]


def test_an_event_has_its_group_and_each_run_its_links_once() -> None:
    content = b"\n".join(json.dumps(one).encode() for one in [*whole_application(query()), query()])
    rows = read([("f", content)])
    assert {(row["group"], row["file"], row["size"]) for row in rows} == {
        (APP, "f", len(row["text"])) for row in rows
    }
    assert [row["offset"] for row in rows][:2] == [0, rows[0]["size"] + 1]
    assert rows[2]["time_ms"] - rows[0]["time_ms"] == 59_000
    assert [len(row["links"]) > 0 for row in rows] == [True, True, False, False]


def test_a_task_remembers_a_bounded_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_MOST_HEADS", 2)
    content = b"\n".join(json.dumps(query(run_id=run)).encode() for run in "abcabc")
    assert [row["links"][0]["run_id"] for row in read([("f", content)])] == list("abcabc")


@cases("backfill")
def test_an_unreadable_line_is_listed_with_its_position_and_reason(line: str, reason: str) -> None:
    rows = read([("f", LINE + b"\n\n" + line.encode("latin-1"))])
    (problem,) = problems(rows)
    assert (problem["file"], problem["offset"]) == ("f", len(LINE) + 2)
    assert reason in problem["reason"]
    assert len(rows) == 2


def test_a_damaged_file_is_listed_behind_its_readable_lines() -> None:
    rows = read([("f.gz", gzip.compress(LINE + b"\n" + LINE)[:-9]), ("g", LINE)])
    assert [(row["file"], row["reason"]) for row in problems(rows)] == [
        ("f.gz", "the compressed file is cut off")
    ]
    assert rows[-1]["file"] == "g"


def test_half_of_a_surrogate_pair_does_not_get_further() -> None:
    (row,) = read([("f", LINE[:-1] + b', "x": "\\ud83d"}')])
    assert json.loads(row["text"])["x"] == "?"


def test_lines_of_a_part_of_a_large_file_have_offsets_from_its_start() -> None:
    # A part begins with the first line that begins in it, so they may be those of the line before.
    parts = [
        ("f", 0, LINE),
        ("f", 0, b"bad"),
        ("f", 0, b""),
        ("f", 0, LINE),
        ("f", 5000, b"bad"),
        ("g", 0, b"bad"),
    ]
    schema = pa.schema([("path", pa.string()), ("start", pa.int64()), ("line", pa.binary())])
    rows = mapped(parts, schema, steps.read_parts())
    assert [(row["file"], row["offset"]) for row in problems(rows)] == [
        ("f", len(LINE) + 1),
        ("f", 5000),
        ("g", 0),
    ]
    assert [row["offset"] for row in rows if row["text"]] == [0, len(LINE) + 6]


def test_rows_leave_a_step_as_batches_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    # A batch leaves before the next event is read.
    asked: list[str] = []

    def files() -> Iterator[pa.RecordBatch]:
        for name in "abcd":
            asked.append(name)
            yield pa.RecordBatch.from_pylist([{"path": name, "content": LINE}], FILES)

    monkeypatch.setattr(steps, "_BATCH_BYTES", len(LINE))
    batches = steps.read_files()(files())
    assert (next(batches).num_rows, asked) == (1, ["a"])
    assert [batch.num_rows for batch in batches] == [1, 1, 1]


OPTIONS = {"datasets": "schemas"}
PATHS = [*sorted((CORPUS / "events").glob("*.ndjson")), CORPUS / "edge" / "events.ndjson"]


def by_entity(
    rows: Iterable[tuple[str, int, str, str]],
) -> dict[str, list[tuple[str, int, str, str]]]:
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
        (row["entity_urn"], row["time_ms"], row["proposal"], row["reason"])
        for row in kept(rows, wanted)
    ) == by_entity(
        (one.proposal.entity_urn, one.time_ms, one.proposal.to_json(), one.reason)
        for one in expected.kept
    )
    assert sum(row["runs"] or 0 for row in rows) == expected.applications
    assert len([row for row in rows if row["place"] is not None]) == expected.versions


@pytest.mark.slow
def test_an_event_that_cannot_be_converted_is_listed_with_its_position() -> None:
    content = (
        b'{"run": {"runId": "r"}, "job": {"name": "x"}, "eventTime": "2026-01-01T00:00:00Z"}\n'
    )
    (row,) = problems(converted([[("f", b"\n" + content)]], settings(), ArchiveFilter()))
    assert (row["file"], row["offset"]) == ("f", 1)
    assert "the platform that ran the job is unknown" in row["reason"]

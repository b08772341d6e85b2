from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given, strategies as st

from airflow_provider_spark_datahub.capture import CollectedEvents, EventSource, Outcome
from airflow_provider_spark_datahub.capture.event_lines import CollectLimits, decoded_event
from tests.cases import cases

START = b'{"eventType": "START"}'
COMPLETE = b'{"eventType": "COMPLETE"}'


class Stored:
    """A file as an object store would hand it in."""

    def __init__(self, content: bytes, name: str = "s3://bucket/events.ndjson") -> None:
        self.content = content
        self.name = name

    def open(self, mode: str, /) -> IO[Any]:
        assert mode == "rb"
        return io.BytesIO(self.content)

    def __str__(self) -> str:
        return self.name


class Failing(Stored):
    def open(self, mode: str, /) -> IO[Any]:
        class Stream(io.BytesIO):
            def readline(self, size: int | None = -1, /) -> bytes:
                if self.tell():
                    raise OSError(5, "Input/output error")
                return super().readline(size)

        assert mode == "rb"
        return Stream(self.content)


def collect(sources: EventSource | Iterable[EventSource], **options: Any) -> CollectedEvents[dict[str, Any]]:
    return CollectedEvents(sources, decoded_event, **options)


def types_of(collection: CollectedEvents[dict[str, Any]]) -> list[str]:
    return [event["eventType"] for event in collection]


@cases("capture")
def test_each_kind_of_file_has_its_outcome(tmp_path: Path, latin_1: str, events: list[str], outcome: str) -> None:
    path, content = tmp_path / "events.ndjson", latin_1.encode("latin-1")
    path.write_bytes(content)
    collection = collect(path)
    assert types_of(collection) == events
    report = collection.report
    assert (report.outcome.name, report.events, report.bytes_read) == (outcome, len(events), len(content))
    assert report.torn == (1 if outcome == "TORN" else 0)
    assert report.lines == report.events + report.blank + report.torn + report.quarantined_count


def test_events_before_a_read_error_count() -> None:
    collection = collect(Failing(START + b"\n" + COMPLETE))
    assert types_of(collection) == ["START"]
    assert collection.report.outcome is Outcome.UNAVAILABLE
    assert collection.report.detail == "s3://bucket/events.ndjson: Input/output error"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[1]", "not a JSON object but list"),
        (b'"text"', "not a JSON object but str"),
        (b'{"a": NaN}', "it holds NaN"),
        (b'{"a": -Infinity}', "it holds -Infinity"),
        (b'{"a": 1e999}', "beyond the range of a float"),
        (b'{"a": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (b"\x00" * 40, "not valid JSON"),
        (b'{"a": "\x00"}', "Invalid control character"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "nested too deeply"),
        (START + START, "Extra data"),
    ],
)
def test_bad_line_is_quarantined_and_the_rest_is_read(line: bytes, reason: str) -> None:
    collection = collect(Stored(START + b"\n" + line + b"\n" + COMPLETE + b"\n"))
    assert types_of(collection) == ["START", "COMPLETE"]
    [bad] = collection.report.quarantined
    assert (bad.source, bad.line, bad.offset) == ("s3://bucket/events.ndjson", 2, len(START) + 1)
    assert reason in bad.reason
    assert collection.report.outcome is Outcome.COMPLETE


@pytest.mark.parametrize("line", [b'{"a": 1, "a": 2.5}', b'{"a": "\\ud83d\\ude00"}', b'{"a": "\\uD800"}'])
def test_odd_but_usable_lines_can_be_written_again(line: bytes) -> None:
    [event] = collect(Stored(line + b"\n"))
    assert json.loads(json.dumps(event, ensure_ascii=False).encode("utf-8")) == event


def test_quarantine_is_bounded_and_counted() -> None:
    collection = collect(Stored(b"bad\n" * 1000), limits=CollectLimits(max_quarantined=3))
    assert list(collection) == []
    assert [bad.line for bad in collection.report.quarantined] == [1, 2, 3]
    assert collection.report.quarantined_count == 1000


@pytest.mark.parametrize("size", [99, 100, 101, 250])
def test_limit_counts_the_bytes_of_a_line_without_its_newline(size: int) -> None:
    line = b'{"eventType":"%s"}' % (b"x" * (size - 16))
    collection = collect(Stored(line + b"\n" + COMPLETE + b"\n"), limits=CollectLimits(max_event_bytes=100))
    assert types_of(collection)[-1] == "COMPLETE"
    assert collection.report.events == (2 if size <= 100 else 1)
    assert collection.report.quarantined_count == (0 if size <= 100 else 1)
    assert collection.report.bytes_read == size + 1 + len(COMPLETE) + 1


def test_last_line_over_the_limit_needs_no_newline() -> None:
    collection = collect(Stored(START + b"\n" + b"x" * 300), limits=CollectLimits(max_event_bytes=100))
    assert types_of(collection) == ["START"]
    assert collection.report.quarantined[0].reason == "300 bytes long, the limit is 100"


@pytest.mark.slow
def test_line_over_the_limit_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.ndjson"
    with path.open("wb") as file:
        file.write(b'{"a": "')
        for _ in range(64):
            file.write(b"x" * 1024 * 1024)
        file.write(b'"}\n' + COMPLETE + b"\n")
    collection = collect(path, limits=CollectLimits(max_event_bytes=1024 * 1024))
    tracemalloc.start()
    try:
        assert types_of(collection) == ["COMPLETE"]
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()
    [bad] = collection.report.quarantined
    assert bad.reason == f"{7 + 64 * 1024 * 1024 + 3} bytes long, the limit is 1048576"


@pytest.mark.slow
def test_events_stream_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "many.ndjson"
    path.write_bytes((b'{"eventType": "%s"}\n' % (b"x" * 100_000)) * 300)
    tracemalloc.start()
    try:
        assert sum(1 for _ in collect(path)) == 300
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_deadline_ends_the_reading_between_lines() -> None:
    asked: list[int] = []

    def third_time() -> bool:
        asked.append(1)
        return len(asked) > 2

    collection = collect(Stored((START + b"\n") * 10), deadline=third_time)
    assert types_of(collection) == ["START", "START"]
    assert collection.report.outcome is Outcome.TIMED_OUT
    assert collection.report.sentence.endswith("(s3://bucket/events.ndjson, after 2 lines)")


def test_deadline_ends_the_skipping_of_a_huge_line() -> None:
    answers = iter([False, True])
    collection = collect(
        Stored(b"x" * 3 * 1024 * 1024), limits=CollectLimits(max_event_bytes=10), deadline=lambda: next(answers)
    )
    assert list(collection) == []
    assert collection.report.outcome is Outcome.TIMED_OUT


def test_several_files_are_one_collection_and_the_worst_outcome_is_reported() -> None:
    sources = [Stored(START + b"\n", "one"), Stored(START[:5], "two"), Stored(COMPLETE + b"\n", "three")]
    collection = collect(sources)
    assert types_of(collection) == ["START", "COMPLETE"]
    assert (collection.report.outcome, collection.report.detail) == (Outcome.TORN, "two, line 1")


def test_no_files_are_a_missing_file() -> None:
    collection = collect([])
    assert list(collection) == []
    assert collection.report.outcome is Outcome.MISSING


@given(st.binary(max_size=400))
def test_no_content_is_an_exception_and_every_byte_is_counted(content: bytes) -> None:
    collection = collect(Stored(content))
    events = list(collection)
    report = collection.report
    assert report.bytes_read == len(content)
    assert report.lines == len(events) + report.blank + report.torn + report.quarantined_count

"""Reading of events: files as they are, and files that grow while they are read."""

from __future__ import annotations

import io
import json
import shutil
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from airflow_provider_spark_datahub.capture import (
    CollectedEvents,
    EventLog,
    EventSource,
    LogFollower,
    Outcome,
    checked_text,
)
from airflow_provider_spark_datahub.capture.event_lines import FileFollower, decoded_event
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


def collect(
    sources: EventSource | Iterable[EventSource], **options: Any
) -> CollectedEvents[dict[str, Any]]:
    return CollectedEvents(sources, decoded_event, **options)


def types_of(collection: CollectedEvents[dict[str, Any]]) -> list[str]:
    return [event["eventType"] for event in collection]


@cases("capture")
def test_each_kind_of_file_has_its_outcome(
    tmp_path: Path, latin_1: str, events: list[str], outcome: str
) -> None:
    path, content = tmp_path / "events.ndjson", latin_1.encode("latin-1")
    path.write_bytes(content)
    collection = collect(path)
    assert types_of(collection) == events
    report = collection.report
    assert (report.outcome.name, report.events, report.bytes_read) == (
        outcome,
        len(events),
        len(content),
    )
    assert report.torn == (1 if outcome == "TORN" else 0)
    assert report.lines == report.events + report.blank + report.torn + report.quarantined_count


def test_events_before_a_read_error_count() -> None:
    collection = collect(Failing(START + b"\n" + COMPLETE))
    assert types_of(collection) == ["START"]
    assert collection.report.outcome is Outcome.UNAVAILABLE
    assert collection.report.detail == "s3://bucket/events.ndjson: Input/output error"


@cases("capture")
def test_bad_line_is_quarantined_and_the_rest_is_read(
    text: str, times: int, end: str, reason: str
) -> None:
    # The texts are in Latin-1, and may be repeated before their ends.
    line = (text * times + end * times).encode("latin-1").replace(b"START", START)
    collection = collect(Stored(START + b"\n" + line + b"\n" + COMPLETE + b"\n"))
    assert types_of(collection) == ["START", "COMPLETE"]
    [bad] = collection.report.quarantined
    assert (bad.source, bad.line) == ("s3://bucket/events.ndjson", 2)
    assert reason in bad.reason
    assert collection.report.outcome is Outcome.COMPLETE


@pytest.mark.parametrize(
    "line", [b'{"a": 1, "a": 2.5}', b'{"a": "\\ud83d\\ude00"}', b'{"a": "\\uD800"}']
)
def test_odd_but_usable_lines_can_be_written_again(line: bytes) -> None:
    [event] = collect(Stored(line + b"\n"))
    assert json.loads(json.dumps(event, ensure_ascii=False).encode("utf-8")) == event


def test_quarantine_is_bounded_and_counted() -> None:
    collection = collect(Stored(b"bad\n" * 1000))
    assert list(collection) == []
    assert [bad.line for bad in collection.report.quarantined] == list(range(1, 21))
    assert collection.report.quarantined_count == 1000


@pytest.mark.parametrize("size", [99, 100, 101, 250])
def test_limit_counts_the_bytes_of_a_line_without_its_newline(size: int) -> None:
    line = b'{"eventType":"%s"}' % (b"x" * (size - 16))
    collection = collect(Stored(line + b"\n" + COMPLETE + b"\n"), max_event_bytes=100)
    assert types_of(collection)[-1] == "COMPLETE"
    assert collection.report.events == (2 if size <= 100 else 1)
    assert collection.report.quarantined_count == (0 if size <= 100 else 1)
    assert collection.report.bytes_read == size + 1 + len(COMPLETE) + 1


@pytest.mark.slow
def test_line_over_the_limit_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.ndjson"
    with path.open("wb") as file:
        file.write(b'{"a": "')
        for _ in range(64):
            file.write(b"x" * 1024 * 1024)
        file.write(b'"}\n' + COMPLETE + b"\n")
    collection = collect(path, max_event_bytes=1024 * 1024)
    tracemalloc.start()
    try:
        assert types_of(collection) == ["COMPLETE"]
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()
    [bad] = collection.report.quarantined
    assert bad.reason == f"{7 + 64 * 1024 * 1024 + 3} bytes long, the limit is 1048576"


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
        Stored(b"x" * 3 * 1024 * 1024), max_event_bytes=10, deadline=lambda: next(answers)
    )
    assert list(collection) == []
    assert collection.report.outcome is Outcome.TIMED_OUT


def test_several_files_are_one_collection_and_the_worst_outcome_is_reported() -> None:
    sources = [
        Stored(START + b"\n", "one"),
        Stored(START[:5], "two"),
        Stored(COMPLETE + b"\n", "three"),
    ]
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


RECORDED_LOG = Path(__file__).parents[1] / "data" / "event_logs" / "streaming-4.3.0.ndjson"
APPLICATION = "local-1795257256797"
LINES = st.sampled_from(
    [
        START + b"\n",
        COMPLETE + b"\r\n",
        b"\n",
        b" \n",
        b"no JSON\n",
        b'"text"\n',
        b'{"a": "\xc3\xa9"}\n',
        b'{"a"\n',
    ]
)


def never() -> bool:
    return False


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(content)


def new(follower: FileFollower[bytes]) -> list[bytes]:
    return list(follower.new(never))


def rest(follower: FileFollower[bytes]) -> list[bytes]:
    return list(follower.rest(never))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "try1.ndjson"


@pytest.fixture
def follower(path: Path) -> FileFollower[bytes]:
    return FileFollower(path, checked_text)


@pytest.mark.slow
@given(
    lines=st.lists(LINES, max_size=12),
    torn=st.sampled_from([b"", START, START[:-3]]),
    cuts=st.data(),
)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_grows_in_pieces_has_the_events_of_the_whole(
    tmp_path: Path, lines: list[bytes], torn: bytes, cuts: st.DataObject
) -> None:
    content = b"".join(lines) + torn
    at = sorted(cuts.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    path = tmp_path / "growing.ndjson"
    path.unlink(missing_ok=True)
    follower, events = FileFollower(path, checked_text), []
    for begin, end in zip([0, *at], [*at, len(content)], strict=True):
        append(path, content[begin:end])
        events += new(follower)
    events += rest(follower)
    at_once = CollectedEvents(path, checked_text)
    assert events == list(at_once)
    assert follower.report == at_once.report


def test_a_line_is_read_once_it_is_complete(path: Path, follower: FileFollower[bytes]) -> None:
    append(path, START + b"\n" + COMPLETE[:5])
    assert new(follower) == [START]
    assert new(follower) == []
    append(path, COMPLETE[5:])
    assert new(follower) == []
    append(path, b"\n")
    assert new(follower) == [COMPLETE]


def test_a_file_may_appear_later(path: Path, follower: FileFollower[bytes]) -> None:
    assert new(follower) == []
    append(path, START + b"\n")
    assert new(follower) == [START]
    assert rest(follower) == []
    assert follower.report.outcome is Outcome.COMPLETE


def test_a_file_that_never_appears_is_missing(path: Path, follower: FileFollower[bytes]) -> None:
    assert rest(follower) == []
    assert follower.report.outcome is Outcome.MISSING
    assert str(path) in follower.report.sentence


def test_a_file_that_was_cut_is_read_again_and_reported(
    path: Path, follower: FileFollower[bytes]
) -> None:
    append(path, START + b"\n" + START + b"\n")
    assert new(follower) == [START, START]
    path.write_bytes(COMPLETE + b"\n")
    assert new(follower) == [COMPLETE]
    assert rest(follower) == []
    assert follower.report.outcome is Outcome.REPLACED
    assert follower.report.events == 3


def test_another_file_in_its_place_is_read_from_its_beginning(
    path: Path, follower: FileFollower[bytes]
) -> None:
    append(path, START + b"\n")
    assert new(follower) == [START]
    path.rename(path.with_suffix(".1"))
    append(path, COMPLETE + b"\n" + COMPLETE + b"\n")
    assert rest(follower) == [COMPLETE, COMPLETE]
    assert follower.report.outcome is Outcome.REPLACED


def test_a_file_that_disappears_after_it_was_read_is_replaced(
    path: Path, follower: FileFollower[bytes]
) -> None:
    append(path, START + b"\n")
    assert new(follower) == [START]
    path.unlink()
    assert (new(follower), rest(follower)) == ([], [])
    assert follower.report.outcome is Outcome.REPLACED


def test_a_stopped_reader_continues_where_it_stopped(
    path: Path, follower: FileFollower[bytes]
) -> None:
    append(path, START + b"\n" + COMPLETE + b"\n")
    asked = iter([False, True])
    assert list(follower.new(lambda: next(asked))) == [START]
    assert rest(follower) == [COMPLETE]


def test_a_line_without_end_is_not_held_in_memory(path: Path) -> None:
    append(path, START + b"\n" + b"x" * 8_000_000)
    follower = FileFollower(path, checked_text, 100_000)
    tracemalloc.start()
    assert new(follower) == [START]
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    append(path, b"\n" + COMPLETE + b"\n")
    assert new(follower) == [], "only the end passes over a line that is too long"
    assert rest(follower) == [COMPLETE]
    assert follower.report.quarantined_count == 1


# -- Spark's event log


def log_events(follower: LogFollower, ids: set[str] | None = None) -> list[dict[str, Any]]:
    return list(follower.new(ids, never))


def test_a_log_is_followed_until_it_is_closed(tmp_path: Path) -> None:
    content = RECORDED_LOG.read_bytes()
    growing = tmp_path / f"{APPLICATION}.inprogress"
    follower, events = LogFollower(tmp_path), []
    for begin in range(0, len(content), 7001):
        append(growing, content[begin : begin + 7001])
        events += log_events(follower)
    growing.rename(tmp_path / APPLICATION)
    events += log_events(follower)
    assert events == list(EventLog(tmp_path))


def test_a_long_line_of_a_task_is_passed_over_once_its_end_is_there(tmp_path: Path) -> None:
    growing, follower = tmp_path / f"{APPLICATION}.inprogress", LogFollower(tmp_path)
    end = b'{"Event":"SparkListenerApplicationEnd","Timestamp":1}\n'
    append(growing, b'{"Event":"SparkListenerTaskEnd","x":"' + b"x" * 3_000_000)
    assert log_events(follower) == []
    append(growing, b'SparkListenerApplicationEnd"}\n' + end)
    assert log_events(follower) == [{"Event": "SparkListenerApplicationEnd", "Timestamp": 1}]
    append(growing, end)
    assert len(log_events(follower)) == 1


def test_parts_of_a_log_follow_each_other(tmp_path: Path) -> None:
    lines = RECORDED_LOG.read_bytes().splitlines(keepends=True)
    folder = tmp_path / f"eventlog_v2_{APPLICATION}"
    folder.mkdir()
    follower, events = LogFollower(tmp_path), []
    for number, begin in enumerate(range(0, len(lines), 40), start=1):
        (folder / f"events_{number}_{APPLICATION}").write_bytes(b"".join(lines[begin : begin + 40]))
        events += log_events(follower)
    assert len(list(folder.iterdir())) > 2
    assert events == list(EventLog(tmp_path))


def test_logs_of_other_applications_are_not_followed(tmp_path: Path) -> None:
    shutil.copy(RECORDED_LOG, tmp_path / APPLICATION)
    follower = LogFollower(tmp_path)
    assert log_events(follower, {"local-1"}) == []
    assert len(log_events(follower, {APPLICATION})) > 10


@pytest.mark.parametrize("name", [f"{APPLICATION}.zstd.inprogress", f"{APPLICATION}.lz4"])
def test_a_compressed_log_is_not_followed(tmp_path: Path, name: str) -> None:
    shutil.copy(RECORDED_LOG, tmp_path / name)
    assert log_events(LogFollower(tmp_path)) == []


def test_a_missing_folder_of_logs_has_no_events(tmp_path: Path) -> None:
    assert log_events(LogFollower(tmp_path / "later")) == []

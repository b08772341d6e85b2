"""Events that are objects of a store: on fsspec's memory file system, with objects that a real
Spark job wrote.

``tests/data/s3_events`` holds the objects of one job, a CSV file to two Parquet folders, as
OpenLineage's S3 transport wrote them with Spark 4.3.0: the transport was compiled from its sources,
and S3Proxy kept the objects.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.capture import EventObjects, Outcome, checked_text
from airflow_provider_spark_datahub.capture.event_lines import MAX_EVENT_BYTES
from airflow_provider_spark_datahub.capture.event_log import _open_object
from airflow_provider_spark_datahub.capture.event_objects import _ObjectFollower
from airflow_provider_spark_datahub.delivery.outbox import ObjectStorage

RECORDED = Path(__file__).parents[1] / "data" / "s3_events"
NAMES = iter(itertools.count())


def never() -> bool:
    return False


def text(number: int) -> bytes:
    return json.dumps({"n": number}).encode()


class Bucket:
    """A folder of a memory file system. :ivar objects: the place of one attempt's events in it."""

    def __init__(self) -> None:
        memory: Any = import_module("fsspec.implementations.memory")  # has no types
        self.store = ObjectStorage(
            memory.MemoryFileSystem(), f"/events{next(NAMES)}", "s3://events"
        )
        self.opened: list[str] = []
        self.objects = EventObjects.below("s3://events", "dag/try1.ndjson", self.open)

    def open(self, uri: str) -> ObjectStorage:
        self.opened.append(uri)
        return self.store

    def put(self, name: str, content: bytes) -> None:
        self.store.write(f"{self.objects.folder}/{name}", [content])

    def names(self) -> list[str]:
        return [name.partition("/")[2] for name in self.objects.sizes()]


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def follower(bucket: Bucket, max_event_bytes: int = MAX_EVENT_BYTES) -> _ObjectFollower[bytes]:
    return _ObjectFollower(bucket.objects, checked_text, max_event_bytes)


def test_the_events_of_a_real_job_are_read_in_the_order_of_their_times(bucket: Bucket) -> None:
    recorded = sorted(RECORDED.glob("*.json"), key=lambda path: int(path.stem))
    for path in reversed(recorded):
        bucket.put(path.name, path.read_bytes())
    reader = follower(bucket)
    events = list(reader.rest(never))
    assert events == [path.read_bytes().strip() for path in recorded]
    times = [json.loads(event)["eventTime"] for event in events]
    assert times == sorted(times)
    assert (reader.report.outcome, reader.report.events) == (Outcome.COMPLETE, len(recorded))
    assert str(bucket.objects) == "s3://events/dag/try1.events"
    assert bucket.opened == ["s3://events/dag"]


def test_objects_that_hold_no_event_are_quarantined_and_stay(bucket: Bucket) -> None:
    bucket.put("2.json", b'{"n":\n 2}')
    bucket.put("1.json", b'{"n": ')
    bucket.put("3.json", b"x" * 100)
    bucket.put("notes.txt", text(4))
    bucket.put("sub/5.json", text(5))
    reader = follower(bucket, max_event_bytes=50)
    assert list(reader.rest(never)) == [b'{"n":  2}']
    assert {
        line.source.rpartition("try1.events/")[2]: line.reason for line in reader.report.quarantined
    } == {
        "1.json": "not valid JSON: Input data was truncated",
        "3.json": "100 bytes long, the limit is 50",
        "notes.txt": "not read: its name is not <ms>.json, as OpenLineage names an event's object",
        "sub/5.json": "not read: its name is not <ms>.json, as OpenLineage names an event's object",
    }
    bucket.objects.remove()
    assert bucket.names() == ["notes.txt", "sub/5.json"]


def test_events_are_followed_while_they_arrive_in_any_order(bucket: Bucket) -> None:
    reader = follower(bucket)
    assert list(reader.new(never)) == []
    bucket.put("20.json", text(20))
    assert list(reader.new(never)) == [text(20)]
    # Shown before it is complete, and older than the objects that were read.
    bucket.put("10.json", text(10)[:-2])
    assert list(reader.new(never)) == []
    bucket.put("10.json", text(10))
    assert list(reader.rest(never)) == [text(10)]
    assert (reader.report.events, reader.report.quarantined_count) == (2, 0)
    assert bucket.objects.last_ms() == 20


def test_a_store_that_lists_objects_late_is_listed_until_nothing_is_new(bucket: Bucket) -> None:
    bucket.put("1.json", text(1))
    listed = bucket.store.stored
    later = [2, 3]

    def stored(folder: str) -> dict[str, int]:
        found = listed(folder)
        for number in later[:1]:
            bucket.put(f"{number}.json", text(number))
        del later[:1]
        return found

    bucket.store.stored = stored  # type: ignore[method-assign]
    assert list(follower(bucket).rest(never)) == [text(1), text(2), text(3)]


class _Refusing(ObjectStorage):
    answer: Exception = PermissionError("403")

    def read_all(self, names: Any) -> list[bytes | Exception]:
        del names
        return [self.answer]


class _Failing(_Refusing):
    answer = OSError("503")


@pytest.mark.parametrize(
    ("contents", "stop", "outcome", "said"),
    [
        ({}, never, Outcome.MISSING, "s3://events/dag/try1.events"),
        (
            {"1.json": b"no"},
            never,
            Outcome.EMPTY,
            "no line of the events can be used: s3://events/try1.events/1.json",
        ),
        ({"1.json": text(1)}, lambda: True, Outcome.TIMED_OUT, "after 0 objects"),
    ],
)
def test_missing_empty_and_unread_objects_have_their_outcomes(
    bucket: Bucket,
    contents: Mapping[str, bytes],
    stop: Callable[[], bool],
    outcome: Outcome,
    said: str,
) -> None:
    for name, content in contents.items():
        bucket.put(name, content)
    reader = follower(bucket)
    assert list(reader.rest(stop)) == []
    assert reader.report.outcome is outcome
    assert said in reader.report.sentence


@pytest.mark.parametrize(
    ("store", "outcome"), [(_Refusing, Outcome.UNREADABLE), (_Failing, Outcome.UNAVAILABLE)]
)
def test_a_store_that_does_not_answer_is_an_outcome_at_the_end(
    bucket: Bucket, store: type[_Refusing], outcome: Outcome
) -> None:
    bucket.put("1.json", text(1))
    bucket.store.__class__ = store
    reader = follower(bucket)
    assert list(reader.new(never)) == []
    assert list(reader.rest(never)) == []
    assert reader.report.outcome is outcome
    assert reader.report.detail.endswith(f"try1.events/1.json: {store.answer}")

    def refuse(uri: str) -> ObjectStorage:
        raise PermissionError(f"{uri}: no such connection")

    unopened: _ObjectFollower[bytes] = EventObjects("s3://x/dag/try1.events", refuse).follow(
        checked_text
    )
    assert list(unopened.rest(never)) == []
    assert "no such connection" in unopened.report.sentence


def test_many_objects_are_read_in_parts_and_large_ones_by_ranges(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read_all = bucket.store.read_all

    def counted(names: Any) -> list[bytes | Exception]:
        asked.append(len(names))
        return read_all(names)

    bucket.store.read_all = counted  # type: ignore[method-assign]
    for number in range(130):
        bucket.put(f"{number}.json", text(number))
    assert list(follower(bucket).rest(never)) == [text(number) for number in range(130)]
    assert asked == [64, 64, 2]
    monkeypatch.setattr("airflow_provider_spark_datahub.capture.event_log._RANGE_BYTES", 4)
    for content in (b"", b"abc\ndef", b"12345678"):
        bucket.put("log", content)
        assert _open_object(bucket.store, f"{bucket.objects.folder}/log").read() == content

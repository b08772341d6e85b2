"""Packed events, links and versions come out again, all of them and in their order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain

import pytest
from hypothesis import given, settings, strategies as st

from airflow_provider_spark_datahub.backfill import packing
from airflow_provider_spark_datahub.backfill.indexing import SCHEMA
from airflow_provider_spark_datahub.conversion.archive import (
    ArchivedEvent,
    AspectVersion,
    EventHead,
    Link,
    merge_groups,
)
from tests.backfill.steps import columns

EVENTS = st.builds(
    ArchivedEvent, st.integers(-1, 50), st.sampled_from("abc"), st.integers(0, 10**6), st.binary(max_size=9)
)


def chunks_of(events: Iterable[ArchivedEvent], group: str = "g") -> list[packing.Chunk]:
    held = packing.ChunkPacker()
    found = [chunk for event in events for chunk in held.add(group, event)]
    return [*found, *held.rest()]


@pytest.mark.slow
@given(st.lists(EVENTS, min_size=1, max_size=20))
def test_a_chunk_holds_its_events_sorted(events: list[ArchivedEvent]) -> None:
    chunk = packing.Chunk.pack("g", list(events))
    expected = sorted(events)
    assert chunk.unpack() == expected
    assert (chunk.time_ms, chunk.file, chunk.offset) == expected[0][:3]
    assert (chunk.until_ms, chunk.events) == (expected[-1].time_ms, len(events))


@pytest.mark.slow
@given(st.lists(st.lists(EVENTS, min_size=1, max_size=8), max_size=6))
def test_overlapping_chunks_give_their_events_in_order(lists: list[list[ArchivedEvent]]) -> None:
    expected = sorted(event for events in lists for event in events)
    given_chunks = sorted((packing.Chunk.pack("g", events) for events in lists), key=lambda chunk: chunk[1:4])
    assert list(packing.Chunk.merged(given_chunks)) == expected


def test_a_group_larger_than_a_chunk_becomes_several() -> None:
    events = [ArchivedEvent(number, "f", number, bytes(10_000)) for number in range(100)]
    found = chunks_of(events)
    assert [chunk.events for chunk in found] == [27, 27, 27, 19]
    assert list(packing.Chunk.merged(found)) == events


def test_all_open_chunks_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_HELD_CHUNK_BYTES", 1000)
    held = packing.ChunkPacker()
    found = [
        chunk
        for number in range(50)
        for chunk in held.add(f"g{number}", ArchivedEvent(number, "f", number, bytes(100)))
    ]
    assert [chunk.group for chunk in found] == [f"g{number}" for number in range(41)]
    assert len(list(held.rest())) == 9


def test_of_many_chunks_only_those_that_overlap_are_unpacked() -> None:
    # A group is a stream: its first event is there before its last chunk is asked for.
    asked: list[int] = []

    def given_chunks() -> Iterable[packing.Chunk]:
        for number in range(100):
            asked.append(number)
            yield packing.Chunk.pack("g", [ArchivedEvent(number, "f", number, b"x")])

    stream = iter(packing.Chunk.merged(given_chunks()))
    assert next(stream).time_ms == 0
    assert asked == [0, 1]


def test_many_events_of_many_groups_in_any_order() -> None:
    events = [ArchivedEvent(number, "f", number, b"x" * (number % 700)) for number in range(5000)]
    held = packing.ChunkPacker()
    shuffled = random.Random(3).sample(events, len(events))
    found = [chunk for event in shuffled for chunk in held.add(f"g{event.time_ms % 7}", event)]
    found += held.rest()
    for group in range(7):
        of_group = sorted((chunk for chunk in found if chunk.group == f"g{group}"), key=lambda chunk: chunk[1:4])
        assert list(packing.Chunk.merged(of_group)) == [event for event in events if event.time_ms % 7 == group]


RUN = st.sampled_from(["a", "b", "c", "d", "e", "f"])
HEAD = st.builds(
    EventHead,
    st.integers(0, 9),
    RUN,
    st.sampled_from(["APPLICATION", "SQL_JOB", "RDD_JOB", "TASK"]),
    RUN | st.just(""),
    st.sampled_from(["", "", "", "S1"]),
    st.booleans(),
)


def links_of(heads: Iterable[EventHead]) -> list[packing.PackedLinks]:
    links = packing.LinkPacker()
    return [*chain.from_iterable(map(links.add, heads)), *links.rest()]


def bucket(run_id: str) -> int:
    (row,) = links_of([EventHead(0, run_id, "TASK", "")])
    return row.bucket


def resolved(tasks: Iterable[Iterable[EventHead]]) -> set[Link]:
    rows = [row._asdict() for heads in tasks for row in links_of(heads)]
    given_rows = list(columns(rows, SCHEMA, packing.PackedLinks._fields))
    found = {Link(*row) for row in packing._rows_of(packing.PackedLinks.joining(given_rows))}
    return found | {
        Link(*row) for row in packing._rows_of(packing.PackedLinks.of_runs(packing.unresolved_runs(found))(given_rows))
    }


@pytest.mark.no_cover
@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.lists(HEAD, max_size=6), max_size=4))
def test_the_selected_links_join_the_same_groups_as_all_links(tasks: list[list[EventHead]]) -> None:
    everything = [link for heads in tasks for head in heads for link in head.links()]
    assert merge_groups(resolved(tasks)) == merge_groups(everything)


@pytest.mark.slow
def test_a_child_of_a_query_is_joined_with_the_groups_of_its_parent() -> None:
    # The bucket of the query shows that the child belongs to its parent; another bucket shows the parent's group.
    heads = [
        EventHead(0, "step", "TASK", "job"),
        EventHead(0, "step", "SQL_JOB", ""),
        EventHead(0, "job", "TASK", "", session_id="S"),
    ]
    assert bucket("step") != bucket("job")
    assert merge_groups(resolved([heads])) == merge_groups(link for head in heads for link in head.links())
    assert merge_groups(resolved([heads]))["step"] == "hive session S"


def test_links_that_join_nothing_go_no_further() -> None:
    heads = [EventHead(0, f"query {number}", "SQL_JOB", "app") for number in range(50)]
    assert resolved([[*heads, EventHead(0, "app", "APPLICATION", "task")]]) == set()


def test_repeated_links_of_a_run_are_packed_once_per_task() -> None:
    rows = links_of(EventHead(time, "query", "SQL_JOB", "app") for time in range(100))
    assert [row.bucket for row in rows] == sorted(bucket(run) for run in ("query", "app"))
    assert all(0 <= row.bucket < packing._BUCKETS for row in rows)


def test_a_task_holds_a_bounded_number_of_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_HELD_HEADS", 10)
    links = packing.LinkPacker()
    found = [len(list(links.add(EventHead(0, f"r{number}", "SQL_JOB", "app")))) > 0 for number in range(25)]
    assert [number for number, full in enumerate(found) if full] == [9, 19]
    assert set(packing.LINK_SCHEMA.names) == set(Link._fields)


TEXT = st.sampled_from(["", "a", "b", "ä\U0001f600"])
VERSION = st.builds(
    AspectVersion,
    st.sampled_from("pqrst"),
    st.integers(-1, 3),
    TEXT,
    st.integers(0, 3),
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    st.sampled_from(["UPSERT", "PATCH"]),
    st.binary(max_size=9),
)


def version(number: int, size: int = 0) -> AspectVersion:
    return AspectVersion(f"place {number}", number, "run", 0, "", "dataset", "urn", "status", "UPSERT", bytes(size))


def rows_of(versions: list[AspectVersion], buckets: int = 3) -> list[packing.PackedVersions]:
    held = packing.VersionPacker(buckets)
    found = [row for one in versions for row in held.add(one)]
    return [*found, *held.rest()]


@pytest.mark.slow
@given(st.lists(st.lists(VERSION, max_size=12), max_size=5))
def test_what_several_tasks_packed_comes_out_bucket_by_bucket_in_its_order(tasks: list[list[AspectVersion]]) -> None:
    rows = sorted((row for versions in tasks for row in rows_of(versions)), key=lambda row: row[:5])
    found = list(packing.PackedVersions.merged(rows))
    places = [one.place for one in found]
    # A place is left only when it is over.
    assert len([place for place, before in zip(places, [None, *places], strict=False) if place != before]) == len(
        set(places)
    )
    for place in set(places):
        expected = sorted(one for versions in tasks for one in versions if one.place == place)
        assert [one for one in found if one.place == place] == expected
    assert len(found) == sum(map(len, tasks))


def test_rows_are_of_bounded_size() -> None:
    rows = rows_of([version(0, 10_000)] * 20)
    assert [row.size // 10_000 for row in rows] == [6, 6, 6, 2]


def test_a_task_holds_a_bounded_size_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_HELD_VERSION_BYTES", 100_000)
    held = packing.VersionPacker(1)
    counts = [len(list(held.add(version(number, 9_500)))) for number in range(25)]
    assert [number for number, rows in enumerate(counts) if rows] == [9, 19]


def test_of_many_rows_only_those_that_overlap_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    # So a place with a version of every run of a year fits into memory.
    monkeypatch.setattr(packing, "_PACKED_BYTES", 1)
    asked: list[int] = []

    versions = [version(0)._replace(time_ms=number) for number in random.Random(1).sample(range(100), 100)]

    def given_rows() -> Iterator[packing.PackedVersions]:
        for row in rows_of(versions):
            asked.append(row.time_ms)
            yield row

    stream = packing.PackedVersions.merged(given_rows())
    assert next(stream).time_ms == 0
    assert asked == [0, 1]

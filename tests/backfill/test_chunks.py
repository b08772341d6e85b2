"""Events that are packed come out again, all of them and in their order."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from airflow_provider_spark_datahub.backfill import packing as chunks
from airflow_provider_spark_datahub.backfill.packing import Chunk, ChunkPacker
from airflow_provider_spark_datahub.conversion.archive import ArchivedEvent

EVENTS = st.builds(
    ArchivedEvent, st.integers(-1, 50), st.sampled_from("abc"), st.integers(0, 10**6), st.binary(max_size=9)
)


def packed(events: Iterable[ArchivedEvent], group: str = "g") -> list[Chunk]:
    held = ChunkPacker()
    found = [chunk for event in events for chunk in held.add(group, event)]
    return [*found, *held.rest()]


@pytest.mark.slow
@given(st.lists(EVENTS, min_size=1, max_size=20))
def test_a_chunk_holds_its_events_sorted(events: list[ArchivedEvent]) -> None:
    chunk = Chunk.pack("g", list(events))
    expected = sorted(events)
    assert chunk.unpack() == expected
    assert (chunk.time_ms, chunk.file, chunk.offset) == expected[0][:3]
    assert (chunk.until_ms, chunk.events) == (expected[-1].time_ms, len(events))


@pytest.mark.slow
@given(st.lists(st.lists(EVENTS, min_size=1, max_size=8), max_size=6))
def test_overlapping_chunks_give_their_events_in_order(lists: list[list[ArchivedEvent]]) -> None:
    expected = sorted(event for events in lists for event in events)
    given_chunks = sorted((Chunk.pack("g", events) for events in lists), key=lambda chunk: chunk[1:4])
    assert list(Chunk.merged(given_chunks)) == expected


def test_a_group_larger_than_a_chunk_becomes_several() -> None:
    events = [ArchivedEvent(number, "f", number, bytes(10_000)) for number in range(100)]
    found = packed(events)
    assert [chunk.events for chunk in found] == [27, 27, 27, 19]
    assert list(Chunk.merged(found)) == events


def test_all_open_chunks_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_HELD_CHUNK_BYTES", 1000)
    held = ChunkPacker()
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

    def given_chunks() -> Iterable[Chunk]:
        for number in range(100):
            asked.append(number)
            yield Chunk.pack("g", [ArchivedEvent(number, "f", number, b"x")])

    stream = iter(Chunk.merged(given_chunks()))
    assert next(stream).time_ms == 0
    assert asked == [0, 1]


def test_many_events_of_many_groups_in_any_order() -> None:
    events = [ArchivedEvent(number, "f", number, b"x" * (number % 700)) for number in range(5000)]
    held = ChunkPacker()
    shuffled = random.Random(3).sample(events, len(events))
    found = [chunk for event in shuffled for chunk in held.add(f"g{event.time_ms % 7}", event)]
    found += held.rest()
    for group in range(7):
        of_group = sorted((chunk for chunk in found if chunk.group == f"g{group}"), key=lambda chunk: chunk[1:4])
        assert list(Chunk.merged(of_group)) == [event for event in events if event.time_ms % 7 == group]

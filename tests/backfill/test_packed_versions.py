"""Versions that are packed come out again, all of them and in their order, all of a place in one bucket."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from airflow_provider_spark_datahub.backfill import packing as packed_versions
from airflow_provider_spark_datahub.backfill.packing import PackedVersions, VersionPacker
from airflow_provider_spark_datahub.conversion.archive import AspectVersion

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


def packed(versions: list[AspectVersion], buckets: int = 3) -> list[PackedVersions]:
    held = VersionPacker(buckets)
    found = [row for one in versions for row in held.add(one)]
    return [*found, *held.rest()]


@pytest.mark.slow
@given(st.lists(st.lists(VERSION, max_size=12), max_size=5))
def test_what_several_tasks_packed_comes_out_bucket_by_bucket_in_its_order(tasks: list[list[AspectVersion]]) -> None:
    rows = sorted((row for versions in tasks for row in packed(versions)), key=lambda row: row[:5])
    found = list(PackedVersions.merged(rows))
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
    rows = packed([version(0, 10_000)] * 20)
    assert [row.size // 10_000 for row in rows] == [7, 7, 6]


def test_a_task_holds_a_bounded_size_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_versions, "_HELD_VERSION_BYTES", 100_000)
    held = VersionPacker(1)
    counts = [len(list(held.add(version(number, 9_500)))) for number in range(25)]
    assert [number for number, rows in enumerate(counts) if rows] == [9, 19]


def test_of_many_rows_only_those_that_overlap_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    # So a place with a version of every run of a year fits into memory.
    monkeypatch.setattr(packed_versions, "_PACKED_BYTES", 1)
    asked: list[int] = []

    versions = [version(0)._replace(time_ms=number) for number in random.Random(1).sample(range(100), 100)]

    def given_rows() -> Iterator[PackedVersions]:
        for row in packed(versions):
            asked.append(row.time_ms)
            yield row

    stream = PackedVersions.merged(given_rows())
    assert next(stream).time_ms == 0
    assert asked == [0, 1]

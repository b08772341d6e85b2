"""Links that are resolved bucket by bucket join the same groups as all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pytest
from hypothesis import given, settings, strategies as st

from airflow_provider_spark_datahub.backfill import packing as packed_links
from airflow_provider_spark_datahub.backfill.indexing import SCHEMA
from airflow_provider_spark_datahub.backfill.packing import (
    _BUCKETS,
    LINK_SCHEMA,
    LinkPacker,
    PackedLinks,
    _rows_of,
    unresolved_runs,
)
from airflow_provider_spark_datahub.conversion.archive import EventHead, Link, merge_groups
from tests.backfill.steps import columns

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


def packed(heads: Iterable[EventHead]) -> list[PackedLinks]:
    links = LinkPacker()
    return [*chain.from_iterable(map(links.add, heads)), *links.rest()]


def bucket(run_id: str) -> int:
    (row,) = packed([EventHead(0, run_id, "TASK", "")])
    return row.bucket


def resolved(tasks: Iterable[Iterable[EventHead]]) -> set[Link]:
    rows = [row._asdict() for heads in tasks for row in packed(heads)]
    given_rows = list(columns(rows, SCHEMA, PackedLinks._fields))
    found = {Link(*row) for row in _rows_of(PackedLinks.joining(given_rows))}
    return found | {Link(*row) for row in _rows_of(PackedLinks.of_runs(unresolved_runs(found))(given_rows))}


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
    rows = packed(EventHead(time, "query", "SQL_JOB", "app") for time in range(100))
    assert [row.bucket for row in rows] == sorted(bucket(run) for run in ("query", "app"))
    assert all(0 <= row.bucket < _BUCKETS for row in rows)


def test_a_task_holds_a_bounded_number_of_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_links, "_HELD_HEADS", 10)
    links = LinkPacker()
    found = [len(list(links.add(EventHead(0, f"r{number}", "SQL_JOB", "app")))) > 0 for number in range(25)]
    assert [number for number, full in enumerate(found) if full] == [9, 19]
    assert set(LINK_SCHEMA.names) == set(Link._fields)

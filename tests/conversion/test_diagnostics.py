"""Diagnostics: how they add up, and how they are worded."""

from __future__ import annotations

from airflow_provider_spark_datahub.conversion.diagnostics import MAX_LISTED, Diagnostics, LostExecution
from airflow_provider_spark_datahub.conversion.events import DatasetId, EventError


def test_without_problems_there_are_no_messages() -> None:
    assert Diagnostics().messages() == []


def test_problems_are_worded_as_messages() -> None:
    diagnostics = Diagnostics(
        rejected_events=2,
        rejections=("not a run event",),
        lost_executions=[LostExecution(7, "save at Shop.java:1", "it wrote data")],
        unusable_datasets={DatasetId("file", ""): "it has no name"},
        truncations={"texts cut": 3, "edges left out": 1},
        column_gaps=("no columns of SELECT 1",),
        unreported_queries=("append_data.t",),
        unreported_tables=("ice.a", "ice.b"),
    )
    hint = "it cannot name the tables of every catalogue"
    assert diagnostics.messages() == [
        "not a run event",
        "1 more event cannot be converted",
        "no lineage of SQL execution 7 (save at Shop.java:1): it wrote data",
        "dataset file : it has no name",
        "edges left out: 1",
        "texts cut: 3",
        f"OpenLineage does not name the tables that these queries wrote ({hint}): append_data.t",
        f"OpenLineage does not name these tables that the job read or wrote ({hint}): ice.a, ice.b",
        "no columns of SELECT 1",
    ]


def test_merging_adds_counts_and_keeps_each_reason_once() -> None:
    total = Diagnostics(truncations={"a": 1}, column_gaps=("x",))
    total.merge(Diagnostics(truncations={"a": 2, "b": 3}, column_gaps=("y", "x"), rejected_events=1, rejections=("e",)))
    assert total == Diagnostics(
        truncations={"a": 3, "b": 3}, column_gaps=("x", "y"), rejected_events=1, rejections=("e",)
    )


def test_lists_are_limited() -> None:
    total = Diagnostics()
    for number in range(MAX_LISTED + 1):
        total.reject(EventError(f"reason {number}"))
        total.merge(Diagnostics(column_gaps=(f"gap {number}",)))
    assert (total.rejected_events, len(total.rejections), len(total.column_gaps)) == (21, MAX_LISTED, MAX_LISTED)

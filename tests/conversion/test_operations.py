"""Operations on datasets: their datasets, their types, and their form as DataHub's own class has
it.
"""

from __future__ import annotations

from typing import Any

from datahub.metadata.schema_classes import OperationClass, OperationTypeClass

from airflow_provider_spark_datahub.conversion import Proposal, convert_run_event
from tests.cases import cases
from tests.conversion.builders import (
    OTHER_QUERY,
    QUERY,
    START_MS,
    Json,
    corpus_events,
    file,
    find_all,
    jobs,
    only_job,
    proposals,
    query,
    settings,
    urn,
    whole_application,
)
from tests.conversion.short_events import events_of, paths
from tests.oracles.strict import canonical_violations

TARGET = urn("file", "/z")


def output(path: str = "/z", *, lifecycle: str | None = None, **statistics: int) -> Json:
    facets = {"lifecycleStateChange": {"lifecycleStateChange": lifecycle}} if lifecycle else {}
    counted = {"outputStatistics": statistics} if statistics else {}
    return {**file(path, **facets), "outputFacets": counted}


def operations_of(events: list[Json], **options: Any) -> list[Proposal]:
    found = [
        each
        for job in jobs(events, **options)
        for each in find_all(proposals(job, **options), "operation", "dataset")
    ]
    assert [violation for each in found for violation in canonical_violations(each.to_obj())] == []
    return found


def kinds(events: list[Json]) -> list[tuple[str, str]]:
    return [(each.entity_urn, each.aspect["operationType"]) for each in operations_of(events)]


def counts(events: list[Json]) -> list[tuple[str, str, int | None]]:
    return [
        (each.entity_urn, each.aspect["operationType"], each.aspect.get("numAffectedRows"))
        for each in operations_of(events)
    ]


def test_an_operation_equals_datahubs_own_class() -> None:
    events = [
        query("START", outputs=[output(lifecycle="OVERWRITE")]),
        query(
            "COMPLETE",
            second=7,
            outputs=[output(lifecycle="OVERWRITE", rowCount=5, size=70, fileCount=2)],
        ),
    ]
    (found,) = operations_of(whole_application(*events))
    expected = OperationClass(
        timestampMillis=START_MS + 7_000,
        lastUpdatedTimestamp=START_MS + 7_000,
        operationType=OperationTypeClass.UPDATE,
        sourceType="DATA_PROCESS",
        numAffectedRows=5,
        customProperties={"size": "70", "fileCount": "2"},
        messageId=QUERY,
    )
    assert (found.entity_urn, found.change_type) == (TARGET, "UPSERT")
    assert OperationClass.from_obj(found.aspect) == expected


@cases("operations")
def test_operations_of_queries(events: list[str], expected: list[list[Any]]) -> None:
    found = counts(whole_application(*events_of(events)))
    assert [[*paths([dataset]), kind, rows] for dataset, kind, rows in found] == expected


@cases("operations")
def test_the_kind_comes_from_lifecycle_or_statement(
    lifecycle: str | None, sql: str, kind: str
) -> None:
    events = query(
        outputs=[output(lifecycle=lifecycle)], job_facets={"sql": {"query": sql}} if sql else {}
    )
    assert kinds(whole_application(events)) == [(TARGET, kind)]


def test_dropped_and_renamed_tables_have_operations_but_are_not_outputs() -> None:
    renamed: Json = output("/new")
    previous = {"namespace": "file", "name": "/old"}
    renamed["facets"] = {
        "lifecycleStateChange": {"lifecycleStateChange": "RENAME", "previousIdentifier": previous}
    }
    events = whole_application(
        query(outputs=[output("/gone", lifecycle="DROP")]),
        query(run_id=OTHER_QUERY, outputs=[renamed]),
    )
    gone, new = operations_of(events)
    assert (gone.entity_urn, gone.aspect["operationType"]) == (urn("file", "/gone"), "DROP")
    assert (new.entity_urn, new.aspect["operationType"]) == (urn("file", "/new"), "ALTER")
    assert new.aspect["affectedDatasets"] == [urn("file", "/old")]
    assert "affectedDatasets" not in gone.aspect
    assert only_job(events).lineage.outputs == {}


def test_queries_of_one_kind_are_one_operation_at_the_end_of_the_last() -> None:
    # GMS keeps one for each time and message id: those of two kinds differ, and the next run has
    # others.
    outputs = (output(rowCount=5, size=70), output(), output(rowCount=2, fileCount=1))
    wrote = [
        query(run_id=f"run-{second}", second=second, outputs=[one])
        for second, one in enumerate(outputs, 1)
    ]
    emptied = query(run_id="run-4", second=3, outputs=[output(lifecycle="TRUNCATE")])
    inserted, deleted = operations_of(whole_application(*wrote, emptied))
    assert (inserted.aspect["messageId"], deleted.aspect["messageId"]) == ("run-1", "run-4")
    assert {each.aspect["timestampMillis"] for each in (inserted, deleted)} == {START_MS + 3_000}
    assert inserted.aspect["numAffectedRows"] == 7
    assert inserted.aspect["customProperties"] == {"size": "70", "fileCount": "1"}
    assert "numAffectedRows" not in deleted.aspect


@cases("operations")
def test_the_write_within_a_create_table_as_select_counts_once(
    outer: Json, seconds: list[int], inner: Json, expected: list[list[Any]]
) -> None:
    outer_output, inner_output = output(lifecycle="CREATE", **outer), output(**inner)
    events = whole_application(
        query("START", run_id=OTHER_QUERY, second=seconds[0], outputs=[inner_output]),
        query("START", second=1, outputs=[outer_output]),
        query("COMPLETE", run_id=OTHER_QUERY, second=seconds[1], outputs=[inner_output]),
        query("COMPLETE", second=5, outputs=[outer_output]),
    )
    found = operations_of(events)
    assert [
        [each.aspect["operationType"], each.aspect.get("numAffectedRows")] for each in found
    ] == expected
    assert QUERY in {each.aspect["messageId"] for each in found}


def test_a_single_event_has_operations() -> None:
    options = settings()
    running, complete = (
        query(kind, outputs=[output(rowCount=5)]) for kind in ("RUNNING", "COMPLETE")
    )
    assert find_all(convert_run_event(running, options), "operation") == []
    (found,) = find_all(convert_run_event(complete, options), "operation")
    assert (found.entity_urn, found.aspect["numAffectedRows"]) == (TARGET, 5)


def test_a_real_job_with_hive_tables_has_operations() -> None:
    # What ``b_multi_sql_hive`` did to its tables, by the statements that it ran; the rows are
    # Spark's own counts.
    done: dict[str, list[tuple[str, int | None]]] = {}
    for dataset, kind, rows in counts(corpus_events("b_multi_sql_hive")):
        done.setdefault(dataset, []).append((kind, rows))
    assert done == {
        urn("hive", "sales.orders_clean"): [("DROP", None), ("CREATE", 19_999)],
        urn("hive", "sales.customers_orc"): [("DROP", None), ("CREATE", 500)],
        urn("hive", "sales.daily"): [("DROP", None), ("CREATE", None), ("UPDATE", 336)],
        urn("hive", "sales.daily_part"): [
            ("DROP", None),
            ("CREATE", None),
            ("UPDATE", 19_999 + 6_634),
        ],
        urn("hive", "sales.top_customers"): [("DROP", None), ("CREATE", 50), ("INSERT", 1)],
        urn("hive", "sales.daily_renamed"): [("ALTER", None), ("DROP", None)],
    }


def test_other_real_jobs_have_operations() -> None:
    # The second query of the first one never wrote, though its last event says COMPLETE.
    assert counts(corpus_events("c_fail_midway")) == [
        (urn("file", "/lake/out/c/open_orders"), "UPDATE", 6_634)
    ]
    assert (urn("hive", "dl.customers"), "UPDATE", 500) in counts(corpus_events("f_delta"))

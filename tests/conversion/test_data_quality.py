"""Data-quality checks as the test results of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import convert_events, convert_run_event
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from tests.conversion.builders import (
    APP,
    OTHER_QUERY,
    START_MS,
    Json,
    dataset,
    find_all,
    query,
    settings,
    whole_application,
)
from tests.oracles.strict import canonical_violations

ON = settings(capture_test_results=True)
ORDERS = "urn:li:test:postgres.shop.public.orders"


def checked(*assertions: Json, as_input_facet: bool = True) -> Json:
    facets = {"dataQualityAssertions": {"assertions": list(assertions)}}
    stored = dataset("postgres://db", "shop.orders", **({} if as_input_facet else facets))
    return {**stored, "inputFacets": facets} if as_input_facet else stored


def results(*events: Json) -> Json:
    found = convert_events([json.dumps(event).encode() for event in events], ON).proposals(ON)
    return of(found)


def of(found: list[Proposal]) -> Json:
    assert [problem for each in found for problem in canonical_violations(each.to_obj())] == []
    written = find_all(found, "testResults")
    assert {each.entity_urn for each in written} <= {f"urn:li:dataProcessInstance:{run}" for run in (APP, OTHER_QUERY)}
    return written[0].aspect if written else {}


def names(result: Json, kind: str) -> list[str]:
    return [test["test"] for test in result[kind]]


@pytest.mark.parametrize("as_input_facet", [True, False])
def test_assertions_of_a_dataset_are_test_results(as_input_facet: bool) -> None:
    read = checked(
        {"assertion": "not_null", "success": True, "column": "id"},
        {"assertion": "row_count", "success": False},
        {"assertion": "custom_sql", "name": "no_orphans", "success": True, "severity": "warn"},
        as_input_facet=as_input_facet,
    )
    result = results(*whole_application(query(inputs=[read])))
    assert names(result, "failing") == [f"{ORDERS}.row_count"]
    assert names(result, "passing") == [f"{ORDERS}.id.not_null", f"{ORDERS}.no_orphans"]
    stamp = {"time": START_MS + 59_000, "actor": "urn:li:corpuser:datahub"}
    assert result["failing"][0] == {"test": f"{ORDERS}.row_count", "type": "FAILURE", "lastComputed": stamp}


def test_tests_of_a_run_are_test_results() -> None:
    tests = [
        {"name": "a", "status": "pass"},
        {"name": "b", "status": "fail", "severity": "warn"},
        {"name": "c", "status": "skip"},
        {"name": "", "status": "pass"},
        None,
    ]
    result = results(*whole_application(query(run_facets={"test": {"tests": tests}})))
    assert (names(result, "failing"), names(result, "passing")) == (["urn:li:test:b"], ["urn:li:test:a"])


def test_the_last_result_of_a_repeated_check_counts() -> None:
    first, again = (checked({"assertion": "unique", "success": success}) for success in (False, True))
    result = results(*whole_application(query(inputs=[first]), query(run_id=OTHER_QUERY, inputs=[again], second=2)))
    assert (names(result, "failing"), names(result, "passing")) == ([], [f"{ORDERS}.unique"])


def test_single_events_have_test_results() -> None:
    # Two events that differ only in the run's own tests.
    for status, kind in (("pass", "passing"), ("fail", "failing")):
        sent = query(run_id=OTHER_QUERY, run_facets={"test": {"tests": [{"name": "a", "status": status}]}})
        assert names(of(convert_run_event(json.dumps(sent).encode(), ON)), kind) == ["urn:li:test:a"]


@pytest.mark.parametrize(
    "facet",
    [
        None,
        [],
        {"assertions": None},
        {"assertions": [None, {"assertion": "x"}, {"assertion": "x", "success": "yes"}, {"success": True}]},
    ],
)
def test_assertions_without_a_result_are_left_out(facet: Any) -> None:
    read = {**dataset("postgres://db", "shop.orders"), "inputFacets": {"dataQualityAssertions": facet}}
    assert results(*whole_application(query(inputs=[read]))) == {}


def test_gms_keeps_a_check_with_a_long_name() -> None:
    result = results(*whole_application(query(inputs=[checked({"assertion": "x" * 600, "success": True})])))
    (urn,) = names(result, "passing")
    assert len(urn) <= 512


def test_test_results_are_off_by_default() -> None:
    events = whole_application(query(inputs=[checked({"assertion": "unique", "success": True})]))
    assert find_all(convert_events(events, settings()).proposals(settings()), "testResults") == []

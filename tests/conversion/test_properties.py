"""Custom properties of jobs and flows; tags, owners and descriptions."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.facets.properties import PropertyLayers
from airflow_provider_spark_datahub.conversion.redaction import REDACTED
from tests.conversion.builders import parsed, spark_properties

SPEC_KEYS = {"_producer": "https://example.com", "_schemaURL": "https://example.com"}


def read(event: RunEvent, *, spark_plan: bool = False) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of the job and of the flow."""
    return PropertyLayers.merged([PropertyLayers.of(event, spark_plan=spark_plan)])


def both(**facets: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of the flow and of the job."""
    job, flow = read(parsed(run_facets=facets))
    return flow, job


@pytest.mark.parametrize(
    ("facets", "expected"),
    [
        (
            {"processing_engine": {"name": "spark", "version": "4.1", "openlineageAdapterVersion": "1.53"}},
            {"processingEngine": "spark", "processingEngineVersion": "4.1", "openlineageAdapterVersion": "1.53"},
        ),
        (
            {"spark_version": {"spark-version": "3.5", "openlineage-spark-version": "1.33"}},
            {"spark-version": "3.5", "openlineage-spark-version": "1.33"},
        ),
        (
            {"spark_jobDetails": {"jobId": 4, "jobDescription": "d", "jobGroup": "g", "jobCallSite": "c", "x": 1}},
            {"jobId": "4", "jobDescription": "d", "jobGroup": "g", "jobCallSite": "c"},
        ),
        # Flattened without the keys above, as Java's toString writes the values.
        (
            {"spark_properties": {"properties": {"a": True, "b": 1.5, "n": {"c": [1, "x", {"k": None}]}}}},
            {"a": "true", "b": "1.5", "c": "[1, x, {k=null}]"},
        ),
        # Deviation 15.
        ({"spark_properties": {"properties": {"a": None, "b": "1"}}}, {"b": "1"}),
        ({"spark_jobDetails": {"jobDescription": {"k": 1}}}, {"jobDescription": "{k=1}"}),
        ({"spark_properties": None, "processing_engine": [], "spark_jobDetails": "x"}, {}),
    ],
)
def test_facets_become_properties_of_flow_and_job(facets: Any, expected: dict[str, str]) -> None:
    assert both(**facets) == (expected, expected)


def test_the_airflow_facet_has_a_dag_and_a_task() -> None:
    facet = {"dag": {"dag_id": "d", "timetable": {"delta": 1.5}}, "task": {"task_id": "t", "retries": 2}, "x": 1}
    assert both(airflow=facet) == ({"dag_id": "d", "delta": "1.5"}, {"task_id": "t", "retries": "2"})


def test_unknown_sources_are_properties_of_the_job() -> None:
    items = [{"name": "Scan", "properties": {"path": "/a"}}, None, {"type": "x"}]
    assert both(unknownSourceAttribute={"unknownItems": items}) == ({}, {"name": "Scan", "path": "/a", "type": "x"})


def test_application_details_are_properties_of_the_flow() -> None:
    facet = {
        **SPEC_KEYS,
        "applicationId": "local-1",
        "userName": "jane",
        "applicationAttemptId": None,
        "appName": "Shop",
        "master": "local[2]",
        "deployMode": "client",
    }
    flow = {"appId": "local-1", "sparkUser": "jane", "appName": "Shop", "master": "local[2]", "deployMode": "client"}
    assert both(spark_applicationDetails=facet) == (flow, {})


def test_the_plan_is_a_property_of_the_flow_on_request() -> None:
    event = parsed(run_facets={"spark.logicalPlan": {**SPEC_KEYS, "plan": [{"class": "Scan", "tree": None}]}})
    assert read(event, spark_plan=True) == ({}, {"spark.logicalPlan": '{"plan":[{"class":"Scan"}]}'})
    assert read(event) == ({}, {})


def test_secrets_in_properties_are_redacted() -> None:
    # Deviation 7.
    properties = {
        "spark.db.password": "hunter2",
        "app.pin": "hunter2",
        "spark.redaction.regex": "(?i)pin",
        "n": {"token": "hunter2"},
    }
    details = {"jobDescription": "load jdbc:x://u:hunter2@h", "jobCallSite": "x"}
    flow, job = both(
        spark_properties={"properties": properties},
        spark_jobDetails=details,
        airflow={"dag": {"secret": "hunter2"}, "task": {"env": "password=hunter2", "list": [{"password": "hunter2"}]}},
        spark_applicationDetails={"appToken": "hunter2", "conf": {"password": "hunter2"}},
        unknownSourceAttribute={"unknownItems": [{"properties": {"password": "hunter2", "url": "a://b:hunter2@c"}}]},
    )
    assert "hunter2" not in str((flow, job))
    assert flow["spark.db.password"] == flow["app.pin"] == job["token"] == REDACTED


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("['b', 'a']", ["b", "a"]),
        ("[]", []),
        (["b", "", " ", " c ", None, 1], ["b", "c"]),
        ("[a", None),
        ("'x'", None),
        (None, None),
        ({}, None),
    ],
)
def test_airflow_tags_are_read(tags: Any, expected: list[str] | None) -> None:
    assert parsed(run_facets={"airflow": {"dag": {"tags": tags}}}).airflow_tags == expected


@pytest.mark.parametrize(
    ("facet", "expected"),
    [({"description": "é ☃ 😀"}, "é ☃ 😀"), ({"description": ""}, None), ({"description": 1}, None), (None, None)],
)
def test_descriptions_are_read(facet: Any, expected: str | None) -> None:
    assert parsed(job_facets={"documentation": facet}).description == expected


@pytest.mark.parametrize(
    ("facet", "expected"),
    [
        ({"owners": [{"name": "bob", "type": "MAINTAINER"}, {"name": "team:x"}]}, ["bob", "team:x"]),
        ({"owners": [None, {}, {"name": None}, {"name": " "}]}, []),
        ({"owners": None}, []),
        (None, []),
    ],
)
def test_owners_are_read(facet: Any, expected: list[str]) -> None:
    assert parsed(job_facets={"ownership": facet}).owner_names == tuple(expected)


def test_an_event_without_facets_has_no_properties() -> None:
    assert both() == ({}, {})
    assert spark_properties() == {"spark_properties": {"properties": {}}}


def test_values_that_are_nested_too_deeply_are_left_out() -> None:
    deep: Any = "leaf"
    for _ in range(400):
        deep = {"k": [deep]}
    facets = {**spark_properties(a=[deep], b={"c": deep}, d="kept"), "spark.logicalPlan": {"plan": deep}}
    job, flow = read(parsed(run_facets=facets), spark_plan=True)
    assert job["d"] == "kept"
    assert job["a"].count("{k=") + job["a"].count("[") == 51
    assert "…" in job["a"]
    assert "…" in flow["spark.logicalPlan"]

"""Reading of events: whole events, their heads, and the facets of each version of OpenLineage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import EventError, convert_events, parse_time_ms
from airflow_provider_spark_datahub.conversion.archive import NO_TIME, EventHead
from airflow_provider_spark_datahub.conversion.events import RunEvent, as_object, iso_instant
from tests.cases import cases, tables
from tests.conversion.builders import (
    APP,
    QUERY,
    START_MS,
    Json,
    application,
    event,
    file,
    file_urns,
    find,
    only_job,
    parsed,
    query,
    schema,
    settings,
    whole_application,
)

# -- Run events, read tolerantly


def test_a_run_event_is_decoded() -> None:
    read = parsed(kind="complete", parent=APP.upper(), job_facets={"sql": {"query": "SELECT 1"}})
    assert (read.type, read.time_ms, read.run_id, read.names.parent_run_id) == (
        "COMPLETE",
        START_MS,
        QUERY,
        APP,
    )
    assert (read.job.namespace, read.job.name, read.job.texts.job_type, read.job.texts.sql) == (
        "default",
        "shop.insert",
        "SQL_JOB",
        "SELECT 1",
    )


@cases("events")
def test_other_objects_are_refused(obj: Any, message: str) -> None:
    with pytest.raises(EventError) as raised:
        RunEvent.parse(obj)
    assert message in str(raised.value)


@cases("events")
def test_other_values_are_not_datasets(datasets: Any) -> None:
    read = RunEvent.parse({**event(), "inputs": datasets, "outputs": datasets})
    assert read.inputs == read.outputs == ()


@cases("events")
def test_times_are_read_as_milliseconds(text: Any, expected: int | None) -> None:
    found = parse_time_ms(text)
    assert found == expected
    assert found is None or iso_instant(found) <= "9999-12-31T23:59:59.999Z"


@cases("events")
def test_milliseconds_are_written_as_iso_instants(millis: int, expected: str) -> None:
    assert iso_instant(START_MS + millis) == expected


def test_invalid_utf8_affects_only_its_facet() -> None:
    event = json.dumps(query(outputs=[file("/z", columnLineage={"fields": {"?": {}}})])).encode()
    (output,) = RunEvent.parse(event.replace(b'"?"', b'"\xcc"')).outputs
    assert output.id.name == "/z"
    assert as_object(output.facets["columnLineage"]) == {}
    with pytest.raises(EventError, match="not valid JSON"):
        RunEvent.parse(b'{"run": {"runId": "\xcc"}}')


@pytest.mark.parametrize("broken", [b'{"run": NaN, "x": "\\ud83d"}', b'{"run": "\\ud83d"'])
def test_half_a_surrogate_pair_does_not_excuse_invalid_json(broken: bytes) -> None:
    with pytest.raises(EventError, match="not valid JSON"):
        RunEvent.parse(broken)


def test_a_blank_parent_is_ignored() -> None:
    assert parsed(run_facets={"parent": {"run": {"runId": " "}}}).names.parent_run_id == ""
    assert (
        parsed(run_facets={"parent": {"run": {"runId": f" {APP.upper()} "}}}).names.parent_run_id
        == APP
    )


def test_an_event_without_a_time_comes_before_all_others() -> None:
    assert EventHead.of(RunEvent.parse(event() | {"eventTime": ""})).time_ms == NO_TIME < 0


# -- The same lineage in the facets of OpenLineage's spec, from the versions of 1.13 to those of
# 1.55


@cases("events")
def test_column_lineage_of_each_version_is_read(
    facets: Json, of_job: Json, inputs: list[str], expected: Any
) -> None:
    output = file("/z", schema=schema(("z", "int")), **facets)
    job = only_job(whole_application(query(outputs=[output], job_facets=of_job)))
    assert list(job.lineage.inputs) == file_urns(*inputs)
    found = [
        [
            [upstream.rpartition(",")[2].removesuffix(")") for upstream in edge["upstreams"]],
            edge["transformOperation"],
        ]
        for edge in job.lineage.fine_grained
    ]
    assert found == expected


@pytest.mark.parametrize("name", ["spark.logicalPlan", "spark_logicalPlan"])
def test_both_names_of_the_logical_plan_are_known(name: str) -> None:
    events = whole_application(query(run_facets={name: {"plan": [{"class": "Scan"}]}}))
    job = only_job(events, capture_spark_plan=True)
    assert job.definition.flow_properties["spark.logicalPlan"] == '{"plan":[{"class":"Scan"}]}'


def test_a_root_beside_the_parent_is_not_the_parent() -> None:
    # From 1.23 on a parent names the root of the tree; an application's root is the DAG run, its
    # parent the task.
    facets: Any = tables("events")["parent_and_root"]
    events = [application(kind, run_facets=facets) for kind in ("START", "COMPLETE")]
    found = convert_events(events, settings()).proposals(settings())
    relationships = find(found, "dataProcessInstanceRelationships")
    assert relationships.entity_urn == f"urn:li:dataProcessInstance:{APP}"
    assert (
        relationships.aspect["parentInstance"]
        == "urn:li:dataProcessInstance:00000000-0000-0000-0000-00000000000a"
    )


@cases("events")
def test_the_version_of_the_engine_is_read(facets: Json) -> None:
    job = only_job(whole_application(run_facets=facets))
    assert {"4.1.4", "3.3.0"} & set(job.definition.properties.values())
    assert job.definition.flow.orchestrator == "spark"

"""The same lineage in the facets of OpenLineage's spec, from the versions of 1.13 to those of 1.55."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.convert import convert_events
from tests.conversion.builders import (
    APP,
    Json,
    application,
    column,
    column_lineage,
    file,
    file_urns,
    find,
    only_job,
    query,
    schema,
    settings,
    urn,
    whole_application,
)

DIRECT = column("/a", "x", "DIRECT:IDENTITY")
FILTER = column("/a", "day", "INDIRECT:FILTER")
X, DAY = (f"urn:li:schemaField:({urn('file', '/a')},{name})" for name in ("x", "day"))


def typed(item: Json) -> Json:
    """Return an input as the ``lineage`` facet spells it."""
    return {**item, "type": "DATASET"}


def lineage_facet(**more: Any) -> Json:
    return {"fields": {"z": {"inputs": [typed(DIRECT)]}}, "inputs": [typed(FILTER)], **more}


def edges(*, job_facets: Json | None = None, **facets: Any) -> list[tuple[list[str], str]]:
    output = file("/z", schema=schema(("z", "int")), **facets)
    job = only_job(whole_application(query(outputs=[output], job_facets=job_facets)))
    assert list(job.lineage.inputs) == file_urns("/a")
    return [(lineage["upstreams"], lineage["transformOperation"]) for lineage in job.lineage.fine_grained]


def test_columns_may_have_no_transformations() -> None:
    # Before 1.17: a type and a description of the column, which DataHub's Java converter does not read.
    plain = {"namespace": "file", "name": "/a", "field": "x"}
    field = {"inputFields": [plain], "transformationDescription": "identical", "transformationType": "IDENTITY"}
    assert edges(columnLineage={"fields": {"z": field}}) == [([X], "")]


def test_filters_may_be_among_the_inputs_of_columns() -> None:
    # 1.17 to 1.22, and later with ``datasetLineageEnabled`` off.
    assert edges(columnLineage=column_lineage({"z": [DIRECT, FILTER]})) == [
        ([DAY, X], "DIRECT:IDENTITY,INDIRECT:FILTER")
    ]


def test_filters_may_be_those_of_the_whole_dataset() -> None:
    # From 1.23 on.
    facet = column_lineage({"z": [DIRECT]}, [FILTER])
    assert edges(columnLineage=facet) == [([X], "DIRECT:IDENTITY"), ([DAY], "INDIRECT:FILTER")]


def test_the_lineage_facet_of_a_dataset_is_read() -> None:
    assert edges(lineage=lineage_facet()) == [([X], "DIRECT:IDENTITY"), ([DAY], "INDIRECT:FILTER")]


def test_the_lineage_facet_of_a_job_is_read() -> None:
    entries = [
        {**lineage_facet(), "namespace": "file", "name": "/other", "type": "DATASET"},
        {**lineage_facet(), "namespace": "file", "name": "/z", "type": "DATASET"},
    ]
    found = edges(job_facets={"lineage": {"entries": entries}})
    assert found == [([X], "DIRECT:IDENTITY"), ([DAY], "INDIRECT:FILTER")]


def test_column_lineage_goes_before_the_facet_that_follows_it() -> None:
    facet = column_lineage({"z": [DIRECT]})
    assert edges(columnLineage=facet, lineage=lineage_facet()) == [([X], "DIRECT:IDENTITY")]


def test_the_lineage_facet_may_name_datasets_only() -> None:
    source = {"namespace": "file", "name": "/a", "type": "DATASET"}
    of_a_job = {"namespace": "default", "name": "other", "type": "JOB"}
    assert edges(lineage={"inputs": [source, of_a_job, None], "fields": None}) == []


@pytest.mark.parametrize("facet", [None, {}, {"inputs": None}, {"inputs": [{"type": "DATASET"}]}, {"fields": []}])
def test_an_empty_lineage_facet_gives_no_lineage(facet: Any) -> None:
    job = only_job(whole_application(query(outputs=[file("/z", lineage=facet)])))
    assert not job.lineage.inputs
    assert not job.lineage.fine_grained


@pytest.mark.parametrize("name", ["spark.logicalPlan", "spark_logicalPlan"])
def test_both_names_of_the_logical_plan_are_known(name: str) -> None:
    events = whole_application(query(run_facets={name: {"plan": [{"class": "Scan"}]}}))
    job = only_job(events, capture_spark_plan=True)
    assert job.definition.flow_properties["spark.logicalPlan"] == '{"plan":[{"class":"Scan"}]}'


def test_a_root_beside_the_parent_is_not_the_parent() -> None:
    # From 1.23 on a parent names the root of the tree; an application's root is the DAG run, its parent the task.
    parent = {
        "run": {"runId": "00000000-0000-0000-0000-00000000000a"},
        "job": {"namespace": "airflow", "name": "dag.task"},
        "root": {"run": {"runId": "00000000-0000-0000-0000-00000000000b"}, "job": {"namespace": "a", "name": "dag"}},
    }
    events = [application(kind, run_facets={"parent": parent}) for kind in ("START", "COMPLETE")]
    found = convert_events(events, settings()).proposals(settings())
    relationships = find(found, "dataProcessInstanceRelationships")
    assert relationships.entity_urn == f"urn:li:dataProcessInstance:{APP}"
    assert relationships.aspect["parentInstance"] == "urn:li:dataProcessInstance:00000000-0000-0000-0000-00000000000a"


@pytest.mark.parametrize(
    "facets",
    [
        {"processing_engine": {"name": "spark", "version": "4.1.4", "openlineageAdapterVersion": "1.53.0"}},
        {"spark_version": {"spark-version": "3.3.0", "openlineage-spark-version": "1.13.1"}},
    ],
)
def test_the_version_of_the_engine_is_read(facets: Json) -> None:
    job = only_job(whole_application(run_facets=facets))
    assert {"4.1.4", "3.3.0"} & set(job.definition.properties.values())
    assert job.definition.flow.orchestrator == "spark"

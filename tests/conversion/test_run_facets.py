"""Facets of runs: properties, details and their aspects (conversion rules, sections 5 and 6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import (
    DataInterval,
    Proposal,
    convert_events,
    convert_run_event,
)
from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.facets.run import (
    NOT_PARTITIONED,
    PropertyLayers,
    RunDetails,
    partition_spec,
)
from airflow_provider_spark_datahub.conversion.redaction import REDACTED
from tests.cases import cases
from tests.conversion.builders import (
    START_MS,
    Json,
    dataset,
    event,
    file,
    find,
    find_all,
    only_job,
    parsed,
    proposals,
    query,
    settings,
    spark_properties,
    whole_application,
)
from tests.oracles.strict import canonical_violations

# -- Custom properties of jobs and flows; tags, owners and descriptions


SPEC_KEYS = {"_producer": "https://example.com", "_schemaURL": "https://example.com"}


def read(event: RunEvent, *, spark_plan: bool = False) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of the job and of the flow."""
    return PropertyLayers.merged([PropertyLayers.of(event, spark_plan=spark_plan)])


def both(**facets: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties of the flow and of the job."""
    job, flow = read(parsed(run_facets=facets))
    return flow, job


@cases("run_facets")
def test_facets_become_properties(
    facets: Any, flow: dict[str, str], job: dict[str, str] | None
) -> None:
    assert both(**facets) == (flow, flow if job is None else job)


def test_the_plan_is_a_property_of_the_flow_on_request() -> None:
    event = parsed(
        run_facets={"spark.logicalPlan": {**SPEC_KEYS, "plan": [{"class": "Scan", "tree": None}]}}
    )
    assert read(event, spark_plan=True) == (
        {},
        {"spark.logicalPlan": '{"plan":[{"class":"Scan"}]}'},
    )
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
        airflow={
            "dag": {"secret": "hunter2"},
            "task": {"env": "password=hunter2", "list": [{"password": "hunter2"}]},
        },
        spark_applicationDetails={"appToken": "hunter2", "conf": {"password": "hunter2"}},
        unknownSourceAttribute={
            "unknownItems": [{"properties": {"password": "hunter2", "url": "a://b:hunter2@c"}}]
        },
    )
    assert "hunter2" not in str((flow, job))
    assert flow["spark.db.password"] == flow["app.pin"] == job["token"] == REDACTED


@cases("run_facets")
def test_airflow_tags_are_read(tags: Any, expected: list[str] | None) -> None:
    assert parsed(run_facets={"airflow": {"dag": {"tags": tags}}}).airflow_tags == expected


@cases("run_facets")
def test_owners_are_read(facet: Any, expected: list[str]) -> None:
    assert parsed(job_facets={"ownership": facet}).job.texts.owner_names == tuple(expected)


def test_values_that_are_nested_too_deeply_are_left_out() -> None:
    deep: Any = "leaf"
    for _ in range(400):
        deep = {"k": [deep]}
    facets = {
        **spark_properties(a=[deep], b={"c": deep}, d="kept"),
        "spark.logicalPlan": {"plan": deep},
    }
    job, flow = read(parsed(run_facets=facets), spark_plan=True)
    assert job["d"] == "kept"
    assert job["a"].count("{k=") + job["a"].count("[") == 51
    assert "…" in job["a"]
    assert "…" in flow["spark.logicalPlan"]


# -- Details of a run from its facets


AIRFLOW: Json = {
    "taskInstance": {"try_number": 3, "log_url": "http://af/log"},
    "dagRun": {
        "run_type": "scheduled",
        "data_interval_start": "2026-01-01T00:00:00+00:00",
        "data_interval_end": "2026-01-02T00:00:00+00:00",
    },
}
DAY = DataInterval(START_MS, START_MS + 86_400_000)


def written(*events: Json, **options: Any) -> list[Proposal]:
    found = proposals(only_job(events, **options), **options)
    assert [problem for each in found for problem in canonical_violations(each.to_obj())] == []
    return found


@cases("run_facets")
def test_details_of_a_run_are_read(facets: Any, expected: Json) -> None:
    interval = DataInterval(*expected["interval"]) if "interval" in expected else None
    assert RunDetails.of(parsed(run_facets=facets)) == RunDetails(
        **expected | {"interval": interval}
    )


def test_details_of_several_runs_are_merged() -> None:
    own = RunDetails(url="http://own", attempt=2, properties={"a": "own"})
    query_details = RunDetails("http://query", "STREAMING", 9, DAY, {"a": "query", "b": "query"})
    assert RunDetails.merged(own, [None, query_details]) == RunDetails(
        "http://own", "STREAMING", 2, DAY, {"a": "own", "b": "query"}
    )
    assert own.properties == {"a": "own"}
    assert RunDetails.merged(None, [query_details]) == RunDetails(
        "http://query", "STREAMING", None, DAY, {"a": "query", "b": "query"}
    )
    assert RunDetails.merged(None, []) == RunDetails()


def test_details_of_later_events_count() -> None:
    first = RunDetails("http://first", None, 1, DAY, {"a": "1", "b": "1"})
    later = RunDetails(run_type="STREAMING", attempt=2, properties={"b": "2"})
    assert RunDetails.updated(first, later) == RunDetails(
        "http://first", "STREAMING", 2, DAY, {"a": "1", "b": "2"}
    )
    assert (
        RunDetails.updated(first, None)
        is RunDetails.updated(None, first)
        is RunDetails.updated(first, first)
        is first
    )


def test_the_error_of_a_failed_query_is_that_of_its_application() -> None:
    broken = {"spark.exception": {"message": "disk full"}}
    found = written(*whole_application(query("FAIL", run_facets=broken)))
    assert find(found, "dataProcessInstanceProperties").aspect["customProperties"] == {
        "errorMessage": "disk full"
    }


def test_a_streaming_job_has_a_streaming_run() -> None:
    job_type = {"jobType": {"processingType": "STREAMING", "integration": "FLINK"}}
    found = written(event("RUNNING", job_facets=job_type, job_type=None), orchestrator="flink")
    assert find(found, "dataProcessInstanceProperties").aspect["type"] == "STREAMING"


def test_a_single_event_has_the_whole_run() -> None:
    producer = "https://github.com/apache/airflow/tree/providers-openlineage/2.20.3"
    sent = event("COMPLETE", producer=producer, job_type=None, run_facets={"airflow": AIRFLOW})
    found = convert_run_event(sent, settings())
    (run_event,) = find_all(found, "dataProcessInstanceRunEvent")
    assert run_event.aspect["attempt"] == 3
    assert run_event.aspect["messageId"] == "COMPLETE 3"
    assert run_event.aspect["eventGranularity"] == {"unit": "DAY", "multiple": 1}
    assert (
        run_event.aspect["partitionSpec"]["partition"]
        == "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"
    )
    properties = find(found, "dataProcessInstanceProperties").aspect
    assert (properties["externalUrl"], properties["type"]) == ("http://af/log", "BATCH_SCHEDULED")


def test_written_partitions_are_the_partition_spec() -> None:
    condition = {
        "type": "partition",
        "partitions": [
            {"dimensions": {"year": 2026, "month": "01"}},
            {"identifier": "p9", "dimensions": {"year": 1}},
            {"dimensions": None},
        ],
    }
    output = {**file("/z"), "outputFacets": {"subset": {"outputCondition": condition}}}
    events = whole_application(query("START"), query(outputs=[output], second=1))
    found = written(*events)
    as_text = convert_events([json.dumps(each).encode() for each in events], settings())
    assert as_text.proposals(settings()) == found
    spec = {"partition": "p9,year=2026/month=01", "type": "PARTITION"}
    assert find(found, "operation").aspect["partitionSpec"] == spec
    assert {
        str(each.aspect["partitionSpec"]) for each in find_all(found, "dataProcessInstanceRunEvent")
    } == {str(spec)}


@cases("run_facets")
def test_conditions_without_a_partition_are_ignored(condition: Any) -> None:
    output = {**dataset("file", "/z"), "outputFacets": {"subset": {"outputCondition": condition}}}
    assert only_job(whole_application(query(outputs=[output]))).lineage.partitions == ()


# -- Aspects of a DataProcessInstance, as GMS indexes them and acryl-datahub writes them


ONE_DAY = 86_400_000


@cases("run_facets")
def test_granularity_is_in_the_coarsest_unit(length_ms: int, unit: str, multiple: int) -> None:
    assert DataInterval(START_MS, START_MS + length_ms).granularity == {
        "unit": unit,
        "multiple": multiple,
    }


@pytest.mark.parametrize("length_ms", [0, -ONE_DAY, 1, 1_500])
def test_a_moment_has_no_partition(length_ms: int) -> None:
    # Airflow gives a manual run an interval of length zero.
    interval = DataInterval(START_MS, START_MS + length_ms)
    assert interval.granularity is None
    assert partition_spec(interval) == NOT_PARTITIONED


def test_partitions_that_the_producer_names_count_before_the_interval() -> None:
    spec = partition_spec(DataInterval(START_MS, START_MS + ONE_DAY), ("day=2", "day=1"))
    assert spec == {"partition": "day=1,day=2", "type": "PARTITION"}

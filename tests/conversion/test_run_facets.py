"""Details of a run from its facets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.convert import convert_events, convert_run_event
from airflow_provider_spark_datahub.conversion.facets.run import DataInterval, RunDetails
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.redaction import REDACTED
from tests.conversion.builders import (
    OTHER_QUERY,
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
    whole_application,
)
from tests.oracles.strict import canonical_violations

DETAILS: Json = {
    "applicationId": "app-1",
    "userName": "etl",
    "master": "yarn",
    "uiWebUrl": "http://driver:4040",
    "historyUrl": "http://history/app-1",
}
AIRFLOW: Json = {
    "taskInstance": {"try_number": 3, "log_url": "http://af/log"},
    "dagRun": {
        "run_type": "scheduled",
        "data_interval_start": "2026-01-01T00:00:00+00:00",
        "data_interval_end": "2026-01-02T00:00:00+00:00",
    },
}
DAY = DataInterval(START_MS, START_MS + 86_400_000)


def details(**facets: Any) -> RunDetails:
    return RunDetails.of(parsed(run_facets=facets)) or RunDetails()


def written(*events: Json, **options: Any) -> list[Proposal]:
    found = proposals(only_job(events, **options), **options)
    assert [problem for each in found for problem in canonical_violations(each.to_obj())] == []
    return found


def test_an_event_may_have_no_details_of_its_run() -> None:
    assert RunDetails.of(parsed()) is None


def test_details_of_a_spark_application_are_read() -> None:
    found = details(spark_applicationDetails=DETAILS)
    assert found.properties == {"appId": "app-1", "sparkUser": "etl", "master": "yarn"}
    assert found.url == "http://history/app-1"


@pytest.mark.parametrize(
    ("pages", "url"),
    [
        ({"historyUrl": "", "proxyUrl": "http://proxy/"}, "http://proxy/"),
        ({"historyUrl": None}, "http://driver:4040"),
        ({"historyUrl": "http://u:p@history/"}, "http://history/"),
        ({"historyUrl": "javascript:alert(1)", "uiWebUrl": 7}, ""),
    ],
)
def test_the_external_url_is_the_page_of_the_application(pages: Json, url: str) -> None:
    assert details(spark_applicationDetails=DETAILS | pages).url == url


def test_details_of_an_airflow_task_are_read() -> None:
    found = details(airflow=AIRFLOW)
    assert found == RunDetails(url="http://af/log", run_type="BATCH_SCHEDULED", attempt=3, interval=DAY)


@pytest.mark.parametrize(
    ("run_type", "expected"),
    [
        ("manual", "BATCH_AD_HOC"),
        ("operator_triggered", "BATCH_AD_HOC"),
        ("backfill", "BATCH_SCHEDULED"),
        ("asset_triggered", "BATCH_SCHEDULED"),
        (7, None),
    ],
)
def test_details_of_an_airflow_dag_run_are_read(run_type: Any, expected: str | None) -> None:
    assert details(airflowDagRun={"dagRun": {"run_type": run_type}}).run_type == expected


@pytest.mark.parametrize("attempt", [0, -1, True, "1", 2**31, None])
def test_invalid_attempts_are_left_out(attempt: Any) -> None:
    assert details(airflow={"taskInstance": {"try_number": attempt}}).attempt is None


@pytest.mark.parametrize("end", [None, "never", 7])
def test_a_nominal_time_without_end_is_a_schedule_and_no_interval(end: Any) -> None:
    found = details(nominalTime={"nominalStartTime": "2026-01-01T00:00:00Z", "nominalEndTime": end})
    assert (found.run_type, found.interval) == ("BATCH_SCHEDULED", None)


def test_other_facets_become_properties() -> None:
    found = details(
        errorMessage={"message": "boom, password=hunter2", "programmingLanguage": "JAVA", "stackTrace": "…"},
        externalQuery={"externalQueryId": "job-1", "source": "bigquery"},
        extractionError={"totalTasks": 3, "failedTasks": 1, "errors": []},
        tags={"tags": [{"key": "team", "value": "data"}, {"key": "token", "value": "x"}, {"key": ""}, None]},
    )
    assert found.properties == {
        "errorMessage": f"boom, password={REDACTED}",
        "externalQueryId": "job-1",
        "externalQuerySource": "bigquery",
        "extractionTotalTasks": "3",
        "extractionFailedTasks": "1",
        "team": "data",
        "token": REDACTED,
    }


def test_job_dependencies_are_upstream_runs() -> None:
    upstream = [{"run": {"runId": OTHER_QUERY}, "job": {}}, {"job": {"name": "no run"}}, None]
    found = written(*whole_application(run_facets={"jobDependencies": {"upstream": upstream}}))
    relationships = find(found, "dataProcessInstanceRelationships").aspect
    assert relationships["upstreamInstances"] == [f"urn:li:dataProcessInstance:{OTHER_QUERY}"]


def test_details_of_several_runs_are_merged() -> None:
    own = RunDetails(url="http://own", attempt=2, properties={"a": "own"})
    query_details = RunDetails("http://query", "STREAMING", 9, DAY, {"a": "query", "b": "query"}, {"r": None})
    assert RunDetails.merged(own, [None, query_details]) == RunDetails(
        "http://own", "STREAMING", 2, DAY, {"a": "own", "b": "query"}
    )
    assert own.properties == {"a": "own"}
    assert RunDetails.merged(None, [query_details]) == RunDetails(
        "http://query", "STREAMING", None, DAY, {"a": "query", "b": "query"}
    )
    assert RunDetails.merged(None, []) == RunDetails()


def test_details_of_later_events_count() -> None:
    first = RunDetails("http://first", None, 1, DAY, {"a": "1", "b": "1"}, {"r": None})
    later = RunDetails(run_type="STREAMING", attempt=2, properties={"b": "2"}, upstream_runs={"s": None})
    assert RunDetails.updated(first, later) == RunDetails(
        "http://first", "STREAMING", 2, DAY, {"a": "1", "b": "2"}, {"r": None, "s": None}
    )
    assert (
        RunDetails.updated(first, None) is RunDetails.updated(None, first) is RunDetails.updated(first, first) is first
    )


def test_the_error_of_a_failed_query_is_that_of_its_application() -> None:
    broken = {"spark.exception": {"message": "disk full"}}
    found = written(*whole_application(query("FAIL", run_facets=broken)))
    assert find(found, "dataProcessInstanceProperties").aspect["customProperties"] == {"errorMessage": "disk full"}


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
    assert run_event.aspect["partitionSpec"]["partition"] == "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"
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
    found = written(*events, capture_operations=True)
    as_text = convert_events([json.dumps(each).encode() for each in events], settings(capture_operations=True))
    assert as_text.proposals(settings(capture_operations=True)) == found
    spec = {"partition": "p9,year=2026/month=01", "type": "PARTITION"}
    assert find(found, "operation").aspect["partitionSpec"] == spec
    assert {str(each.aspect["partitionSpec"]) for each in find_all(found, "dataProcessInstanceRunEvent")} == {str(spec)}


@pytest.mark.parametrize("condition", [None, {}, {"type": "location", "locations": ["/a"]}, {"type": "partition"}])
def test_conditions_without_a_partition_are_ignored(condition: Any) -> None:
    output = {**dataset("file", "/z"), "outputFacets": {"subset": {"outputCondition": condition}}}
    assert only_job(whole_application(query(outputs=[output]))).lineage.partitions == ()

"""Memory of events and jobs: it is bounded, and a job that differs in anything that counts is read anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.proposals import SharedObject
from airflow_provider_spark_datahub.conversion.runs import coalesce as single_event, lineage as lineage_module
from airflow_provider_spark_datahub.conversion.runs.coalesce import REMEMBERED, Ending, JobLineage, SingleEvents
from airflow_provider_spark_datahub.conversion.runs.fold import DatasetState, RunState
from tests.conversion.builders import (
    QUERY,
    Json,
    column,
    column_lineage,
    file,
    jobs,
    proposals,
    query,
    schema,
    settings,
    symlink,
    urn,
    whole_application,
)

APPS = [f"01900000-0000-7000-8000-0000000000{number}" for number in range(10, 14)]


def job_of(events: SingleEvents, event: Json) -> JobLineage:
    return events.job(RunEvent.parse(json.dumps(event).encode()))


def test_lineages_without_columns_are_remembered_up_to_a_number() -> None:
    events = SingleEvents(settings())
    for number in range(3 * REMEMBERED):
        (output,) = job_of(events, query(outputs=[file(f"/out/{number}")])).lineage.outputs
        assert f"/out/{number}," in output
        assert len(events._remembered) <= REMEMBERED


def test_column_edges_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_event, "REMEMBERED_EDGES", 10)
    events = SingleEvents(settings())
    facet = column_lineage({f"c{number}": [column("/in", "x")] for number in range(4)})
    for number in range(20):
        job = job_of(events, query(outputs=[file(f"/out/{number}", columnLineage=facet)]))
        assert len(job.lineage.fine_grained) == 4
        assert len(events._remembered) <= 3


def test_repeated_parts_of_an_event_are_not_read_again() -> None:
    events = SingleEvents(settings())
    first, second = (job_of(events, query(kind, outputs=[file("/out")])) for kind in ("RUNNING", "COMPLETE"))
    assert first.lineage.outputs is second.lineage.outputs


@pytest.mark.parametrize(("options", "is_shared"), [({}, True), ({"capture_spark_plan": True}, False)])
def test_plans_are_not_remembered(options: dict[str, Any], is_shared: bool) -> None:
    plan = {"spark.logicalPlan": {"plan": [{"class": "Scan"}]}}
    job = job_of(SingleEvents(settings(**options)), query(run_facets=plan))
    assert (type(job.definition.flow_properties) is SharedObject) is is_shared
    assert ("spark.logicalPlan" in job.definition.flow_properties) is not is_shared


def run_of_job(app: str, *queries: Json) -> list[bytes]:
    """Return the texts of the events of one run of a job; its queries get ids of their own."""
    for query_event in queries:
        run = query_event["run"]
        run["runId"] = run["runId"][:-6] + app[-2:] + run["runId"][-4:]
        run["facets"]["parent"]["run"]["runId"] = app
    return [json.dumps(event).encode() for event in whole_application(*queries, run_id=app)]


def copy_of(second: int = 1, kind: str = "COMPLETE", run_id: str = QUERY, **facets: Json) -> Json:
    lineage = column_lineage({"x": [column("/in", "x", "DIRECT:IDENTITY")]})
    out = file("/out", schema=schema(("x", "int")), columnLineage=lineage)
    return query(kind, second=second, run_id=run_id, inputs=[file("/in", **facets)], outputs=[out])


def test_the_next_run_of_a_job_shares_its_lineage() -> None:
    single_event._lineages.cache_clear()
    first, second, third = (jobs(run_of_job(app, copy_of(second)))[0] for second, app in enumerate(APPS[:3], 1))
    # What comes once is not compared.
    assert first.lineage is not second.lineage
    assert second.lineage is third.lineage
    assert second.run_urn != third.run_urn


def rdd_job(second: int) -> Json:
    return query("START", run_id=QUERY.replace("1", "2"), second=second, job_type="RDD_JOB", inputs=[file("/out")])


TABLE = query(run_id=QUERY.replace("1", "3"), inputs=[file("/in", symlinks=symlink("hive://m", "db.t"))])
RUNS = {
    "a schema": (copy_of(), copy_of(schema=schema(("x", "int")))),
    "a failure": (copy_of(), copy_of(kind="FAIL")),
    "no end": (copy_of(), copy_of(kind="START")),
    "the order of a read and a write": ([rdd_job(1), copy_of(5)], [rdd_job(7), copy_of(5)]),
}


@pytest.mark.parametrize("difference", RUNS)
def test_a_run_that_differs_is_read_anew(difference: str) -> None:
    before, after = ([item] if isinstance(item, dict) else item for item in RUNS[difference])
    ending, options = Ending(succeeded=False), {"materialize_dataset": True, "include_schema_metadata": True}
    single_event._lineages.cache_clear()
    (alone,) = jobs(run_of_job(APPS[0], *after), ending, **options)
    single_event._lineages.cache_clear()
    (_, other) = (jobs(run_of_job(app, *before), ending, **options)[0] for app in APPS[1:3])
    (job,) = jobs(run_of_job(APPS[0], *after), ending, **options)
    assert job.lineage is not other.lineage
    assert proposals(job, **options) == proposals(alone, **options)


def test_a_table_named_by_another_application_counts() -> None:
    (_, path) = (jobs(run_of_job(app, copy_of()))[0] for app in (APPS[0], APPS[3]))
    table, _ = jobs([*run_of_job(APPS[1], copy_of()), *run_of_job(APPS[2], TABLE)])
    assert list(path.lineage.inputs) == [urn("file", "/in")]
    assert list(table.lineage.inputs) == [urn("hive", "db.t")]


def test_long_lineages_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_module, "_MOST_COMPARED", 3)
    _, first, second = (jobs(run_of_job(app, copy_of()))[0] for app in APPS[:3])
    assert first.lineage is not second.lineage


def test_no_field_of_a_run_is_forgotten_in_the_comparison() -> None:
    # Whoever adds a field that the lineage depends on has to add it to ``lineage_key``.
    places = {"index", "last_index", "start_ms", "end_ms", "inputs", "outputs", "checks"}
    compared = {"job_name", "job_type", "sql", "failure", "refused", "is_logged", "started", "ended", "worked"}
    of_evidence = {"run_id", "reported"}
    of_job = {"flow", "parent_run_id", "app_name", "session_name", "description", "properties", "owners", "details"}
    assert set(RunState.__struct_fields__) == places | compared | of_evidence | of_job
    facets = {"schema", "schema_index", "columns", "lifecycle", "previous", "partitions", "layer", "gap", "is_metadata"}
    assert set(DatasetState.__struct_fields__) == facets | {"metadata"} | {"statistics"}  # those of operations

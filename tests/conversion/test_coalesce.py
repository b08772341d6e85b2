"""Runs to applications to jobs, and renamed tables (conversion rules, section 7)."""

from __future__ import annotations

import itertools

import pytest

from airflow_provider_spark_datahub.conversion import Ending, JobLineage
from airflow_provider_spark_datahub.conversion.runs.coalesce import RunResult
from tests.cases import cases
from tests.conversion.builders import (
    APP,
    OTHER_QUERY,
    QUERY,
    Json,
    application,
    file,
    file_urns,
    jobs,
    only_job,
    query,
    schema,
    whole_application,
)
from tests.conversion.recordings import column_pairs
from tests.conversion.short_events import events_of, paths

# -- Runs to applications to jobs (conversion rules, section 7, and the deviations that bear on it)


SUCCESS = RunResult("SUCCESS", "COMPLETE")


def edges(job: JobLineage) -> tuple[list[str], list[str]]:
    return list(job.lineage.inputs), list(job.lineage.outputs)


def rdd(*inputs: Json, outputs: tuple[Json, ...] = (), run_id: str = OTHER_QUERY) -> Json:
    return query(
        "START",
        run_id=run_id,
        job="shop.map_partitions",
        job_type="RDD_JOB",
        inputs=inputs,
        outputs=outputs,
    )


def test_parents_in_a_circle_end_the_search() -> None:
    circle = [query(run_id=QUERY, parent=OTHER_QUERY), query(run_id=OTHER_QUERY, parent=QUERY)]
    assert {job.run.id for job in jobs(circle)} <= {QUERY, OTHER_QUERY}


SQL_READ = query(inputs=[file("/lake/raw/orders.csv")], outputs=[file("/lake/out")])


@cases("coalesce")
def test_phantom_reads_are_dropped(listed: str, inputs: list[str]) -> None:
    for queries in itertools.permutations([SQL_READ, rdd(file(listed))]):
        assert list(only_job(whole_application(*queries)).lineage.inputs) == file_urns(*inputs)


FILE_READ = query(
    inputs=[file("/lake/raw/orders.csv", schema=schema(("id", "int")))],
    outputs=[file("/lake/out")],
    second=1,
)


@cases("coalesce")
def test_the_folder_of_a_file_that_an_rdd_read_is_not_an_input(
    of_rows: Json, inputs: list[str]
) -> None:
    write = query(run_id=OTHER_QUERY, inputs=[of_rows], outputs=[file("/lake/mapped")], second=2)
    for queries in itertools.permutations([FILE_READ, write]):
        job = only_job(whole_application(*queries))
        assert list(job.lineage.inputs) == file_urns(*inputs)
        gap = f"no input of {file_urns('/lake/mapped')[0]} is known: OpenLineage names only a folder around the file"
        assert any(found.startswith(gap) for found in job.diagnostics.gaps) == (
            inputs == ["/lake/raw/orders.csv"]
        )


def fields_of(events: list[Json]) -> list[str]:
    job = only_job(events, datasets="schemas")
    (found,) = job.lineage.outputs.values()
    return [field["fieldPath"] for field in (found.schema or {"fields": []})["fields"]]


def test_the_last_schema_counts() -> None:
    # Deviation 2, within a run and between runs.
    old, new = (
        file("/z", schema=schema(("a", "int"))),
        file("/z", schema=schema(("a", "int"), ("b", "int"))),
    )
    between_runs = whole_application(
        query(outputs=[old]), query(run_id=OTHER_QUERY, second=2, outputs=[new])
    )
    within_a_run = whole_application(
        query("START", outputs=[old]), query("COMPLETE", second=2, outputs=[new])
    )
    assert fields_of(between_runs) == fields_of(within_a_run) == ["a", "b"]


@pytest.mark.parametrize(
    "later", [{}, {"schema": None}, {"schema": {}}, {"schema": {"_producer": "x"}}]
)
@pytest.mark.parametrize("run_id", [QUERY, OTHER_QUERY])
def test_an_event_without_schema_removes_none(later: Json, run_id: str) -> None:
    # A facet without ``fields`` does not count as a schema (section 4).
    known = query("START", outputs=[file("/z", schema=schema(("a", "int")))])
    events = whole_application(
        known, query("COMPLETE", run_id=run_id, second=2, outputs=[file("/z", **later)])
    )
    assert fields_of(events) == ["a"]


def test_properties_are_merged_and_the_first_value_wins() -> None:
    # The first value wins; the application's times; the flow's name from whichever event carries
    # it.
    details = {
        "spark_applicationDetails": {
            "appName": "My Shop",
            "applicationId": "local-1",
            "userName": "jane",
        }
    }
    first = {"spark_properties": {"properties": {"spark.master": "local[2]"}}}
    second = {"spark_properties": {"properties": {"spark.master": "yarn", "spark.x": "1"}}}
    events = [
        application("START", job="my_shop", run_facets={**first, **details}),
        query(second=1, job="my_shop.insert", run_facets=second),
        application("COMPLETE", second=59, job="my_shop"),
    ]
    job = only_job(events)
    assert (job.definition.flow.flow_id, job.definition.id, job.definition.name) == (
        "My Shop",
        "My Shop",
        "My Shop",
    )
    times = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:59Z")
    shared = {"spark.master": "local[2]", "spark.x": "1"}
    assert job.definition.properties == {**shared, "startTime": times[0], "endTime": times[1]}
    assert job.definition.flow_properties == {
        **shared,
        "appName": "My Shop",
        "appId": "local-1",
        "sparkUser": "jane",
        "startedAt": times[0],
        "finishedAt": times[1],
    }


def test_the_flow_comes_from_the_last_event() -> None:
    job = only_job(
        [application("START", namespace="old"), application("COMPLETE", second=9, namespace="new")]
    )
    assert job.definition.flow.urn == "urn:li:dataFlow:(spark,shop,new)"


# -- Edges and results of whole applications


@cases("edges")
def test_edges(
    events: list[str], inputs: list[str], outputs: list[str], columns: list[str]
) -> None:
    job = only_job(whole_application(*events_of(events)), Ending(succeeded=True))
    assert (paths(job.lineage.inputs), paths(job.lineage.outputs)) == (inputs, outputs)
    assert sorted({" -> ".join(paths(pair)) for pair in column_pairs([job])}) == columns


@cases("edges")
def test_results(
    events: list[str],
    ending: Json,
    result: list[str] | None,
    adds_only: bool,
    inputs: list[str],
    outputs: list[str],
) -> None:
    job = only_job(events_of(events), Ending(**ending))
    assert job.run.result == (RunResult(*result) if result else None)  # type: ignore[arg-type]
    assert (job.run.id, job.patch_edges) == (APP, adds_only)
    assert (paths(job.lineage.inputs), paths(job.lineage.outputs)) == (inputs, outputs)


@pytest.mark.parametrize(
    "part", ["adaptive_spark_plan", "execute_insert_into_hadoop_fs_relation_command"]
)
def test_a_table_without_rows_was_written_if_a_query_within_wrote_it(part: str) -> None:
    # Spark optimises a query without rows away. A write of files without any job was refused.
    outer, counted = (
        "shop.execute_create_data_source_table_as_select_command.t",
        {"outputStatistics": {"rowCount": 1}},
    )
    table: Json = {"inputs": [file("/a")], "outputs": [file("/t")]}
    events = whole_application(
        query(run_id="run-1", second=1, outputs=[{**file("/z"), "outputFacets": counted}]),
        query("START", run_id="run-2", second=2, job=outer, **table),
        *(
            query(kind, run_id="run-3", second=3, job=f"shop.{part}.t", **table)
            for kind in ("START", "COMPLETE")
        ),
        query(run_id="run-2", second=4, job=outer, **table),
    )
    job = only_job(events, Ending(succeeded=True))
    assert (file_urns("/t")[0] in job.lineage.outputs) == (part == "adaptive_spark_plan")
    assert any(gap.startswith("not written") for gap in job.diagnostics.gaps) != (
        part == "adaptive_spark_plan"
    )

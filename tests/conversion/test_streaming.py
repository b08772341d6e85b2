"""Streaming queries as jobs: real applications against what they truly read and wrote, and the
rules one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.convert import Converter
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending, JobLineage
from airflow_provider_spark_datahub.conversion.spark_log.streaming import (
    _datasets_of,
    coalesce_with_queries,
)
from tests.cases import cases
from tests.conversion import builders
from tests.conversion.builders import CORPUS, Json, file_urns, json_lines, proposals, settings, urn
from tests.conversion.event_logs import (
    QUERY_ID,
    QUERY_RUN,
    STREAMING,
    app_ended,
    app_started,
    environment,
    execution,
    folded,
    query_progressed,
    query_started,
    query_terminated,
    read_log,
    recorded_events,
    recorded_log,
)

VERSIONS = ["3.5.9", "4.0.5", "4.3.0"]
TABLE = urn("hive", "default.stream_orders")
IN, RAW, NAMES = "/lake/out/s/in", "/lake/raw/orders.csv", "/lake/raw/names.csv"
# What the recorded job does, written from the job.
TRUTH = {
    # It creates the table without data, which only the query writes.
    "stream shop": (file_urns(RAW, NAMES), file_urns(IN), "SUCCESS"),
    "paid_to_parquet": (file_urns(IN), file_urns("/lake/out/s/paid"), "SUCCESS"),
    "rate_mem": ([], [], "SUCCESS"),
    "foreach_batch": (file_urns(IN, NAMES), file_urns("/lake/out/s/fb"), "SUCCESS"),
    "nameless": (file_urns(IN, NAMES), file_urns("/lake/out/s/no [name] here"), "SUCCESS"),
    "to_table": (file_urns(IN), [TABLE], "SUCCESS"),
    "fails": (file_urns(IN), [], "FAILURE"),
    "to_console": ([TABLE], [], "SUCCESS"),
}
SUCCEEDED = Ending(succeeded=True)
OTHER_RUN = "0a000000-0000-4000-8000-000000000002"


def recorded_jobs(version: str, **options: Any) -> list[JobLineage]:
    fold = folded(recorded_events(f"streaming-{version}"), **options)
    log = recorded_log(f"streaming-{version}")
    symlinks = fold.symlinks.by_dataset
    return list(
        coalesce_with_queries(fold.applications(), log, symlinks, settings(**options), SUCCEEDED)
    )


def jobs_of(
    log: Iterable[Json],
    events: Iterable[Json] = (),
    ending: Ending = SUCCEEDED,
    log_complete: bool = True,
    **options: Any,
) -> list[JobLineage]:
    fold = folded(events, **options)
    applications, symlinks, wanted = (
        fold.applications(),
        fold.symlinks.by_dataset,
        settings(**options),
    )
    return list(
        coalesce_with_queries(
            applications, read_log(log), symlinks, wanted, ending, log_complete=log_complete
        )
    )


def query_job(log: Iterable[Json], events: Iterable[Json] = (), **more: Any) -> JobLineage:
    *_, job = jobs_of(log, events, **more)
    return job


def edges(job: JobLineage) -> tuple[list[str], list[str]]:
    return list(job.lineage.inputs), list(job.lineage.outputs)


def micro_batch(kind: str = "COMPLETE", *, group: str | None = QUERY_RUN, **more: Any) -> Json:
    details = {"spark_jobDetails": {"jobId": 4, "jobGroup": group}} if group else {}
    return builders.query(kind, run_facets=details, **more)


@pytest.mark.parametrize("version", VERSIONS)
def test_queries_of_a_real_application_are_jobs_with_their_true_edges(version: str) -> None:
    jobs = recorded_jobs(version)
    path = "lake.out.s.no__name__here" if version == "3.5.9" else "file_.lake.out.s.no__name__here"
    found = {
        job.definition.id.replace(f"file_sink_{path}", "nameless"): (
            *edges(job),
            job.run.result and job.run.result.type,
        )
        for job in jobs
    }
    assert found == TRUTH
    assert len(jobs) == len(TRUTH)


@pytest.mark.parametrize("version", VERSIONS)
def test_runs_of_real_queries_are_children_of_their_application(version: str) -> None:
    application, *queries = recorded_jobs(version)
    (logged,) = recorded_log(f"streaming-{version}")
    assert [job.run.id for job in queries] == list(logged.queries)
    assert {job.run.parent_urn for job in queries} == {application.run_urn}
    assert (application.run.is_application, {job.run.is_application for job in queries}) == (
        True,
        {False},
    )
    # Nothing new was found where no row was read; a query that failed adds only.
    idle = {
        job.definition.id
        for job, query in zip(queries, logged.queries.values(), strict=True)
        if not query.rows
    }
    assert {job.definition.id for job in queries if job.patch_edges} == {"fails"} | idle


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_of_a_query_come_from_its_source_not_from_the_files_of_a_batch(
    version: str,
) -> None:
    (job,) = [job for job in recorded_jobs(version) if job.definition.id == "to_table"]
    upstreams = {
        upstream for lineage in job.lineage.fine_grained for upstream in lineage["upstreams"]
    }
    source = file_urns(IN)[0]
    assert upstreams == {
        f"urn:li:schemaField:({source},{name})" for name in ("order_id", "status", "amount")
    }


def corpus_log() -> list[Json]:
    """Return the progress of the corpus's job as the event log has it. A listener of its own
    recorded it.
    """
    kinds = {
        "started": "QueryStartedEvent",
        "progress": "QueryProgressEvent",
        "terminated": "QueryTerminatedEvent",
    }
    lines = json_lines(CORPUS / "events" / "streaming_progress.ndjson")
    return [
        {"Event": STREAMING + kinds[one["event"]], **one} for one in lines if one["event"] in kinds
    ]


def test_corpus_flow_and_job_properties_are_those_of_the_java_listener() -> None:
    java = json_lines(CORPUS / "java-listener" / "streaming_progress.jsonl")
    latest = {(one["entityUrn"], one["aspectName"]): one["aspect"] for one in java}
    jobs = jobs_of(corpus_log(), platform_instance="pi")
    for job in jobs:
        ours = {
            (each.entity_urn, each.aspect_name): each.aspect
            for each in proposals(job, platform_instance="pi")
        }
        theirs = latest.get((job.definition.flow.urn, "dataFlowInfo"))
        if theirs is None:
            # It was stopped before its first progress.
            assert job.definition.id == "rate_mem"
            continue
        flow = ours[job.definition.flow.urn, "dataFlowInfo"]["customProperties"]
        assert flow["plan"] == theirs["customProperties"]["plan"]
        info = latest[job.job_urn, "dataJobInfo"]["customProperties"]
        assert info.items() <= ours[job.job_urn, "dataJobInfo"]["customProperties"].items()
        assert (
            ours[job.job_urn, "dataJobInfo"]["name"] == latest[job.job_urn, "dataJobInfo"]["name"]
        )


# -- the rules one by one

ONE_QUERY = [
    app_started(),
    query_started(10),
    query_progressed(11),
    query_terminated(),
    app_ended(),
]


def test_rates_of_all_sources_are_summed() -> None:
    two = [
        "FileStreamSource[file:/lake/in]",
        "FileStreamSource[file:/lake/more]",
        "FileStreamSource[file:/lake/in]",
    ]
    job = query_job([app_started(), query_progressed(sources=two)])
    rates = {
        key: job.definition.properties[key]
        for key in ("numInputRows", "inputRowsPerSecond", "processedRowsPerSecond")
    }
    assert rates == {
        "numInputRows": "15",
        "inputRowsPerSecond": "1.5",
        "processedRowsPerSecond": "6.0",
    }
    assert list(job.lineage.inputs) == file_urns("/lake/in", "/lake/more")


@cases("streaming")
def test_the_name_of_a_query_is_stable(name: str | None, sink: str, job_id: str) -> None:
    for run_id, batch in ((QUERY_RUN, 3), (OTHER_RUN, 8)):
        progress = query_progressed(sink=sink, name=name, run_id=run_id, batch=batch)
        job = query_job([app_started(), query_started(name=name, run_id=run_id), progress])
        assert (job.definition.flow.flow_id, job.definition.id, job.definition.name) == (
            job_id,
            job_id,
            job_id,
        )


@cases("streaming")
def test_a_sink_without_a_name_is_named_in_the_report(sink: str, gap: str | None) -> None:
    gaps = query_job([app_started(), query_progressed(sink=sink)]).diagnostics.gaps
    expected = f"no output of the streaming query 'paid' is known: {gap}"
    assert [found for found in gaps if found.startswith("no output")] == ([expected] if gap else [])


def test_the_flow_of_a_query_differs_only_in_its_name() -> None:
    events = builders.whole_application(namespace="analytics", job="shop")
    assert (
        query_job(ONE_QUERY, events).definition.flow.urn == "urn:li:dataFlow:(spark,paid,analytics)"
    )
    assert (
        query_job(ONE_QUERY, platform_instance="eu").definition.flow.urn
        == "urn:li:dataFlow:(spark,paid,eu)"
    )


def test_pipeline_name_makes_one_job_of_all_which_keeps_the_edges_of_all() -> None:
    events = builders.whole_application(
        builders.query(inputs=[builders.file("/lake/raw")], outputs=[builders.file("/lake/in")])
    )
    jobs = jobs_of(ONE_QUERY, events, pipeline_name="nightly")
    assert {job.job_urn for job in jobs} == {
        "urn:li:dataJob:(urn:li:dataFlow:(spark,nightly,default),nightly)"
    }
    assert [(job.run.id, edges(job), job.patch_edges) for job in jobs] == [
        (builders.APP, (file_urns("/lake/raw"), file_urns("/lake/in")), False),
        (QUERY_RUN, (file_urns("/lake/in"), file_urns("/lake/paid")), True),
    ]


def test_query_started_twice_is_one_job_with_two_runs() -> None:
    again = [
        query_started(20, run_id=OTHER_RUN),
        query_progressed(21, run_id=OTHER_RUN, sources=["KafkaV2[Subscribe[orders]]"]),
        query_terminated(run_id=OTHER_RUN),
    ]
    jobs = jobs_of([*ONE_QUERY[:-1], *again, app_ended()])
    assert len({job.job_urn for job in jobs}) == 1
    assert [(job.run.id, edges(job), job.patch_edges) for job in jobs] == [
        (QUERY_RUN, (file_urns("/lake/in"), file_urns("/lake/paid")), False),
        (OTHER_RUN, ([urn("kafka", "orders")], file_urns("/lake/paid")), True),
    ]


@cases("streaming")
def test_the_result_of_a_query_comes_from_the_log(
    exception: str | None, app_ends: bool, ending: Json, result: str | None
) -> None:
    logged = [] if exception is None else [query_terminated(exception or None)]
    log = [
        app_started(),
        query_started(),
        query_progressed(),
        *logged,
        *([app_ended()] if app_ends else []),
    ]
    job = query_job(log, [micro_batch()], ending=Ending(**ending))
    assert (job.run.result and job.run.result.type) == result


@pytest.mark.parametrize(
    ("log", "more"),
    [
        ([app_started(), query_started(), query_terminated()], {}),
        ([app_started(), query_started(), query_progressed(rows=0), query_terminated()], {}),
        ([app_started(), query_started(), query_progressed(), query_terminated("boom")], {}),
        (ONE_QUERY, {"log_complete": False}),
        (ONE_QUERY, {"ending": Ending(succeeded=True, events_complete=False)}),
        (ONE_QUERY, {"ending": Ending(final=False)}),
        (ONE_QUERY, {"use_patch": True}),
    ],
)
def test_a_run_that_may_be_incomplete_removes_no_edges(log: list[Json], more: Json) -> None:
    assert query_job(log, [micro_batch()], **more).patch_edges


def test_micro_batches_leave_the_application_and_add_to_their_query() -> None:
    seen: Json = {
        "inputs": [builders.file("/lake/in"), builders.file("/lake/names")],
        "outputs": [builders.file("/lake/fb")],
    }
    events = builders.whole_application(
        builders.query(
            "START", run_id=builders.OTHER_QUERY, outputs=[builders.file("/lake/batch")]
        ),
        micro_batch("RUNNING", **seen),
        builders.query("COMPLETE", **seen),
    )
    application, query = jobs_of(ONE_QUERY, events)
    assert edges(application) == ([], file_urns("/lake/batch"))
    assert edges(query) == (
        file_urns("/lake/in", "/lake/names"),
        file_urns("/lake/fb", "/lake/paid"),
    )
    assert query.run.parent_urn == application.run_urn


def test_operations_of_micro_batches_are_those_of_their_query() -> None:
    written = {**builders.file("/lake/fb"), "outputFacets": {"outputStatistics": {"rowCount": 5}}}
    events = builders.whole_application(
        micro_batch("RUNNING", outputs=[written]), builders.query("COMPLETE", outputs=[written])
    )
    application, query = jobs_of(ONE_QUERY, events)
    assert [(one.dataset, one.statistics.rows) for one in query.operations] == [
        (*file_urns("/lake/fb"), 5)
    ]
    assert list(application.operations) == []


def test_tables_that_no_event_names_come_from_the_log() -> None:
    events = builders.whole_application(
        micro_batch("RUNNING", job="shop.append_data.ice_db_paid"),
        builders.query("COMPLETE", job="shop.append_data.ice_db_paid"),
    )
    application, query = jobs_of(ONE_QUERY, events)
    assert (application.diagnostics.unreported_queries, application.patch_edges) == ((), False)
    assert (query.diagnostics.unreported_queries, query.patch_edges) == (
        ("append_data.ice_db_paid",),
        True,
    )


def test_micro_batch_without_a_spark_job_is_known_by_its_times() -> None:
    description = f"paid\nid = {QUERY_ID}\nrunId = {QUERY_RUN}\nbatch = 0"
    log = [*ONE_QUERY, *execution(1, 20, 22, description=description), *execution(2, 30, 31)]
    events = builders.whole_application(
        builders.query("COMPLETE", second=22, inputs=[builders.file("/lake/names")]),
        builders.query(
            "START", run_id=builders.OTHER_QUERY, second=30, inputs=[builders.file("/lake/batch")]
        ),
    )
    application, query = jobs_of(log, events)
    assert list(application.lineage.inputs) == file_urns("/lake/batch")
    assert list(query.lineage.inputs) == file_urns("/lake/in", "/lake/names")


def test_an_ambiguous_time_assigns_no_query() -> None:
    description = f"paid\nid = {QUERY_ID}\nrunId = {QUERY_RUN}\nbatch = 0"
    log = [*ONE_QUERY, *execution(1, 20, 22, description=description), *execution(2, 20, 22)]
    events = builders.whole_application(
        builders.query("START", second=20, inputs=[builders.file("/lake/raw")])
    )
    application, query = jobs_of(log, events)
    assert list(application.lineage.inputs) == file_urns("/lake/raw")
    assert list(query.lineage.inputs) == file_urns("/lake/in")


def test_a_path_without_scheme_is_on_the_default_file_system() -> None:
    progress = query_progressed(sink="FileSink[/lake/paid]")
    assert list(
        query_job([environment("file:///"), app_started(), progress]).lineage.outputs
    ) == file_urns("/lake/paid")
    assert list(query_job([app_started(), progress]).lineage.outputs) == [urn("hdfs", "/lake/paid")]


def test_applications_find_their_own_log() -> None:
    def events(app_id: str, run_id: str, second: int) -> list[Json]:
        facets = {"spark_applicationDetails": {"applicationId": app_id}}
        return [builders.application(kind, run_id=run_id, second=second, run_facets=facets)
                for kind in ("START", "COMPLETE")]  # fmt: skip

    log = [app_started("app-2"), *ONE_QUERY[1:], app_started("app-1", 60), app_ended(70)]
    other = "01900000-0000-7000-8000-0000000000bb"
    reported = [*events("app-1", builders.APP, 1), *events("app-2", other, 2)]
    converter = Converter(settings())
    for event in reported:
        converter.add(event)
    assert converter.application_ids == {"app-1", "app-2"}
    *_, query = jobs_of(log, reported)
    assert query.run.parent_urn == f"urn:li:dataProcessInstance:{other}"


def test_run_tree_keeps_the_query_below_its_application() -> None:
    from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt

    task_try = TaskAttempt(DagRun(AirflowSite(), "dag", "run"), "task", try_number=1)
    application, query = task_try.attach(
        jobs_of(ONE_QUERY, builders.whole_application()), settings()
    )
    assert application.run.parent_urn == task_try.urn
    assert query.run.parent_urn == application.run_urn
    assert query.definition.upstream_jobs == (task_try.job_urn,)
    # Another task may run the same query.
    assert query.job_urn == f"urn:li:dataJob:({query.definition.flow.urn},dag.task)"
    assert (
        query.definition.name
        == query.definition.flow.flow_id
        != application.definition.flow.flow_id
    )


# -- sources and sinks as datasets


def urns_of(
    description: str, offset: object = None, default_fs: str = "", **options: object
) -> list[str]:
    namer = DatasetNamer(settings(**options), {})
    named = [namer.name(dataset) for dataset in _datasets_of(description, offset, default_fs)]
    return [name.urn for name in named if name is not None]


@cases("streaming")
def test_sources_are_named(description: str, default_fs: str, expected: str) -> None:
    assert urns_of(description, default_fs=default_fs) == [urn(*expected.split(",", 1))]


@cases("streaming")
def test_topics_of_kafka_are_read(description: str, offset: object, topics: list[str]) -> None:
    assert urns_of(description, offset) == [urn("kafka", topic) for topic in topics]


@cases("streaming")
def test_sources_without_a_dataset(description: str) -> None:
    assert urns_of(description, default_fs="file:///") == []

"""Snapshots of a running job: the end confirms them, or takes back what it cannot confirm."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import (
    Conversion,
    Converter,
    Ending,
    JobLineage,
    Proposal,
    convert,
    patched_edges,
    retractions,
)
from airflow_provider_spark_datahub.conversion.convert import KEPT_EXECUTIONS
from tests.cases import cases
from tests.conversion.builders import (
    APP,
    CORPUS,
    OTHER_QUERY,
    QUERY,
    START_MS,
    Json,
    application,
    column,
    column_lineage,
    event,
    file,
    file_urns,
    find,
    find_all,
    json_lines,
    of_application,
    query,
    settings,
    whole_application,
)
from tests.conversion.event_logs import (
    QUERY_RUN,
    RECORDED,
    app_started,
    execution,
    query_progressed,
    query_started,
    query_terminated,
    recorded_events,
)
from tests.conversion.recordings import lines_of
from tests.conversion.short_events import events_of, paths
from tests.oracles.strict import canonical_violations

MORE = CORPUS.parent / "more_jobs" / "events"
JOBS = sorted(
    path
    for path in (*(CORPUS / "events").iterdir(), *MORE.iterdir())
    if path.stem != "streaming_progress"
)
LOGGED = ["batch-4.3.0", "streaming-3.5.9", "streaming-4.0.5", "streaming-4.3.0"]
SEEN_OTHERWISE_LATER = ("b_multi_sql_hive", "drop_rename", "external_tables")
"""Jobs that rename tables, or that name the table behind a path only in the outer query."""
DETAILS = {"spark_applicationDetails": {"appName": "shop"}}
STARTED = application("START", run_facets=DETAILS)


def converter(events: Iterable[object] = (), log: Iterable[Json] = (), **options: Any) -> Converter:
    made = Converter(settings(**options))
    for one in events:
        made.add(one)
    for logged in log:
        made.add_log_event(logged)
    return made


def snapshot(*events: object, log: Sequence[Json] = (), **options: Any) -> Conversion:
    return converter(events, log, **options).snapshot(with_log=bool(log))


def only(conversion: Conversion) -> JobLineage:
    (job,) = conversion.jobs
    return job


def edges(conversion: Conversion) -> set[tuple[str, ...]]:
    """Return the jobs, their datasets, and their column edges."""
    found: set[tuple[str, ...]] = set()
    for job in conversion.jobs:
        found |= {(job.job_urn, job.run_urn)}
        found |= {(job.job_urn, "reads", urn) for urn in job.lineage.inputs}
        found |= {(job.job_urn, "writes", urn) for urn in job.lineage.outputs}
        found |= {
            (job.job_urn, one["transformOperation"], upstream, downstream)
            for one in job.lineage.fine_grained
            for upstream in one["upstreams"]
            for downstream in one["downstreams"]
        }
    return found


def added(proposals: Iterable[Proposal]) -> set[tuple[str, str]]:
    return {(urn, path) for urn, paths in patched_edges(proposals).items() for path in paths}


def removed(taken_back: Iterable[Proposal]) -> set[tuple[str, str]]:
    for one in taken_back:
        assert {operation["op"] for operation in one.aspect} == {"remove"}
    return added(taken_back)


@pytest.mark.slow
@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_end_of_a_real_job_confirms_or_takes_back_each_snapshot(path: Path) -> None:
    running, reported = converter(), set[tuple[str, str]]()
    for line in lines_of(path.with_name(path.name.removesuffix(".gz"))):
        running.add(line)
        conversion = running.snapshot()
        assert {job.run.result for job in conversion.jobs} <= {None}
        reported |= added(conversion.proposals(settings()))
    for succeeded in (True, False):
        end = running.finish(Ending(succeeded)).proposals(settings())
        by_job: dict[str, set[str]] = {}
        for urn, edge in reported:
            by_job.setdefault(urn, set()).add(edge)
        taken_back = retractions(by_job, end)
        assert [canonical_violations(one.to_obj()) for one in taken_back] == [[]] * len(taken_back)
        replaced = {
            one.entity_urn
            for one in find_all(end, "dataJobInputOutput")
            if one.change_type == "UPSERT"
        }
        left = {(urn, edge) for urn, edge in reported - removed(taken_back) if urn not in replaced}
        assert left <= added(end)
        if not replaced:
            seen_otherwise = {edge for _, edge in reported - added(end)}
            assert bool(seen_otherwise) == path.name.startswith(SEEN_OTHERWISE_LATER), (
                seen_otherwise
            )


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", LOGGED)
def test_a_snapshot_at_any_moment_of_a_streaming_job_is_confirmed_or_removed(name: str) -> None:
    log = [json.loads(line) for line in lines_of(RECORDED / f"{name}.ndjson")]
    events = lines_of(RECORDED / f"{name}.openlineage.ndjson")
    end = edges(converter(events, log).finish(Ending(succeeded=True)))
    last_snapshot = set()
    for known in (*range(0, len(log), len(log) // 9), len(log)):
        running = converter(log=log[:known])
        for line in events:
            running.add(line)
            last_snapshot = edges(running.snapshot(with_log=True))
            assert last_snapshot <= end
    # A query that failed before its first progress is reported at the end only.
    assert not [edge for edge in end - last_snapshot if "fails" not in edge[0]]


def test_the_end_is_the_same_with_and_without_snapshots() -> None:
    events = lines_of(CORPUS / "events" / "b_multi_sql_hive.ndjson")
    running = converter()
    for line in events:
        running.add(line)
        running.snapshot()
    assert running.finish(Ending(succeeded=True)) == converter(events).finish(
        Ending(succeeded=True)
    )


def test_a_snapshot_patches_edges_and_has_no_end() -> None:
    done = query(run_id=QUERY, second=5, inputs=[file("/a")], outputs=[file("/z")])
    proposals = snapshot(STARTED, done, application("COMPLETE", second=9)).proposals(settings())
    assert [canonical_violations(one.to_obj()) for one in proposals] == [[]] * len(proposals)
    (edges_of_output,) = find_all(proposals, "dataJobInputOutput")
    assert edges_of_output.change_type == "PATCH"
    assert edges_of_output.entity_urn.endswith(",shop.file./z)")
    (started,) = find_all(proposals, "dataProcessInstanceRunEvent")
    assert (started.aspect["status"], started.entity_urn) == (
        "STARTED",
        f"urn:li:dataProcessInstance:{APP}",
    )
    flow, job = (
        find(proposals, "dataFlowInfo").aspect,
        of_application(proposals, "dataJobInfo").aspect,
    )
    assert (
        flow["customProperties"]["startedAt"]
        == job["customProperties"]["startTime"]
        == "2026-01-01T00:00:00Z"
    )
    assert "finishedAt" not in flow["customProperties"]
    assert "endTime" not in job["customProperties"]


@cases("edges")
def test_a_snapshot_has_certain_edges(
    events: list[str], inputs: list[str], outputs: list[str]
) -> None:
    lineage = only(snapshot(STARTED, *events_of(events))).lineage
    assert (paths(lineage.inputs), paths(lineage.outputs)) == (inputs, outputs)


def test_columns_of_a_running_query_are_not_reads() -> None:
    output = file("/z", columnLineage=column_lineage({"c": [column("/b", "c", "DIRECT:IDENTITY")]}))
    assert only(snapshot(STARTED, query("RUNNING", outputs=[output]))).lineage.inputs == {}
    assert list(only(snapshot(STARTED, query(outputs=[output]))).lineage.inputs) == file_urns("/b")


def test_without_the_applications_name_a_snapshot_is_empty() -> None:
    assert snapshot(application("START"), query(outputs=[file("/z")])).jobs == []


def test_operations_are_reported_at_the_end_only() -> None:
    conversion = snapshot(STARTED, query(second=5, outputs=[file("/z")]))
    assert find_all(conversion.proposals(settings()), "operation") == []


# -- with Spark's event log


def batch_of_query(second: int = 12, **more: Any) -> Json:
    facets = {"spark_jobDetails": {"jobGroup": QUERY_RUN}}
    return query(second=second, run_facets=facets, inputs=[file("/lake/in")], **more)


def names(conversion: Conversion) -> set[str]:
    return {job.definition.name for job in conversion.jobs}


def test_a_streaming_query_is_reported_from_its_first_progress_on() -> None:
    log = [app_started(), query_started(), *execution(1, 11, 12)]
    conversion = snapshot(STARTED, batch_of_query(), log=log)
    assert (names(conversion), conversion.inputs) == ({"shop"}, [])
    conversion = snapshot(STARTED, batch_of_query(), log=[*log, query_progressed()])
    assert names(conversion) == {"shop", "paid"}
    assert (conversion.inputs, conversion.outputs) == (
        file_urns("/lake/in"),
        file_urns("/lake/paid"),
    )
    assert all(job.run.result is None for job in conversion.jobs)


def test_a_streaming_query_that_has_ended_is_reported_with_its_end() -> None:
    log = [
        app_started(),
        query_started(),
        *execution(1, 11, 12),
        query_progressed(),
        query_terminated(),
    ]
    conversion = snapshot(STARTED, batch_of_query(), log=log)
    results = {
        job.definition.name: job.run.result and job.run.result.type for job in conversion.jobs
    }
    assert results == {"shop": None, "paid": "SUCCESS"}


def test_queries_that_the_log_does_not_have_yet_are_left_for_later() -> None:
    later = query(run_id=OTHER_QUERY, second=30, outputs=[file("/z")])
    log = [app_started(), *execution(1, 11, 12)]
    assert snapshot(STARTED, later, log=log).outputs == []
    assert snapshot(STARTED, later, log=[*log, *execution(2, 29, 30)]).outputs == file_urns("/z")


# -- one job per event


def test_each_single_event_is_in_one_snapshot_and_all_are_in_the_end() -> None:
    running = converter([STARTED, query("START", inputs=[file("/a")])], coalesce_jobs=False)
    assert names(running.snapshot()) == {"shop", "insert"}
    assert running.snapshot().jobs == []
    running.add(query(outputs=[file("/z")]))
    assert running.snapshot().outputs == file_urns("/z")


def test_a_snapshot_has_no_end_of_the_application() -> None:
    running = converter(whole_application(query()), coalesce_jobs=False)
    proposals = running.snapshot().proposals(settings(coalesce_jobs=False))
    results = [
        one.aspect["result"]["type"] for one in _run_events(proposals) if "result" in one.aspect
    ]
    assert results == ["SUCCESS"], "that of the query"


def _run_events(proposals: Iterable[Proposal]) -> list[Proposal]:
    return find_all(proposals, "dataProcessInstanceRunEvent")


# -- forgetting


def test_discarded_queries_are_neither_reported_again_nor_removed() -> None:
    running = converter([STARTED, query(run_id=QUERY, second=5, outputs=[file("/z")])])
    running.discard_reported()
    assert running.run_count == 1, "the application's"
    running.add(query(run_id=OTHER_QUERY, second=6, outputs=[file("/y")]))
    assert running.snapshot().outputs == file_urns("/y")
    running.add(application("COMPLETE", second=59))
    job = only(running.finish(Ending(succeeded=True)))
    assert (list(job.lineage.outputs), job.patch_edges, job.run.id) == (file_urns("/y"), True, APP)
    assert job.run.result is not None
    assert job.run.result.type == "SUCCESS"


def test_versions_that_discarded_queries_read_are_marked_as_unknown() -> None:
    versioned = file("/in", version={"datasetVersion": "7"})
    running = converter(
        [STARTED, query(run_id=QUERY, second=5, inputs=[versioned], outputs=[file("/z")])]
    )
    running.discard_reported()
    running.add(query(run_id=OTHER_QUERY, second=6, inputs=[versioned], outputs=[file("/y")]))
    job = only(running.finish(Ending(succeeded=True)))
    assert (
        json.loads(job.run.dataset_properties[f"input:{file_urns('/in')[0]}"])["version"] == "7, ?"
    )


def test_rows_are_not_counted_without_those_of_discarded_queries() -> None:
    def wrote(second: int, run_id: str) -> Json:
        return query(
            run_id=run_id, second=second, outputs=[{**file("/z"), "outputFacets": statistics}]
        )

    statistics = {"outputStatistics": {"rowCount": 5}}
    running = converter([STARTED, wrote(5, QUERY)])
    running.discard_reported()
    running.add(wrote(6, OTHER_QUERY))
    conversion = running.finish(Ending(succeeded=True))
    (operation,) = find_all(conversion.proposals(settings()), "operation")
    assert operation.aspect["lastUpdatedTimestamp"] == START_MS + 6_000
    assert "numAffectedRows" not in operation.aspect
    assert any(gap.startswith("rows and bytes: ") for gap in conversion.diagnostics.gaps)


def test_a_query_that_runs_is_not_forgotten() -> None:
    running = converter([STARTED, query("START", outputs=[file("/z")])])
    running.discard_reported()
    running.add(query(second=9, outputs=[file("/z")]))
    assert running.snapshot().outputs == file_urns("/z")


def test_a_query_that_the_log_does_not_have_yet_is_not_forgotten() -> None:
    log = [app_started(), query_started(), *execution(1, 11, 12), query_progressed()]
    running = converter([STARTED, batch_of_query(), batch_of_query(20, run_id=OTHER_QUERY)], log)
    running.discard_reported(with_log=True)
    assert running.run_count == 2, "the application and the later batch"


def test_executions_of_forgotten_queries_do_not_count_as_lost() -> None:
    *events, end = recorded_events("batch-4.3.0")
    running = converter(events, json_lines(RECORDED / "batch-4.3.0.ndjson"))
    running.discard_reported(with_log=True)
    running.add(end)
    conversion = running.finish(Ending(succeeded=True))
    assert conversion.diagnostics.lost_executions == []
    assert conversion.outputs == []


def test_an_execution_without_events_is_lost_even_after_others_were_forgotten() -> None:
    write = "== Physical Plan ==\nExecute InsertIntoHadoopFsRelationCommand (1)\n\n\n"
    log = [app_started(), *execution(1, 5, 6, write), *execution(2, 7, 8, write)]
    running = converter(
        [STARTED, query("START", second=5), query(second=6, outputs=[file("/z")])], log
    )
    running.discard_reported(with_log=True)
    assert [
        one.id for one in running.finish(Ending(succeeded=True)).diagnostics.lost_executions
    ] == [2]


def test_the_latest_executions_and_reads_of_rdds_are_kept() -> None:
    running = converter([STARTED], [app_started(), *execution(0, 1, None)])
    read = {"Event": "SparkListenerJobStart", "rddPaths": ["/in"]}
    for number in range(1, KEPT_EXECUTIONS + 500):
        for logged in (*execution(number, number, number), {**read, "Submission Time": number}):
            running.add_log_event(logged)
    running.discard_reported(with_log=True)
    (logged_application,) = running._logs
    assert len(logged_application.executions) == KEPT_EXECUTIONS + 1, (
        "the running execution is kept as well"
    )
    assert [*logged_application.rdd_reads] == [*range(500, KEPT_EXECUTIONS + 500)]


@pytest.mark.slow
@pytest.mark.parametrize("with_log", [False, True], ids=["events alone", "events and log"])
def test_memory_does_not_grow_with_micro_batches(
    with_log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "KEPT_EXECUTIONS", 100)
    running = converter([STARTED], [app_started(), query_started()] if with_log else ())

    def run_batches(numbers: range) -> int:
        for number in numbers:
            for kind in ("START", "COMPLETE"):
                running.add(
                    json.dumps(batch_of_query(20, kind=kind, run_id=f"batch-{number}")).encode()
                )
            for logged in (
                (*execution(number, 20, 20), query_progressed(20, batch=number)) if with_log else ()
            ):
                running.add_log_event(logged)
            if number % 50 == 49:
                running.snapshot(with_log=with_log)
                running.discard_reported(with_log=with_log)
        assert running.run_count == 1, "the application's"
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before, after = run_batches(range(200)), run_batches(range(200, 600))
    finally:
        tracemalloc.stop()
    assert (after - before) / 400 < 100, "bytes a micro-batch"


def test_a_log_read_again_counts_once() -> None:
    log = [
        app_started(),
        query_started(),
        *execution(1, 11, 12),
        query_progressed(),
        query_terminated(),
    ]
    events = whole_application(batch_of_query(), run_facets=DETAILS)
    running = converter(events, log)
    running.snapshot(with_log=True)
    running.restart_log()
    for logged in log:
        running.add_log_event(logged)
    assert running.finish(Ending(succeeded=True)) == converter(events, log).finish(
        Ending(succeeded=True)
    )


def test_events_of_other_engines_are_left_to_the_end() -> None:
    conversion = snapshot(
        event(job="hive.q", job_type="QUERY", outputs=[file("/z")]), orchestrator="hive"
    )
    assert conversion.jobs == []


# -- taking back


def edge(name: str) -> str:
    return f"/outputDatasetEdges/urn:li:dataset:(urn:li:dataPlatform:file,~1{name},PROD)"


JOB = "urn:li:dataJob:(urn:li:dataFlow:(spark,shop,default),shop)"


@cases("edges")
def test_edges_that_the_end_does_not_report_are_removed(
    end: list[list[Any]], removed: list[str]
) -> None:
    proposals = []
    for change, job, names in end:
        operations = [{"op": "add", "path": edge(name), "value": {}} for name in names]
        content = operations if change == "PATCH" else {}
        proposals.append(
            Proposal("dataJob", JOB.replace("shop", job), "dataJobInputOutput", content, change)
        )
    found = retractions({JOB: {edge("a"), edge("b")}}, proposals)
    assert [operation["path"] for one in found for operation in one.aspect] == list(
        map(edge, removed)
    )
    assert {one.entity_urn for one in found} <= {JOB}

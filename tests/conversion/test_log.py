from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending
from airflow_provider_spark_datahub.conversion.spark_log.log import (
    LoggedApplication,
    SparkLog,
    SqlExecution,
    StreamingQuery,
)
from airflow_provider_spark_datahub.conversion.spark_log.streaming import coalesce_with_queries
from tests.cases import cases
from tests.conversion.builders import Json, proposals, settings
from tests.conversion.event_logs import (
    APP_ID,
    QUERY_ID,
    QUERY_RUN,
    START_MS,
    STREAMING,
    app_ended,
    app_started,
    environment,
    execution,
    job_started,
    query_progressed,
    query_started,
    query_terminated,
    read_log,
    recorded_log,
)
from tests.conversion.recordings import DATA, lines_of, recorded_logs
from tests.oracles.strict import canonical_violations


@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.3.0"])
def test_a_log_of_a_real_application_is_read(version: str) -> None:
    (application,) = recorded_log(f"streaming-{version}")

    assert (application.name, application.default_fs) == ("stream shop", "file:///")
    assert application.id.startswith("local-")
    queries = list(application.queries.values())
    assert [query.name for query in queries] == [
        "paid_to_parquet", "rate_mem", "foreach_batch", "", "to_table", "fails", "to_console"
    ]  # fmt: skip
    assert [query.name for query in queries if query.failure] == ["fails"]
    assert all(query.ended for query in queries)
    by_query = {execution.query_run_id for execution in application.executions.values()}
    assert by_query == {"", *application.queries}
    assert all(
        query.start_ms and query.last_ms and query.start_ms < query.last_ms for query in queries
    )


def test_all_parts_of_a_query_are_read() -> None:
    (application,) = read_log(
        [
            environment("file:///"),
            app_started(),
            query_started(10),
            query_progressed(11, batch=0, rows=5),
            query_progressed(
                20,
                batch=1,
                rows=7,
                sources=["FileStreamSource[file:/lake/in]", "KafkaV2[Subscribe[t]]"],
            ),
            query_terminated(),
            app_ended(),
        ]
    )
    (query,) = application.queries.values()
    assert (application.id, application.start_ms, application.end_ms) == (
        APP_ID,
        START_MS,
        START_MS + 59_000,
    )
    assert application.default_fs == "file:///"
    assert (query.id, query.run_id, query.name, query.rows) == (
        QUERY_ID,
        QUERY_RUN,
        "paid",
        5 + 2 * 7,
    )
    assert list(query.sources) == ["FileStreamSource[file:/lake/in]", "KafkaV2[Subscribe[t]]"]
    assert list(query.sinks) == ["FileSink[file:/lake/paid]"]
    assert query.progress["batchId"] == 1
    assert (query.start_ms, query.last_ms) == (START_MS + 10_000, START_MS + 21_000)
    assert (query.ended, query.failure) == (True, "")


def test_a_query_does_not_end_before_earlier_events_of_the_log() -> None:
    (application,) = read_log(
        [app_started(), query_started(10), *execution(1, 11, 30), query_terminated("boom")]
    )
    (query,) = application.queries.values()
    assert (query.last_ms, query.failure) == (START_MS + 30_000, "boom")


def test_the_latest_offset_outlives_an_idle_batch() -> None:
    moved, idle = query_progressed(11), query_progressed(12)
    moved["progress"]["sources"][0]["endOffset"] = '{"orders":{"0":7}}'
    (application,) = read_log([app_started(), moved, idle])
    (query,) = application.queries.values()
    assert list(query.sources.values()) == ['{"orders":{"0":7}}']


def test_micro_batches_are_known_by_their_description() -> None:
    description = f"paid\nid = {QUERY_ID}\nrunId = {QUERY_RUN.upper()}\nbatch = 0"
    events = [
        *execution(1, 1, 2, "plan", description=description),
        *execution(2, 3, None, "token=abc", root=1),
    ]
    (application,) = read_log([app_started(), *events])
    micro_batch, batch = application.executions.values()
    assert (micro_batch.query_run_id, micro_batch.description, micro_batch.plan) == (
        QUERY_RUN,
        "",
        "plan",
    )
    assert (batch.query_run_id, batch.description, batch.root_id) == ("", "save at job.py:2", 1)
    assert (
        batch.plan == "token=abc"
    )  # columns may have such names: it is redacted where it is shown
    assert (micro_batch.end_ms, batch.end_ms) == (START_MS + 2_000, None)


@pytest.mark.parametrize(
    "junk", [None, 7, -7, 10**400, float("inf"), float("nan"), "x", [], {}, [{}], True, {"id": 1}]
)
def test_malformed_events_are_skipped(junk: Any) -> None:
    hostile = [
        {"Event": junk},
        {**app_started(), "Timestamp": junk},
        {**environment(""), "Hadoop Properties": junk},
        *({**one, key: junk} for one in execution(1, 1, 2) for key in one if key != "Event"),
        *({**query_started(), key: junk} for key in ("id", "runId", "name", "timestamp")),
        {"Event": f"{STREAMING}QueryProgressEvent", "progress": junk},
        *(
            query_progressed(**{key: junk})
            for key in ("timestamp", "batchId", "batchDuration", "name")
        ),
        query_progressed(),
    ]
    for key in ("sources", "sink"):
        hostile[-1]["progress"][key] = junk
        hostile.append(query_progressed())
    hostile[-1]["progress"]["sources"] = [
        {"description": junk, "numInputRows": junk, "endOffset": junk}
    ]

    applications = read_log([*hostile, app_ended()])

    assert applications[-1].end_ms == START_MS + 59_000
    jobs = list(coalesce_with_queries([], applications, {}, settings(), Ending()))
    assert jobs
    assert [
        violation
        for job in jobs
        for each in proposals(job)
        for violation in canonical_violations(each.to_obj())
    ] == []


def test_the_folder_of_a_stream_is_in_place_of_its_files_whatever_its_name() -> None:
    folder, index = r"file:/a\1\g<x>", "Location: InMemoryFileIndex "
    query = StreamingQuery("id", "run", sources={f"FileStreamSource[{folder}]": None})
    part = SqlExecution(0, "", f"{index}[{folder}/b.csv, ... 1 entries]", 0, 0, query_run_id="run")
    assert LoggedApplication("app", queries={"run": query}).plans_of([part]) == [
        f"{index}[{folder}]"
    ]


def gaps(events: list[Json], **properties: str) -> str:
    begin = {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": properties}
    (application,) = read_log([begin, app_started(), *events])
    return application.gaps()


def executions(numbers: list[int]) -> list[Json]:
    return [event for number in numbers for event in execution(number, 1, 2)]


@cases("gaps")
def test_ids_that_a_log_lacks_are_reported(
    logged: list[int], jobs: list[tuple[int, int | None]], lacks: str
) -> None:
    sentence = f"Spark's log lacks {lacks}: its event bus dropped events" if lacks else ""
    started = [job_started(*job) for job in jobs]
    assert gaps([*executions(logged), *started]) == sentence
    assert gaps([*executions(logged), *started, app_ended()]) == sentence


def test_an_end_without_a_start_is_a_gap() -> None:
    end = execution(1, 1, 2)[1]
    assert "execution 1 of 2:" in gaps([*executions([0]), end])


def test_an_execution_without_an_end_is_a_gap_of_an_application_that_ended() -> None:
    events = [*executions([0]), *execution(1, 1, None)]
    assert gaps(events) == ""
    ended = gaps([*events, app_ended()])
    assert ended.startswith("Spark's log lacks the end of execution 1: its driver was stopped")


def test_events_that_the_user_excluded_are_no_gaps() -> None:
    events = [*executions([0, 2]), job_started(1)]
    jobs, both = "SparkListenerJob.*", "SparkListenerJobStart,.*SQLExecution.*"
    assert "execution 1 of 3" in gaps(events, **{"spark.eventLog.excludedPatterns": jobs})
    assert gaps(events, **{"spark.eventLog.excludedPatterns": both}) == ""
    assert "job 0 of 2" in gaps([job_started(1)])
    assert gaps([job_started(1)], **{"spark.eventLog.excludedPatterns": jobs}) == ""


def test_forgotten_executions_are_no_gaps_and_hide_none() -> None:
    log = SparkLog()
    for event in [app_started(), *executions([0, 1, 3, 4])]:
        log.add(event)
    log.forget_executions(1, [])
    (application,) = log.applications
    assert len(application.executions) == 1
    assert "execution 2 of 5" in application.gaps()
    for event in executions([2, 5]):
        log.add(event)
    assert application.gaps() == ""


def test_memory_does_not_grow_with_the_ids_that_are_missing() -> None:
    (application,) = read_log([app_started(), *executions([0, 10**12, 10**15])])
    assert len(application.execution_ids.missing) == 10_000


def test_an_event_that_a_real_bus_dropped_is_a_gap() -> None:
    lines = lines_of(DATA / "dropped" / "log.ndjson.gz")
    (application,) = read_log(json.loads(line) for line in lines)
    assert application.gaps() == "Spark's log lacks job 25 of 57: its event bus dropped events"


@pytest.mark.slow
@pytest.mark.no_cover
def test_whole_logs_have_no_gaps() -> None:
    with_ids = Counter[str]()
    for path in recorded_logs():
        # Of the jobs in ``nested_fields``, two executions were not kept.
        if path.parent.name in ("engines", "dropped", "nested_fields"):
            continue
        events = [json.loads(line) for line in lines_of(path)]
        applications = read_log(events)
        assert [application.gaps() for application in applications] == [""] * len(applications), (
            path
        )
        if any("Job ID" in event for event in events):
            with_ids[applications[0].spark_version[:3]] += 1
    assert sorted(with_ids) == ["3.5", "4.0", "4.1", "4.3"]


@pytest.mark.parametrize("name", ["not_written-4.3.0", "writers-4.3.0", "views-3.5.9"])
def test_each_execution_that_a_log_loses_with_its_jobs_is_reported(name: str) -> None:
    lines = lines_of(DATA / "hard_jobs" / "logs" / f"{name}.ndjson.gz")
    events = [json.loads(line) for line in lines]
    ids = [event["executionId"] for event in events if event["Event"].endswith("SQLExecutionStart")]
    for lost in sorted(ids)[1:-1]:
        kept = [event for event in events if lost not in executions_of(event)]
        (application,) = read_log(kept)
        assert application.gaps() == (
            f"Spark's log lacks execution {lost} of {len(ids)}: its event bus dropped events"
        )


def executions_of(event: Json) -> set[int | None]:
    """Return the execution that an event is about."""
    of_job = (event.get("Properties") or {}).get("spark.sql.execution.id")
    return {event.get("executionId"), int(of_job) if of_job else None}

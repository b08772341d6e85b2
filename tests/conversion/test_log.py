from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending
from airflow_provider_spark_datahub.conversion.spark_log.log import (
    LoggedApplication,
    SqlExecution,
    StreamingQuery,
)
from airflow_provider_spark_datahub.conversion.spark_log.streaming import coalesce_with_queries
from tests.conversion.builders import proposals, settings
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
    query_progressed,
    query_started,
    query_terminated,
    read_log,
    recorded_log,
)
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

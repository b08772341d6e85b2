"""Recorded event logs with the OpenLineage events of the same applications, and events of a log,
spelled short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.runs.fold import Fold
from airflow_provider_spark_datahub.conversion.spark_log.log import LoggedApplication, SparkLog
from tests.conversion.builders import Json, json_lines, settings

RECORDED = Path(__file__).parents[1] / "data" / "event_logs"
STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"
SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
APP_ID = "app-20260101000000-0001"
QUERY_RUN = "0a000000-0000-4000-8000-000000000001"
QUERY_ID = "0b000000-0000-4000-8000-000000000001"
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z, when second 0 of these events is."""


def read_log(events: Iterable[Json]) -> list[LoggedApplication]:
    log = SparkLog()
    for event in events:
        log.add(event)
    return log.applications


def recorded_log(name: str) -> list[LoggedApplication]:
    return read_log(json_lines(RECORDED / f"{name}.ndjson"))


def folded(events: Iterable[Json], **options: Any) -> Fold:
    fold = Fold(settings(**options))
    for event in events:
        fold.add(RunEvent.parse(event))
    return fold


def recorded_events(name: str) -> list[Json]:
    return json_lines(RECORDED / f"{name}.openlineage.ndjson")


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}.000Z"


def app_started(app_id: str = APP_ID, second: int = 0, name: str = "shop") -> Json:
    timestamp = START_MS + second * 1000
    return {
        "Event": "SparkListenerApplicationStart",
        "App ID": app_id,
        "App Name": name,
        "Timestamp": timestamp,
    }


def app_ended(second: int = 59) -> Json:
    return {"Event": "SparkListenerApplicationEnd", "Timestamp": START_MS + second * 1000}


def environment(default_fs: str) -> Json:
    return {
        "Event": "SparkListenerEnvironmentUpdate",
        "Hadoop Properties": {"fs.defaultFS": default_fs},
    }


def execution(
    number: int,
    begin: int,
    end: int | None,
    plan: str = "",
    *,
    root: int | None = None,
    **more: Any,
) -> list[Json]:
    """Return the start of a SQL execution, and its end if it has one; times are in seconds."""
    start = {
        "Event": f"{SQL}Start",
        "executionId": number,
        "rootExecutionId": number if root is None else root,
        "description": f"save at job.py:{number}",
        "physicalPlanDescription": plan,
        "time": START_MS + begin * 1000,
    }
    ended = {
        "Event": f"{SQL}End",
        "executionId": number,
        "time": START_MS + (end or 0) * 1000,
        "errorMessage": "",
    }
    error = more.pop("errorMessage", "")
    events = [{**start, **more}]
    return events if end is None else [*events, {**ended, "errorMessage": error}]


def job_started(number: int, execution_id: int | None = None) -> Json:
    properties = {} if execution_id is None else {"spark.sql.execution.id": str(execution_id)}
    return {"Event": "SparkListenerJobStart", "Job ID": number, "Properties": properties}


def query_started(second: int = 10, name: str | None = "paid", run_id: str = QUERY_RUN) -> Json:
    ids = {"id": QUERY_ID, "runId": run_id}
    return {"Event": f"{STREAMING}QueryStartedEvent", **ids, "name": name, "timestamp": at(second)}


def query_progressed(
    second: int = 11,
    *,
    sources: Sequence[str] = ("FileStreamSource[file:/lake/in]",),
    sink: str = "FileSink[file:/lake/paid]",
    batch: int = 0,
    rows: int = 5,
    run_id: str = QUERY_RUN,
    name: str | None = "paid",
    **more: Any,
) -> Json:
    described = [
        {
            "description": one,
            "numInputRows": rows,
            "inputRowsPerSecond": 0.5,
            "processedRowsPerSecond": 2.0,
        }
        for one in sources
    ]
    progress = {
        "id": QUERY_ID,
        "runId": run_id,
        "name": name,
        "timestamp": at(second),
        "batchId": batch,
        "batchDuration": 1000,
        "sources": described,
        "sink": {"description": sink, "numOutputRows": -1},
        **more,
    }
    return {"Event": f"{STREAMING}QueryProgressEvent", "progress": progress}


def query_terminated(exception: str | None = None, run_id: str = QUERY_RUN) -> Json:
    return {
        "Event": f"{STREAMING}QueryTerminatedEvent",
        "id": QUERY_ID,
        "runId": run_id,
        "exception": exception,
    }

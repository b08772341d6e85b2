from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.conversion.diagnostics import LostExecution
from airflow_provider_spark_datahub.conversion.spark_log import LoggedApplication, merge_logs
from tests.conversion import builders
from tests.conversion.builders import Json, settings
from tests.conversion.event_logs import (
    QUERY_ID,
    QUERY_RUN,
    app_started,
    execution,
    folded,
    read_log,
    recorded_events,
    recorded_log,
)

WRITE = "== Physical Plan ==\nExecute InsertIntoHadoopFsRelationCommand (4)\n+- WriteFiles (3)\n\n\n(1) Scan csv"
READ = "== Physical Plan ==\nAdaptiveSparkPlan (9)\n+- Scan parquet sales.clean (1)\n\n\n(1) like InsertIntoTable"
NO_EVENT = "it wrote data, but OpenLineage sent no event for it"
RECORDED = ["batch-4.3.0", "streaming-3.5.9", "streaming-4.0.5", "streaming-4.3.0"]


def lost(logs: list[LoggedApplication], events: list[Json]) -> list[LostExecution]:
    return merge_logs(folded(events).applications(), logs, {}, settings()).lost


def lost_in(log: list[Json], events: list[Json]) -> list[LostExecution]:
    return lost(read_log([app_started(), *log]), events)


# In the drivers' outputs OpenLineage says that it could not see executions 3 and 30 of the batch job, 12 and 28 of the
# streaming one on 4.0.5: other events of them arrived, or they were micro-batches.
@pytest.mark.parametrize("name", RECORDED)
def test_no_false_alarm_for_real_applications(name: str) -> None:
    assert lost(recorded_log(name), recorded_events(name)) == []


def test_a_lost_write_of_a_real_application_is_reported() -> None:
    events = recorded_events("batch-4.3.0")
    silent = {event["run"]["runId"] for event in events if any("fast3" in one["name"] for one in event["outputs"])}
    kept = [event for event in events if event["run"]["runId"] not in silent]
    assert silent
    (found,) = lost(recorded_log("batch-4.3.0"), kept)
    assert found.reason.startswith(NO_EVENT)
    assert found.description == "parquet at NativeMethodAccessorImpl.java:0"


def test_a_write_without_event_is_lost() -> None:
    log = [*execution(1, 10, 12, WRITE), *execution(2, 20, 22, WRITE)]
    events = builders.whole_application(builders.query("START", second=20))
    assert lost_in(log, events) == [
        LostExecution(1, "save at job.py:1", f"{NO_EVENT}; its plan names no file or table")
    ]


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(execution(1, 10, 12, READ), id="only reads, which OpenLineage may leave out"),
        pytest.param(execution(1, 10, 12, WRITE, errorMessage="boom"), id="failed"),
        pytest.param(execution(1, 10, None, WRITE), id="never ended"),
        pytest.param(execution(1, 20, 99, WRITE), id="its start was reported"),
        pytest.param(execution(1, 10, 22, WRITE), id="its end was reported"),
        pytest.param(
            [*execution(1, 20, 21, WRITE), *execution(2, 10, 12, WRITE, root=1)],
            id="its root was reported",
        ),
        pytest.param([*execution(1, 10, 12, WRITE), *execution(2, 20, 21, WRITE, root=1)], id="a part was reported"),
        pytest.param(
            execution(1, 10, 12, WRITE, description=f"q\nid = {QUERY_ID}\nrunId = {QUERY_RUN}\nbatch = 0"),
            id="a micro-batch",
        ),
    ],
)
def test_executions_that_are_not_lost(log: list[Json]) -> None:
    events = builders.whole_application(builders.query("START", second=20), builders.query("COMPLETE", second=22))
    assert lost_in(log, events) == []


def test_without_any_event_no_execution_counts_as_lost() -> None:
    assert lost_in(execution(1, 10, 12, WRITE), []) == []

"""Lineage from Spark's own event log: of jobs that run without OpenLineage's listener, or that it
did not see.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from tests.cases import cases
from tests.operators import tries

DRIVER_OUTPUT = Path(__file__).parents[1] / "data" / "driver_output"
"""What real drivers printed: see ``tests/capture/test_spark_submit.py``."""
WRITTEN = "urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/union/pivot,PROD)"


@pytest.fixture(autouse=True)
def _no_events(spark: tries.FakeSpark) -> None:
    spark.writes_nothing()


def test_a_job_without_the_listener_has_the_lineage_of_its_event_log(
    spark: tries.FakeSpark,
) -> None:
    spark.logs(tries.LOG)
    report = tries.report_of(tries.operator_with_lineage(spark, capture="event_log"))
    [arguments] = spark.runs
    assert "OpenLineageSparkListener" not in arguments
    assert spark.jar not in arguments
    assert report["events"] == 0
    assert report["reason"] is None
    assert WRITTEN in report["outputs"]
    assert report["pending"] == 0


@cases("operators")
def test_auto_uses_the_event_log_of_a_job_that_the_listener_cannot_be_added_to(
    spark: tries.FakeSpark, arguments: dict[str, Any], why: str
) -> None:
    spark.logs(tries.LOG)
    report = tries.report_of(tries.operator_with_lineage(spark, capture="auto", **arguments))
    assert WRITTEN in report["outputs"]
    assert [
        warning
        for warning in report["warnings"]
        if why in warning and "Spark's own event log" in warning
    ]
    assert "OpenLineageSparkListener" not in spark.runs[0]


def test_auto_uses_the_event_log_if_the_listener_left_no_event(spark: tries.FakeSpark) -> None:
    spark.logs(tries.LOG)
    report = tries.report_of(tries.operator_with_lineage(spark, capture="auto"))
    assert "OpenLineageSparkListener" in spark.runs[0]
    assert WRITTEN in report["outputs"]


def test_auto_uses_the_events_of_a_job_that_the_listener_saw(spark: tries.FakeSpark) -> None:
    spark.writes(tries.EVENTS)
    spark.logs(tries.LOG)
    with_log = tries.report_of(tries.operator_with_lineage(spark, capture="auto"))
    assert with_log["events"] == len(tries.EVENTS.splitlines())
    assert len(with_log["jobs"]) == 1
    edges = len(with_log["inputs"]) + len(with_log["outputs"])
    assert with_log["sources"] == {"EVENT, SPARK_PLAN": edges, "LEFT_OUT": 0}


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["listener", "auto"])
def test_the_attempt_after_a_failed_listener_runs_without_it(
    spark: tries.FakeSpark, state: tries.TaskState | None, capture: str
) -> None:
    output = DRIVER_OUTPUT / "memory.log.gz"
    spark.prints(gzip.decompress(output.read_bytes()).decode())
    spark.exits(1)
    first = tries.run_try(spark, 1, state, max_tries=2, fails=AirflowException, capture=capture)
    spark.logs(tries.LOG)
    spark.exits(0)
    second, third = (
        tries.run_try(spark, number, state, max_tries=2, capture=capture) for number in (2, 3)
    )

    failure = (
        "OpenLineage's listener ran out of memory (java.lang.OutOfMemoryError: Java heap space)"
    )
    assert f"{failure}; a next attempt runs without the listener" in first["warnings"]
    assert first["reason"] == f"there is no event file: {failure}"
    assert ["OpenLineageSparkListener" in arguments for arguments in spark.runs] == [
        True,
        False,
        False,
    ]
    for report in (second, third):
        assert WRITTEN in report["outputs"]
        assert [
            warning
            for warning in report["warnings"]
            if warning.startswith(
                f"an earlier attempt failed: {failure}. This attempt runs without the listener"
            )
        ]


def test_a_failure_of_the_job_itself_keeps_the_listener(
    spark: tries.FakeSpark, state: tries.TaskState | None
) -> None:
    spark.prints(gzip.decompress((DRIVER_OUTPUT / "users_memory.log.gz").read_bytes()).decode())
    spark.exits(1)
    reports = [
        tries.run_try(spark, number, state, max_tries=2, fails=AirflowException)
        for number in (1, 2)
    ]
    assert ["OpenLineageSparkListener" in arguments for arguments in spark.runs] == [True, True]
    assert not [
        warning for report in reports for warning in report["warnings"] if "without" in warning
    ]


def test_a_job_that_succeeds_in_spite_of_its_listener_keeps_it(
    spark: tries.FakeSpark, state: tries.TaskState | None
) -> None:
    spark.prints(gzip.decompress((DRIVER_OUTPUT / "memory.log.gz").read_bytes()).decode())
    for number in (1, 2):
        tries.run_try(spark, number, state, max_tries=2)
    assert ["OpenLineageSparkListener" in arguments for arguments in spark.runs] == [True, True]

"""What a killed task leaves running: its spark-submit, which the next attempt names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import running_submits
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.task import submitted
from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog
from airflow_provider_spark_datahub.task.submitted import SubmittedJob, UnfinishedAttempt
from tests.operators import tries
from tests.patience import waiting_processes

GONE = 2**22 + 1
"""No process has this id."""


@pytest.mark.slow
@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_a_spark_submit_that_outlived_its_killed_task_is_reported(
    spark: tries.FakeSpark, tmp_path: Path, deploy_mode: str
) -> None:
    _, events_file = tries.killed_last_attempt(
        tmp_path, run_id=tries.RUN_ID, machine="", task_id="build", process=GONE
    )
    conf = f"spark.openlineage.transport.location={events_file}"
    submit = ["spark-submit", "--deploy-mode", deploy_mode, "--conf", conf]
    with waiting_processes(submit, ["tail", str(events_file)]) as (orphan, _):
        report = tries.report_of(
            tries.operator_with_lineage(spark), tries.TaskInstance(try_number=2)
        )
    warnings = [text for text in report["warnings"] if "spark-submit" in text]
    words = f"the spark-submit of attempt 1, .* still runs on .*pid {orphan}.*: stop it"
    assert [bool(re.fullmatch(words, text)) for text in warnings] == [True] * (
        deploy_mode == "client"
    )


@pytest.mark.slow
def test_the_sparks_that_a_killed_task_started_below_itself_are_found_by_the_folder_of_their_events(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "try1-0.events"
    places = [
        folder / "1-2.ndjson",
        folder / "3-4.ndjson",
        tmp_path / "another-try1-0.events/5-6.ndjson",
    ]
    java = ["org.apache.spark.deploy.SparkSubmit", "--conf"]
    sparks = [[*java, f"spark.openlineage.transport.location={place}"] for place in places]
    with waiting_processes(*sparks) as (first, second, _):
        assert {*running_submits(str(folder), "")} == {first, second}


def test_the_first_attempt_looks_for_no_orphans(
    spark: tries.FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        submitted, "running_submits", lambda *_: pytest.fail("looked for processes")
    )
    assert tries.report_of(tries.operator_with_lineage(spark))["warnings"] == []


@pytest.mark.slow
def test_only_a_spark_with_an_event_log_of_the_jobs_own_is_an_orphan(tmp_path: Path) -> None:
    """Other jobs of this machine may write their logs into the same folder."""
    logs = str(tmp_path / "logs")
    job = SubmittedJob(
        LineageSettings(), tmp_path / "try1.ndjson", SparkEventLog(logs, is_own=False)
    )
    record = UnfinishedAttempt.begun(
        TaskAttempt(DagRun(AirflowSite(), "shop", "run"), "build", 1), job
    )
    with waiting_processes(["spark-submit", "--conf", f"spark.eventLog.dir={logs}"]) as (other,):
        assert record.orphans() == []
        assert replace(record, own_event_log=True).orphans() == [other]

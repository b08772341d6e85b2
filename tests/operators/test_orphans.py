"""What a killed task leaves running: its spark-submit, which the next attempt names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from airflow_provider_spark_datahub.capture import running_submits
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun, TaskAttempt
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.task import submitted
from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog
from airflow_provider_spark_datahub.task.submitted import SubmittedJob, UnfinishedAttempt
from tests.operators import tries

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
    wait = ["/bin/bash", "-c", "echo; read -t 600 <> <(:)"]
    conf = f"spark.openlineage.transport.location={events_file}"
    submit = [*wait, "spark-submit", "--deploy-mode", deploy_mode, "--conf", conf]
    with (
        Popen(submit, stdout=PIPE) as orphan,
        Popen([*wait, "tail", str(events_file)], stdout=PIPE) as bystander,
    ):
        try:
            for process in (orphan, bystander):
                assert process.stdout
                process.stdout.readline()
            report = tries.report_of(
                tries.operator_with_lineage(spark), tries.TaskInstance(try_number=2)
            )
            warnings = [text for text in report["warnings"] if "spark-submit" in text]
            words = f"the spark-submit of attempt 1, .* still runs on .*pid {orphan.pid}.*: stop it"
            assert [bool(re.fullmatch(words, text)) for text in warnings] == [True] * (
                deploy_mode == "client"
            )
        finally:
            orphan.kill()
            bystander.kill()


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
    wait = [
        "/bin/bash",
        "-c",
        "echo; read -t 600 <> <(:)",
        "org.apache.spark.deploy.SparkSubmit",
        "--conf",
    ]
    sparks = [
        Popen([*wait, f"spark.openlineage.transport.location={place}"], stdout=PIPE)
        for place in places
    ]
    try:
        for spark in sparks:
            assert spark.stdout
            spark.stdout.readline()
        assert {*running_submits(str(folder), "")} == {spark.pid for spark in sparks[:2]}
    finally:
        for spark in sparks:
            spark.kill()
            spark.communicate()


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
    # The substitution is a process with the same arguments: it has ended when the line is printed.
    waiting = "exec 3<> <(:); wait $!; echo; read -t 600 -u 3"
    logs, wait = str(tmp_path / "logs"), ["/bin/bash", "-c", waiting, "spark-submit", "--conf"]
    job = SubmittedJob(
        LineageSettings(), tmp_path / "try1.ndjson", SparkEventLog(logs, is_own=False)
    )
    record = UnfinishedAttempt.begun(
        TaskAttempt(DagRun(AirflowSite(), "shop", "run"), "build", 1), job
    )
    with Popen([*wait, f"spark.eventLog.dir={logs}"], stdout=PIPE) as other:
        try:
            assert other.stdout
            other.stdout.readline()
            assert record.orphans() == []
            assert replace(record, own_event_log=True).orphans() == [other.pid]
        finally:
            other.kill()

"""What a job gets before its submit."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.capture import SparkSubmit
from airflow_provider_spark_datahub.capture.spark_submit import InjectionError, Submission
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.task import attempt
from tests.capture.installations import executable
from tests.capture.test_class_archive import Worker
from tests.cases import cases
from tests.patience import hanging_disk, not_outlasting
from tests.task.attempts import PARENT, ROOT, Try


def test_the_job_gets_its_location_and_its_parent(one: Try, tmp_path: Path) -> None:
    properties = one.inject()
    location = Path(properties["spark.openlineage.transport.location"])
    assert location.is_relative_to(tmp_path / "events" / "shop")
    assert (
        properties["spark.openlineage.parentRunId"],
        properties["spark.openlineage.rootParentRunId"],
    ) == (
        PARENT.run_id,
        ROOT.run_id,
    )
    assert properties["spark.openlineage.namespace"] == "default"
    assert properties["spark.driver.extraClassPath"] == str(
        tmp_path / "openlineage-spark_2.13-1.53.0.jar"
    )
    assert one.lineage.report.events_file == str(location)
    assert one.lineage.report.warnings == []


def test_the_job_gets_an_archive_of_java_classes_if_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(tmp_path)
    one = Try(tmp_path, options={"class_archives": worker.archives.folder})
    with caplog.at_level("INFO"):
        assert "-XX:" not in one.inject(None, **worker.env)["spark.driver.extraJavaOptions"]
    assert "starts without an archive of Java classes" in caplog.text
    archive = worker.build()
    properties = one.inject(None, **worker.env)
    assert f"-XX:SharedArchiveFile={archive.path}" in properties["spark.driver.extraJavaOptions"]
    assert properties["spark.driver.extraClassPath"] == ":".join(archive.class_path)


@cases("task")
def test_the_listener_sends_what_the_settings_want(
    tmp_path: Path, settings: Any, sent: dict[str, str]
) -> None:
    injected = Try(tmp_path, options={"settings": LineageSettings.from_mapping(settings)}).inject()
    ours = ("spark.openlineage.facets.", "spark.openlineage.dataset.")
    found = {
        name.removeprefix("spark.openlineage."): injected[name]
        for name in injected
        if name.startswith(ours)
    }
    assert found == sent


def test_a_file_that_a_cleared_task_left_is_not_appended_to(one: Try, tmp_path: Path) -> None:
    left = one.job_writes("a_csv_join_agg")
    again = Try(tmp_path).job_writes("i_no_lineage")
    assert again != left
    assert again.parent == left.parent


@cases("task")
def test_a_listener_that_the_user_switched_off_is_not_injected(
    one: Try, properties: dict[str, str], env: dict[str, str], message: str
) -> None:
    with pytest.raises(InjectionError, match=message):
        one.inject(Submission(properties), **env)


def test_a_transport_from_outside_spark_is_reported(one: Try) -> None:
    one.inject(OPENLINEAGE__TRANSPORT__TYPE="console")
    (warning,) = one.lineage.report.warnings
    assert "OPENLINEAGE__TRANSPORT__TYPE gets none of this job's events" in warning


def test_a_parent_run_of_the_user_is_reported(one: Try) -> None:
    one.inject(
        Submission({"spark.openlineage.parentRunId": "01990000-0000-7000-8000-00000000000f"})
    )
    assert one.lineage.report.warnings == [
        "the job names an OpenLineage parent run of its own, which was kept"
    ]


def test_a_missing_properties_file_raises(one: Try) -> None:
    spark = replace(one.spark_submit(), properties_file="/missing.conf")
    with pytest.raises(FileNotFoundError):
        one.lineage.inject([Submission()], spark, PARENT, ROOT)


def test_a_spark_of_unknown_layout_is_asked_for_its_version(one: Try, tmp_path: Path) -> None:
    one.spark_submit()
    banner = "echo 'Welcome to Spark version 4.3.0'; echo 'Using Scala version 2.13.18'"
    binary = executable(tmp_path / "wrapper" / "spark-submit", f"#!/bin/sh\n{banner}\n")
    spark = SparkSubmit(str(binary), {"PATH": "/usr/bin:/bin"}, local_driver=True)
    jars = one.lineage.inject([Submission()], spark, PARENT, ROOT)[0].submission.effective_jars()
    assert jars == (str(tmp_path / "openlineage-spark_2.13-1.53.0.jar"),)


def test_a_command_line_that_the_operating_system_just_takes_is_not_extended(
    tmp_path: Path,
) -> None:
    """Linux bounds all arguments and the environment together. Java's command line repeats parts of
    Spark's.
    """
    one, size = Try(tmp_path), 100_000
    most = min(os.sysconf("SC_ARG_MAX"), 6 * 1024 * 1024)
    users = Submission({f"spark.shop.p{number}": "x" * size for number in range(5)})

    def start(submission: Submission) -> None:
        subprocess.run(["/bin/true", *submission.arguments], env=env, check=True)

    filled = (most - 5 * size - 1_000) // size
    env = {f"V{number}": "x" * size for number in range(filled)} | {
        "REST": "x" * ((most - 5 * size - 1_000) % size)
    }
    start(users)
    with pytest.raises(OSError, match="Argument list too long"):
        start(replace(users, properties={**users.properties, **one.inject()}))
    with pytest.raises(InjectionError, match=rf"too close to the {most} that this machine takes"):
        Try(tmp_path).inject(users, **env)
    with pytest.raises(InjectionError, match=rf"too close to the {most} that this machine takes"):
        one.lineage.inject([users], replace(one.spark_submit(), argument_bytes=most), PARENT, ROOT)


@pytest.mark.slow
def test_a_job_runs_without_the_listener_if_the_disk_for_events_hangs(
    one: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener would hang in the driver, and with it the job: it runs without."""
    monkeypatch.setattr(attempt, "_BEGIN_SECONDS", 0.2)
    one.spark_submit()
    with (
        hanging_disk(one.folder / "events"),
        not_outlasting(0.5),
        pytest.raises(TimeoutError, match="no answer"),
    ):
        one.inject()

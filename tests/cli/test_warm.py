"""``spark-datahub warm``, with scripts for Java and Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub import hooks
from airflow_provider_spark_datahub.cli.doctor import _HealthChecks
from airflow_provider_spark_datahub.hooks import airflow_context
from airflow_provider_spark_datahub.task import LineageConfiguration
from tests.capture.test_class_archive import Worker
from tests.cli.commands import run


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    worker = Worker(tmp_path)
    configured = LineageConfiguration(airflow_context.configuration().read, tmp_path)
    monkeypatch.setattr(hooks, "configuration", lambda: configured)
    for name, value in worker.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR", worker.listener[0])
    return worker


def test_it_writes_what_is_missing_and_removes_what_fits_nothing(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("warm")
    assert (result.exit_code, result.stderr) == (0, "")
    with_listener, beside_jars = result.stdout.splitlines()
    assert "written (with the listener)" in with_listener
    assert "written (for jobs with jars of their own)" in beside_jars
    assert [" fits (" in line for line in run("warm").stdout.splitlines()] == [True, True]
    assert [" written (" in line for line in run("warm", "--force").stdout.splitlines()] == [
        True,
        True,
    ]

    (worker.installation.jars / "first.jar").write_text("patched")
    monkeypatch.setenv("FAKE_FAILURE", "1")
    result = run("warm")
    assert (result.exit_code, result.stderr.count("Removed")) == (1, 2)
    assert "no memory" in result.stderr
    assert list(worker.archives.folder.iterdir()) == []


def test_wrong_options(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("warm", "--folder", tmp_path, "--openlineage-jar", "/none.jar")
    assert (result.exit_code, "/none.jar does not exist" in result.stderr) == (2, True)
    assert run("warm", "--folder", worker.archives.folder).exit_code == 0
    monkeypatch.delenv("SPARK_HOME")
    result = run("warm", "--folder", tmp_path, "--spark-submit", "no-such-spark-submit")
    assert (result.exit_code, "set SPARK_HOME" in result.stderr) == (2, True)


def test_the_doctor_asks_java(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def finding() -> str:
        checks = _HealthChecks(None, None, "no-such-spark-submit", 5.0, write=False)
        *_, last = checks.check_spark(checks.check_configuration()[0])
        return f"{last.status.name}: {last.message}"

    worker.archives.folder.mkdir()
    assert finding().startswith("WARNING: Spark starts without an archive of Java classes:")
    worker.build()
    assert finding().startswith("GOOD: Java maps ")
    monkeypatch.setenv("FAKE_MISMATCH", "1")
    assert finding().endswith("shared class paths mismatch")

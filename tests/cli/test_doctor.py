"""``spark-datahub doctor``."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.capture.installations import executable, openlineage_jar, spark_at
from tests.cases import cases
from tests.cli.commands import run


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the place of a file sink, with a connection, a Spark and a jar, so that lineage can work."""
    sink = tmp_path / "sink.jsonl"
    monkeypatch.setenv("AIRFLOW_CONN_LINEAGE", json.dumps({"conn_type": "datahub-file", "host": str(sink)}))
    monkeypatch.setenv("SPARK_HOME", str(spark_at(tmp_path / "spark")))
    executable(tmp_path / "spark/bin/spark-submit")
    monkeypatch.setenv("PATH", f"{tmp_path / 'spark/bin'}{os.pathsep}{os.environ['PATH']}")
    jar = openlineage_jar(tmp_path / "openlineage.jar")
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR", str(jar))
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__DATAHUB_CONN_ID", "lineage")
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION", str(tmp_path / "outbox"))
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__EVENTS_LOCATION", str(tmp_path / "events"))
    return sink


def test_without_any_problem(sink: Path) -> None:
    result = run("doctor")
    assert (result.exit_code, result.stderr) == (0, "")
    subjects = [line.split(":")[0] for line in result.stdout.splitlines()]
    assert dict.fromkeys(subject[2:] for subject in subjects) == dict.fromkeys(
        ["version", "plugin", "events", "connection", "DataHub", "outbox", "Spark", "OpenLineage"]
    )
    assert {subject[0] for subject in subjects} == {"✓"}
    assert not sink.exists()


def test_a_proposal_is_delivered_on_request(sink: Path) -> None:
    result = run("doctor", "--write")
    assert "✓ delivery: A probe, marked as removed, was stored" in result.stdout
    (proposal,) = (json.loads(line) for line in sink.read_text().splitlines())
    assert (proposal["aspectName"], proposal["aspect"]) == ("status", {"json": {"removed": True}})


@pytest.mark.slow
@pytest.mark.usefixtures("sink")
def test_a_failed_check_comes_with_advice() -> None:
    result = run("doctor", "--connection", "nowhere")
    assert result.exit_code == 1
    wrong, advice = (line for line in result.stdout.splitlines() if "nowhere" in line)
    assert wrong.startswith("✗ connection: connection 'nowhere' cannot be used")
    assert advice.startswith("    → airflow connections add nowhere")


@pytest.mark.usefixtures("sink")
def test_json() -> None:
    good = json.loads(run("doctor", "--json").stdout)
    assert good["good"] is True
    assert {finding["verdict"] for finding in good["findings"]} == {"good"}
    bad = run("doctor", "--json", "--connection", "nowhere")
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["good"] is False


@pytest.mark.usefixtures("sink")
@cases("cli")
def test_a_spark_that_does_not_start(tmp_path: Path, script: str, words: str) -> None:
    # As after ``pip install pyspark pyspark-client``, which leaves the version and the jars where they were.
    executable(tmp_path / "spark/bin/spark-submit", script)
    result = run("doctor")
    assert result.exit_code == 1
    wrong = next(line for line in result.stdout.splitlines() if line.startswith("✗ Spark"))
    assert re.search(words, wrong)
    assert "pyspark-client" in result.stdout

"""The operator that backfills, with a stand-in for spark-submit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_spark_datahub import operators
from airflow_provider_spark_datahub.backfill.plan import SPARK_MAIN, PlanError
from airflow_provider_spark_datahub.conversion import LineageSettings, SettingsError, convert_events
from airflow_provider_spark_datahub.operators.backfill import BackfillLineageOperator
from tests.backfill.results import calls, stand_in
from tests.delivery.connections import connect_to_files
from tests.operators import tries

pytestmark = pytest.mark.slow

EVENTS = (tries.CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines()
PROPOSALS = len(convert_events(EVENTS, LineageSettings()).proposals(LineageSettings()))


@pytest.fixture(autouse=True)
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of one job, and a spark-submit that carries plans out."""
    binary = stand_in(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", f"{binary.parent}{os.pathsep}{os.environ['PATH']}")
    events = tmp_path / "archive"
    events.mkdir()
    shutil.copy(tries.CORPUS / "a_csv_join_agg.ndjson", events)
    return events


def operator(folder: Path, **arguments: Any) -> BackfillLineageOperator:
    where = {"sources": str(folder / "archive"), "out": str(folder / "out")}
    return BackfillLineageOperator(task_id="backfill", **{**where, **arguments})


def execute(folder: Path, **arguments: Any) -> dict[str, Any]:
    result = tries.execute(operator(folder, **arguments), {})
    assert isinstance(result, dict)
    return result


def test_it_is_submitted_as_any_other_application_with_the_package(tmp_path: Path) -> None:
    task = operator(
        tmp_path,
        conf={"spark.executor.memory": "4g"},
        py_files="/mine.py",
        executor_cores=2,
        since="2020-01-01",
        applications=["a_*", ""],
        run_history=True,
        lineage={"env": "DEV"},
        parts=4,
    )
    tries.execute(task, {})
    (call,) = calls(tmp_path)
    assert call[:4] == ["--master", "local[1]", "--conf", "spark.executor.memory=4g"]
    files = call[call.index("--py-files") + 1].split(",")
    assert (files[0], Path(files[1]).name) == ("/mine.py", "airflow_provider_spark_datahub.zip")
    assert task.py_files == "/mine.py"
    assert call[call.index("--name") + 1] == "spark-datahub backfill"
    assert call[-2] == str(SPARK_MAIN)
    plan = json.loads(call[-1])
    assert (plan["sources"], plan["out"]) == ([str(tmp_path / "archive")], f"file://{tmp_path}/out")
    assert (plan["since"], plan["applications"], plan["run_history"], plan["parts"]) == (
        "2020-01-01",
        ["a_*"],
        True,
        4,
    )
    assert plan["options"] == [{"env": "DEV"}]


def test_a_dag_file_loads_no_large_libraries() -> None:
    """Airflow parses DAG files every few seconds."""
    names = [path.stem for path in Path(operators.__file__).parent.glob("[a-z]*.py")]
    script = f"""
import sys
from airflow.providers.apache.livy.operators import livy
from airflow.providers.apache.spark.decorators import pyspark
from airflow.providers.apache.spark.operators import spark_jdbc, spark_pipelines, spark_sql, spark_submit
from airflow.providers.cncf.kubernetes.operators import spark_kubernetes
before = set(sys.modules)
from airflow_provider_spark_datahub.operators import {", ".join(names)}
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""
    output = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    loaded = output.splitlines()[-1].split()
    assert "airflow_provider_spark_datahub" in loaded
    assert not {
        "confluent_kafka",
        "datahub",
        "msgspec",
        "numpy",
        "pandas",
        "pyarrow",
        "pyspark",
    } & set(loaded)


def test_the_next_attempt_only_delivers_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_to_files(monkeypatch, "broken", Path("/proc/nowhere/lineage"))
    with pytest.raises(match="complete: 0 of 1 part: "):
        execute(tmp_path, datahub_conn_id="broken")
    assert execute(tmp_path, datahub_conn_id="datahub_file", rate=0)["delivered"] == PROPOSALS
    assert len(calls(tmp_path)) == 1


def test_a_failing_spark_fails_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SPARK_STATUS", "1")
    with pytest.raises(AirflowException, match="Cannot execute"):
        execute(tmp_path, datahub_conn_id="datahub_file")
    assert not (tmp_path / "sink").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"since": "soon"}, PlanError),
        ({"lineage": {"enviroment": "DEV"}}, SettingsError),
        ({"out": "no://x"}, PlanError),
    ],
)
def test_wrong_arguments_cost_no_spark_job(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        execute(tmp_path, **arguments)
    assert calls(tmp_path) == []


def test_the_arguments_of_a_backfill_are_templates() -> None:
    own = {"sources", "out", "since", "until", "applications", "lineage", "datahub_conn_id"}
    assert own | {"conf", "application"} <= set(BackfillLineageOperator.template_fields)

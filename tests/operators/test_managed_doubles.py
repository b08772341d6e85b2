"""The stand-ins of managed Spark services under Airflow's own operators: success, failure, and a cancellation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.hooks.storage import open_store
from tests.operators.tries import context_of, dag
from tests.patience import wait_until
from tests.servers.aws_spark import Aws
from tests.servers.databricks import Databricks
from tests.servers.dataproc import dataproc
from tests.servers.managed_spark import Runs, State
from tests.servers.s3 import S3

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    # Of the provider of Databricks.
    pytest.mark.filterwarnings("ignore::airflow.utils.deprecation_tools.DeprecatedImportWarning"),
]
PROVIDERS = "airflow.providers"
DATAPROC = f"{PROVIDERS}.google.cloud.operators.dataproc"
OPERATORS = {
    "serverless": f"{PROVIDERS}.amazon.aws.operators.emr.EmrServerlessStartJobOperator",
    "steps": f"{PROVIDERS}.amazon.aws.operators.emr.EmrAddStepsOperator",
    "containers": f"{PROVIDERS}.amazon.aws.operators.emr.EmrContainerOperator",
    "glue": f"{PROVIDERS}.amazon.aws.operators.glue.GlueJobOperator",
    "job": f"{DATAPROC}.DataprocSubmitJobOperator",
    "batch": f"{DATAPROC}.DataprocCreateBatchOperator",
    "databricks": f"{PROVIDERS}.databricks.operators.databricks.DatabricksSubmitRunOperator",
}
SERVICES = list(OPERATORS)
NOTE = {"spark.app.note": "noted"}
JOB = """
import sys, time
if sys.argv[-1] == "fails":
    sys.exit(3)
if sys.argv[-1] == "waits":
    time.sleep(300)
from pyspark.sql import SparkSession
with SparkSession.builder.getOrCreate() as spark:
    assert spark.conf.get("spark.app.note") == sys.argv[-1]
"""


@pytest.fixture
def runs(tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    if not (s3.folder / "managed").exists():
        s3.make_bucket("managed")
    runs = Runs(tmp_path / "runs", s3)
    with runs, Aws(runs, s3) as aws, Databricks(runs) as databricks, dataproc(runs, monkeypatch):
        aws.jobs["job"] = {"Name": "job", "Command": {"Name": "glueetl", "ScriptLocation": str(tmp_path / "job.py")}}
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(aws.connection()))
        monkeypatch.setenv("AIRFLOW_CONN_DATABRICKS_DEFAULT", json.dumps(databricks.connection()))
        (tmp_path / "job.py").write_text(JOB)
        yield runs


def request_of(service: str, script: Path, properties: dict[str, str], argument: str) -> dict[str, Any]:
    """Return the arguments of the operator that have a script run with these properties and this argument."""
    conf = [f"{name}={value}" for name, value in properties.items()]
    options = " ".join(f"--conf {one}" for one in conf)
    driver = {"entryPoint": str(script), "entryPointArguments": [argument], "sparkSubmitParameters": options}
    role = {"execution_role_arn": "arn:aws:iam::123456789012:role/spark"}
    often = {"waiter_delay": 1, "waiter_max_attempts": 200}
    if service == "serverless":
        return {"application_id": "app", "job_driver": {"sparkSubmit": driver}, **often, **role}
    if service == "containers":
        given = {"name": "job", "virtual_cluster_id": "vc", "release_label": "emr-7.9.0-latest", "poll_interval": 1}
        return {"job_driver": {"sparkSubmitJobDriver": driver}, **given, **role}
    if service == "steps":
        args = ["spark-submit", *options.split(), "--deploy-mode", "cluster", str(script), argument]
        jar = {"HadoopJarStep": {"Jar": "command-runner.jar", "Args": args}}
        step = {"Name": "step", "ActionOnFailure": "CONTINUE", **jar}
        return {"job_flow_id": "j-1", "steps": [step, step], "wait_for_completion": True, **often}
    if service == "glue":
        arguments = {"--conf": " --conf ".join(conf), "--note": argument}
        return {"job_name": "job", "script_args": arguments, "job_poll_interval": 1, "stop_job_run_on_kill": True}
    if service == "databricks":
        cluster = {"spark_version": "15.4.x-scala2.12", "num_workers": 1, "spark_conf": properties}
        task = {"python_file": str(script), "parameters": [argument]}
        return {"new_cluster": cluster, "spark_python_task": task, "polling_period_seconds": 1}
    place = {"region": "europe-west1", "project_id": "shop"}
    python: Any = {"main_python_file_uri": str(script), "args": [argument]}
    if service == "batch":
        return {"batch": {"pyspark_batch": python, "runtime_config": {"properties": properties}}, **place}
    return {"job": {"placement": {"cluster_name": "c"}, "pyspark_job": {**python, "properties": properties}}, **place}


def operator(service: str, **arguments: Any) -> Any:
    module, _, name = OPERATORS[service].rpartition(".")
    return getattr(import_module(module), name)(task_id="build", dag=dag(), **arguments)


@pytest.mark.parametrize("service", SERVICES)
def test_a_run_gets_exactly_its_properties_and_logs_to_s3(service: str, runs: Runs, tmp_path: Path) -> None:
    store = open_store("s3://aws_default@managed")
    store.write(f"{service}/.keep", [b""])
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"s3://managed/{service}"}
    task = operator(service, **request_of(service, tmp_path / "job.py", {**NOTE, **log}, "noted"))
    task.execute(context_of(task))
    assert {run.state for run in runs.all.values()} == {State.SUCCEEDED}
    assert len([name for name in store.stored(service) if "/events_1_" in name]) == len(runs.all)


@pytest.mark.parametrize("service", SERVICES)
def test_a_run_that_fails_fails_the_task(service: str, runs: Runs, tmp_path: Path) -> None:
    task = operator(service, **request_of(service, tmp_path / "job.py", NOTE, "fails"))
    with pytest.raises(Exception, match=r"(?i)fail|error"):
        task.execute(context_of(task))
    assert next(iter(runs.all.values())).state is State.FAILED


@pytest.mark.parametrize("service", [name for name in SERVICES if name != "steps"])
def test_a_killed_task_stops_its_run(service: str, runs: Runs, tmp_path: Path) -> None:
    of_google = service in ("job", "batch")
    flag = "asynchronous" if of_google else "wait_for_termination" if service == "databricks" else "wait_for_completion"
    task = operator(service, **request_of(service, tmp_path / "job.py", NOTE, "waits"), **{flag: of_google})
    task.execute(context_of(task))
    (run,) = runs.all.values()
    wait_until(lambda: run.state is State.RUNNING)
    task.on_kill()
    wait_until(lambda: run.state is State.STOPPED)

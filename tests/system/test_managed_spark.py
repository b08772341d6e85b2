"""Operators for services of AWS in a real Airflow, and a real Spark below the services' stand-ins."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.oracles.stored import stored_edges
from tests.patience import HANGS
from tests.servers.aws_spark import Aws
from tests.servers.managed_spark import Runs
from tests.servers.s3 import S3
from tests.system.airflow_home import REPOSITORY, AirflowHome, file_connection, sink_in
from tests.system.catalogue import (
    Catalogue,
    DagRunKey,
    file_dataset,
    instance,
    output_job,
    spark_job,
)
from tests.system.test_examples import ORDERS, example

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAG = "managed"


class Services(Aws):
    """Services whose application of EMR Serverless is up when a test says so. :ivar settings: of
    Airflow.
    """

    settings: dict[str, str]

    def _rest(self, method: str, kind: str, owner: str, more: list[str], body: Any) -> Any:
        answer = super()._rest(method, kind, owner, more, body)
        self.application_state = "STARTING" if more == ["start"] else self.application_state
        return answer


@pytest.fixture
def aws(tmp_path: Path, s3: S3) -> Iterator[Services]:
    """Give services whose events go to a bucket, which has no log in the end but that of a killed
    attempt: all lineage was delivered.
    """
    bucket = s3.make_bucket(name := tmp_path.name.replace("_", "-"))
    jobs = {
        "copy": "tests/system/jobs/managed_copy.py",
        "shop_revenue": "example_dags/jobs/revenue.py",
    }
    runs = Runs(tmp_path / "runs", s3)
    with runs, Services(runs, s3) as aws:
        for job, script in jobs.items():
            aws.jobs[job] = {
                "Name": job,
                "Command": {"Name": "glueetl", "ScriptLocation": str(REPOSITORY / script)},
            }
        aws.settings = {
            "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(aws.connection()),
            "AIRFLOW__SPARK_DATAHUB__EVENTS_LOCATION": f"s3://aws_default@{name}/lineage",
            "AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR": "",
        }
        yield aws
    files = [path for path in bucket.rglob("*") if path.is_file()]
    # A killed driver may close its log after the attempt waited for it.
    left = {path.name for path in files if "killed" not in path.parts}
    assert left <= {".of-an-attempt"}


def test_tasks_that_defer_or_die_have_lineage(
    airflow_home: AirflowHome, aws: Services, tmp_path: Path
) -> None:
    aws.application_state = "STOPPED"
    (tmp_path / "reports").mkdir()
    for name in (copied := ("deferred", "first", "second", "lost")) + ("killed",):
        (tmp_path / f"{name}.csv").write_text("id,name\n1,Ada\n")
    auto = {"AIRFLOW__SPARK_DATAHUB__AUTO": "EmrServerlessStartJobOperator, GlueJobOperator"}
    variables = {**aws.settings, **auto, "SYSTEM_FOLDER": tmp_path, "AIRFLOW__CORE__PARALLELISM": 5}
    sink = {"datahub_file": file_connection(tmp_path)}
    with (
        airflow_home.scheduling(tmp_path / "airflow", "managed.py", sink, **variables) as home,
        home.api_server(tmp_path, {"editor": "user"}, sink, "", **variables) as url,
    ):
        home.until(lambda: bool(home.query("select 1 from dag")))
        home.trigger(DAG)
        # Airflow fails a deferred task that is resumed before its first process has ended.
        home.until(lambda: "final_state=deferred" in (home.folder / "scheduler.log").read_text())
        aws.application_state = "STARTED"
        home.until(
            lambda: all((tmp_path / name / "_SUCCESS").exists() for name in ("killed", "lost"))
        )
        ((run_id,),) = home.query("select run_id from dag_run")
        editor = {"username": "editor", "password": "password of editor"}
        token = requests.post(f"{url}/auth/token", json=editor, timeout=HANGS).json()[
            "access_token"
        ]
        killed = f"{url}/api/v2/dags/{DAG}/dagRuns/{run_id}/taskInstances/killed"
        access = {"Authorization": f"Bearer {token}"}
        assert requests.patch(
            killed, json={"new_state": "failed"}, headers=access, timeout=HANGS
        ).ok
        lost = "from task_instance where task_id = 'lost'"
        os.kill(home.query(f"select pid {lost}")[0][0], signal.SIGKILL)
        home.until(lambda: bool(home.query(f"select 1 {lost} and try_number = 2")))
        (tmp_path / "go").touch()
        run = instance(DagRunKey(dag_id=DAG, run_id=run_id))
        home.until(
            lambda: (
                ("COMPLETE", None, "FAILURE")
                in Catalogue.of_folder(sink_in(tmp_path)).run_events(run)
            )
        )
        # On a busy machine, the driver of the killed task closes its log too late for the task.
        status, output = home.spark_datahub("emit")
        assert status == 0, output

    catalogue = Catalogue.of_folder(sink_in(tmp_path))
    catalogue.assert_strict()
    assert len(catalogue.children(run)) == 5
    for task_run in catalogue.children(run):
        (spark_run,) = catalogue.children(task_run)
        result = "FAILURE" if task_run == catalogue.task_run(DAG, "killed") else "SUCCESS"
        assert {end for *_, end in catalogue.run_events(task_run)} == {None, result}
        assert [end for *_, end in catalogue.run_events(spark_run)] == [None, result]
    stored = stored_edges(catalogue.proposals)
    for name in copied:
        is_mapped = name in ("first", "second")
        job = spark_job(DAG, "mapped" if is_mapped else name, name)
        written = file_dataset(tmp_path / name)
        # Instances of a mapped task only add to what the others wrote.
        of_job = stored[output_job(job, written) if is_mapped else job]
        assert of_job.inputs == {file_dataset(tmp_path / f"{name}.csv")}
        assert of_job.outputs == {written}
    assert len(aws.runs.all) == 5, "the attempt after the lost one reconnects to its job"


def test_the_example_managed_lineage(
    airflow_home: AirflowHome, aws: Services, tmp_path: Path
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "orders.csv").write_text(ORDERS)
    (tmp_path / "raw" / "customers.csv").write_text(
        "customer_id,name,country\n7,Ada,PT\n8,Max,DE\n"
    )
    folders = {"SHOP_LAKE": tmp_path, "SHOP_JOBS": REPOSITORY / "example_dags/jobs"}
    _, catalogue = example(airflow_home, "managed_lineage", tmp_path, **aws.settings, **folders)
    stored = stored_edges(catalogue.proposals)
    orders, revenue = (file_dataset(tmp_path / name) for name in ("orders", "revenue_by_country"))
    # Airflow's command gives a deferred task nothing back, so that its edges are only added.
    deferred = output_job(spark_job("managed_lineage", "build_orders"), orders)
    assert stored[deferred].outputs == {orders}
    assert stored[spark_job("managed_lineage", "revenue")].outputs == {revenue}

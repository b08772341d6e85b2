"""Tasks that start Spark below themselves; their Spark's scripts read ``spark-env.sh`` as the real
ones do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    DownstreamTasksSkipped,
    TaskDeferred,
)
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import BranchPythonOperator, ExternalPythonOperator
from airflow.sdk import DAG

from airflow_provider_spark_datahub.operators import child_spark
from airflow_provider_spark_datahub.operators.child_spark import (
    BashDatahubOperator,
    ChildSparkOperator,
    PythonDatahubOperator,
    pyspark_lineage_task,
    spark_lineage,
    spark_lineage_task,
)
from airflow_provider_spark_datahub.operators.task_lineage import LineagePendingError
from tests.capture.installations import executable
from tests.capture.test_connect_session import FILE, ONE, RECORDED
from tests.cases import cases
from tests.delivery.connections import connect, connect_to_files
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered_text
from tests.operators.tries import (
    FAKE_SPARK,
    SPARK_SUBMIT,
    FakeSpark,
    TaskInstance,
    context_of,
    dag,
    report_of,
)

OPTIONS: dict[str, Any] = {"datahub_conn_id": "datahub_file"}


@pytest.fixture
def below(spark: FakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A Spark with a configuration folder of its own."""
    home = tmp_path / "spark"
    executable(
        home / "bin" / "spark-submit", (FAKE_SPARK / "spark-class").read_text() + SPARK_SUBMIT
    )
    shutil.copy(FAKE_SPARK / "load-spark-env.sh", home)
    (home / "conf").mkdir()
    (home / "conf/spark-defaults.conf").write_text("spark.extraListeners com.example.Own\n")
    (home / "conf/log4j2.properties").write_text("# the user's\n")
    (home / "conf/spark-env.sh").write_text("USERS_VARIABLE=users\n")
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR", spark.jar)
    for name in ("SPARK_CONF_DIR", "SPARK_ENV_LOADED"):
        monkeypatch.delenv(name, raising=False)
    spark.writes("a_csv_join_agg")
    return spark


def bash(command: str, **arguments: Any) -> BashDatahubOperator:
    return BashDatahubOperator(
        task_id="build", bash_command=command, dag=dag(), **{**OPTIONS, **arguments}
    )


@pytest.mark.slow
def test_every_spark_below_a_task_has_lineage_and_its_own_configuration(
    below: FakeSpark, tmp_path: Path
) -> None:
    before = dict(os.environ)
    command = "spark-submit --name a 'a job.py' & spark-submit --name b b.py & wait; echo ${SPARK_ENV_LOADED:-unset}"
    report = report_of(operator := bash(command))
    assert (report["events"], report["pending"], report["reason"], report["warnings"]) == (
        46,
        0,
        None,
        [],
    )
    assert len(report["outputs"]) == 1
    runs = sorted(below.runs, key=lambda run: run.rpartition("--name")[2])
    assert [run.rpartition("--name ")[2] for run in runs] == ["a a job.py", "b b.py"]
    assert all("spark.extraListeners=com.example.Own,io.openlineage" in run for run in runs)
    locations = {part for run in runs for part in run.split() if "transport.location=" in part}
    assert len(locations) == 2, "two writers to one file would tear each other's lines"
    environments = (tmp_path / "fake-spark/environments").read_text().splitlines()
    assert {line.split()[1] for line in environments} == {"users"}
    assert not any(Path(line.split()[0]).exists() for line in environments), (
        "the folders go with the task"
    )
    assert not list((tmp_path / "events").rglob("*"))
    assert dict(os.environ) == before
    assert operator.env is None


@pytest.mark.slow
@cases("operators")
@pytest.mark.usefixtures("below")
def test_a_task_whose_sparks_have_no_lineage_reports_why(command: str, reason: str) -> None:
    assert reason in report_of(bash(command))["reason"]


@pytest.mark.slow
@pytest.mark.usefixtures("below")
def test_a_client_of_a_connect_server_has_its_own_operations(tmp_path: Path) -> None:
    """The server is as good as its event file: it writes what a real one wrote for two clients."""
    server, before = tmp_path / "server.ndjson", dict(os.environ)
    server.write_text("")
    remote = {"SPARK_REMOTE": "sc://spark:15002/;use_ssl=true"}
    command = f'sed "s/{ONE}/${{SPARK_REMOTE##*session_id=}}/g" {RECORDED} >> {server}'
    report = report_of(bash(command, env=remote, append_env=True, connect_events=str(server)))
    assert report["reason"] is None
    assert report["jobs"] == [
        "urn:li:dataJob:(urn:li:dataFlow:(spark,shop_build,default),shop.build)"
    ]
    assert report["outputs"] == [FILE.format("out_one")]
    assert (server.read_text() != "", dict(os.environ)) == (True, before)
    unread = report_of(bash("true", env=remote, append_env=True))
    (warning,) = unread["warnings"]
    assert warning.startswith("SPARK_REMOTE names the Spark Connect server sc://spark:15002/: ")
    missing = report_of(
        bash("true", env=remote, append_env=True, connect_events=str(tmp_path / "none"))
    )
    assert "connect_events: " in missing["reason"]
    assert "No such file" in missing["reason"]


@pytest.mark.slow
def test_a_session_of_a_connection_has_its_own_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``@task.pyspark``, whose session is one of a Spark Connect server, as good as its event file."""
    server, seen = tmp_path / "server.ndjson", list[str]()
    server.write_text("")
    user = {"login": "ada", "password": "connect-secret"}
    connect(monkeypatch, "shared", conn_type="spark_connect", host="spark", port=15002, **user)

    def session(self: Any) -> None:
        seen.append(str(self.config_kwargs.get("spark.remote")))
        session_id = seen[-1].rpartition("session_id=")[2]
        server.write_text(RECORDED.read_text().replace(ONE, session_id))

    monkeypatch.setattr(
        "airflow.providers.apache.spark.operators.spark_pyspark.PySparkOperator.execute_callable",
        session,
    )

    def operator(**arguments: Any) -> Any:
        task: Any = pyspark_lineage_task(
            conn_id="shared", datahub_conn_id="datahub_file", **arguments
        )
        with DAG("shop", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):

            def build(spark: Any) -> None:
                """Do nothing."""

            return task(build)().operator

    report = report_of(shared := operator(connect_events=str(server)))
    assert seen == [
        f"sc://spark:15002/;user_id=ada;token=connect-secret;session_id={TaskInstance.id}"
    ]
    assert (report["reason"], report["outputs"]) == (None, [FILE.format("out_one")])
    assert report["jobs"] == [
        "urn:li:dataJob:(urn:li:dataFlow:(spark,shop_build,default),shop.build)"
    ]
    assert shared.config_kwargs == {}
    assert [
        gap for gap in report["gaps"] if gap.startswith("inputs of queries that only return rows")
    ]
    assert "connect-secret" not in json.dumps(report)
    (warning,) = report_of(operator())["warnings"]
    assert warning.startswith(
        "the connection shared names the Spark Connect server sc://spark:15002/: "
    )


@pytest.mark.slow
def test_one_spark_of_two_without_lineage_is_a_warning(below: FakeSpark) -> None:
    report = report_of(
        bash("spark-submit --conf spark.openlineage.disabled=true a.py; spark-submit b.py")
    )
    (warning,) = report["warnings"]
    assert warning.startswith(
        "a Spark of this task ran without lineage: the property spark.openlineage.disabled"
    )
    assert (report["events"], len(below.runs)) == (23, 2)


@pytest.mark.slow
def test_a_python_task_has_lineage_and_fails_as_its_spark_does(below: FakeSpark) -> None:
    def call(code: int) -> str:
        below.exits(code)
        subprocess.run(["spark-submit", "x.py"], check=True)
        return "done"

    def python(code: int) -> PythonDatahubOperator:
        return PythonDatahubOperator(
            task_id="build", python_callable=call, op_args=[code], dag=dag(), **OPTIONS
        )

    context = context_of(operator := python(0))
    assert operator.execute(context) == "done"
    assert context["ti"].xcoms["lineage_report"]["events"] == 23
    assert (
        report_of(python(3), TaskInstance(try_number=2), fails=subprocess.CalledProcessError)[
            "events"
        ]
        == 23
    )
    report_of(
        bash("spark-submit x.py"),
        TaskInstance(try_number=3),
        fails=AirflowException,
        match="exit code 3",
    )


@pytest.mark.slow
@pytest.mark.parametrize("inherits", [True, False])
def test_a_function_in_another_python_has_lineage_whatever_it_inherits(
    below: FakeSpark, *, inherits: bool
) -> None:
    def call() -> None:
        import subprocess

        subprocess.run(["spark-submit", "x.py"], check=True)

    given = {name: os.environ[name] for name in ("PATH", "FAKE_SPARK")} | {"SPARK_CONF_DIR": ""}
    python: dict[str, Any] = {"python": os.path.realpath(sys.executable), "expect_airflow": False}
    arguments = {
        "python_callable": call,
        "inherit_env": inherits,
        "env_vars": given,
        **python,
        **OPTIONS,
    }
    operator = ExternalOperator(task_id="build", dag=dag(), **arguments)
    assert report_of(operator)["events"] == 23
    assert (len(below.runs), operator.env_vars) == (1, given)


class ExternalOperator(ChildSparkOperator, ExternalPythonOperator):
    """A function in another Python that starts Spark, as it is with lineage by policy."""


class ChoosingOperator(ChildSparkOperator, BranchPythonOperator):
    """A branch that starts Spark, as it is with lineage by policy."""


def test_a_branch_that_skips_other_tasks_has_succeeded(below: FakeSpark, tmp_path: Path) -> None:
    def choose() -> str:
        subprocess.run(["spark-submit", "x.py"], check=True)
        return "left"

    with dag():
        operator = ChoosingOperator(task_id="build", python_callable=choose, **OPTIONS)
        operator >> [EmptyOperator(task_id="left"), EmptyOperator(task_id="right")]
    context = context_of(operator)
    context["ti"].task = operator
    with pytest.raises(DownstreamTasksSkipped):
        operator.execute(context)
    assert len(below.runs) == 1
    assert context["ti"].xcoms["lineage_report"]["reason"] is None
    delivered = delivered_text(tmp_path / "sink")
    assert set(re.findall(r'"result": {"type": "(\w+)"', delivered)) == {"SUCCESS"}
    assert '"changeType": "UPSERT", "aspectName": "dataJobInputOutput"' in delivered


@pytest.mark.slow
def test_decorated_tasks_have_the_lineage_of_their_sparks(below: FakeSpark) -> None:
    with_lineage: Any = spark_lineage_task(datahub_conn_id="datahub_file", lineage={"env": "DEV"})
    with_session: Any = pyspark_lineage_task(
        conn_id="spark_default", datahub_conn_id="datahub_file"
    )
    with DAG("shop", schedule=None):

        def build(day: str) -> str:
            subprocess.run(["spark-submit", day], check=True)
            return day

        def count(spark: Any) -> int:
            return int(spark)

        with_session(count)()
        operator: Any = with_lineage(build)("2026-01-01").operator
    assert operator.dag.get_task("count").datahub_conn_id == "datahub_file"
    context = context_of(operator)
    assert operator.execute(context) == "2026-01-01"
    assert below.runs[0].endswith(" 2026-01-01")
    assert context["ti"].xcoms["lineage_report"]["events"] == 23


@pytest.mark.slow
def test_the_context_manager_has_the_lineage_of_the_sparks_in_it(
    below: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(bash("x"))
    monkeypatch.setattr(child_spark, "get_current_context", lambda: context)
    with spark_lineage(**OPTIONS):
        subprocess.run(["spark-submit", "x.py"], check=True)
    assert context["ti"].xcoms["lineage_report"]["events"] == 23
    failure = RuntimeError("of the task")
    with pytest.raises(RuntimeError) as caught, spark_lineage(**OPTIONS):
        raise failure
    assert caught.value is failure
    connect_to_files(monkeypatch, "datahub_file", Path("/proc/nowhere/x"))
    with pytest.raises(LineagePendingError), spark_lineage(**OPTIONS, lineage_on_failure="fail"):
        subprocess.run(["spark-submit", "x.py"], check=True)
    assert len(below.runs) == 2


@pytest.mark.usefixtures("below")
def test_secrets_in_the_failure_of_a_task_and_in_the_notes_of_its_launches_are_redacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "https://ann:hunter2-and-much-more-of-the-same-so-that-a-cut-falls-into-it@repo.example.com/openlineage.jar"
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OPENLINEAGE_JAR", url)

    def call(*, launches: bool) -> None:
        if launches:
            subprocess.run(["spark-submit", "x.py"], check=True)
        raise RuntimeError(f"{'x' * 240} {url}")

    for launches in (True, False):
        arguments: dict[str, Any] = {"python_callable": call, "op_kwargs": {"launches": launches}}
        operator = PythonDatahubOperator(task_id="build", dag=dag(), **arguments, **OPTIONS)
        report = json.dumps(report_of(operator, fails=RuntimeError))
        assert (
            "of this task ran without lineage: the Scala version of https://repo" in report
        ) is launches
        assert "hunter2" not in report


@pytest.mark.usefixtures("below")
def test_a_task_that_defers_in_the_context_manager_is_resumed_with_its_own_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The operator is the user's: its method would refuse an argument of ours."""
    context = context_of(bash("x"))
    monkeypatch.setattr(child_spark, "get_current_context", lambda: context)
    trigger: Any = object()
    deferral = TaskDeferred(trigger=trigger, method_name="execute_complete", kwargs={"own": 1})
    with pytest.raises(TaskDeferred) as raised, spark_lineage(**OPTIONS):
        raise deferral
    assert raised.value.kwargs == {"own": 1}
    (entry,) = outbox_at(tmp_path / "outbox").entries()
    assert entry.manifest.state == "unfinished", "a later drain converts the events"


def test_the_context_manager_refuses_an_unknown_option() -> None:
    with (
        pytest.raises(TypeError, match="no option 'datahub_connection'"),
        spark_lineage(datahub_connection="x"),
    ):
        pytest.fail("the code must not run")

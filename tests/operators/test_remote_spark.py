"""Livy and Kubernetes: stand-ins of their interfaces submit what they are given to a stand-in of
Spark.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred

from airflow_provider_spark_datahub.capture import (
    InjectionError,
    JarChoice,
    LineageInjection,
    ParentRun,
    inject,
)
from airflow_provider_spark_datahub.operators.livy import LivyDatahubOperator
from airflow_provider_spark_datahub.operators.service_request import SparkRequest
from airflow_provider_spark_datahub.operators.spark_kubernetes import SparkKubernetesDatahubOperator
from airflow_provider_spark_datahub.operators.task_lineage import TaskLineage
from airflow_provider_spark_datahub.plugins import dag_run_listener
from tests.delivery.connections import connect
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered_text, task_results
from tests.operators.test_alterable_submit import configure_airflows_transport
from tests.operators.tries import FakeSpark, TaskInstance, context_of, dag, report_of
from tests.patience import join_threads
from tests.servers.livy import Livy
from tests.servers.spark_operator import Json, spark_operator

USERS = {"spark.extraListeners": "com.example.Own"}
LISTENERS = (
    "spark.extraListeners=com.example.Own,io.openlineage.spark.agent.OpenLineageSparkListener"
)


@pytest.fixture
def livy(spark: FakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Livy]:
    spark.writes("a_csv_join_agg")
    with Livy(tmp_path / "livy.log") as server:
        connect(monkeypatch, "livy_default", conn_type="livy", host=server.url)
        yield server


def batch(
    spark: FakeSpark,
    operator_class: type[LivyDatahubOperator] = LivyDatahubOperator,
    **arguments: Any,
) -> LivyDatahubOperator:
    given: dict[str, Any] = {"file": "job.py", "args": ["x"], "conf": USERS, "polling_interval": 1}
    given |= {"datahub_conn_id": "datahub_file", "openlineage_jar": f"local:{spark.jar}"}
    return operator_class(task_id="build", dag=dag(), **{**given, **arguments})


@pytest.mark.slow
def test_a_batch_of_livy_has_lineage_whether_or_not_it_succeeds(
    spark: FakeSpark, livy: Livy
) -> None:
    operator = batch(spark)
    users = copy.deepcopy(operator.spark_params)
    report = report_of(operator)
    run = spark.runs[-1]
    assert LISTENERS in run
    assert run.endswith("job.py x")
    assert livy.batches[-1]["conf"]["spark.jars"] == f"local:{spark.jar}"
    assert (report["events"], report["pending"], report["reason"]) == (23, 0, None)
    assert operator.spark_params == users
    spark.exits(3)
    report = report_of(
        batch(spark), TaskInstance(try_number=2), fails=AirflowException, match="did not succeed"
    )
    assert report["events"] == 23


def test_a_deferred_batch_has_its_lineage_when_it_is_resumed(
    spark: FakeSpark, livy: Livy, tmp_path: Path
) -> None:
    operator = batch(spark, deferrable=True)
    context = context_of(operator)
    with spark.running(), pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)
    assert "lineage_report" not in context["ti"].xcoms, "the batch still runs"
    livy._processes[0].wait(20)
    kwargs = json.loads(json.dumps(deferred.value.kwargs))
    event = {"status": "success", "batch_id": 0, "response": "done", "log_lines": None}
    again = batch(spark, deferrable=True)
    assert again.resume_execution("execute_complete", {**kwargs, "event": event}, context) == 0
    report = context["ti"].xcoms["lineage_report"]
    assert (report["events"], report["pending"], report["reason"]) == (23, 0, None)
    assert len(livy.batches) == 1
    assert '"FAILURE"' not in delivered_text(tmp_path / "sink"), (
        "its first process left an entry of its own"
    )


def test_a_process_that_defers_its_batch_delivers_no_more_of_it(
    spark: FakeSpark, livy: Livy
) -> None:
    """``airflow dags test`` resumes the task in the same process, where a thread of the first part
    would go on.
    """
    operator = batch(spark, deferrable=True, emit_periodically=1)
    with spark.running():
        with pytest.raises(TaskDeferred):
            operator.execute(context_of(operator))
        join_threads("lineage-of-running-job")
    livy._processes[0].wait(20)


def test_a_deferred_batch_whose_trigger_fails_keeps_its_lineage(
    spark: FakeSpark, livy: Livy, tmp_path: Path
) -> None:
    """Airflow replaces what the operator left for its resumption, so that only the outbox knows the
    events.
    """
    operator = batch(spark, deferrable=True)
    context = context_of(operator)
    with spark.running(), pytest.raises(TaskDeferred):
        operator.execute(context)
    livy._processes[0].wait(20)
    again = batch(spark, deferrable=True)
    with pytest.raises(AirflowException) as failure:
        again.resume_execution("__fail__", {"error": "Trigger timeout"}, context)
    runtime: Any = SimpleNamespace(task=again, get_template_context=lambda: context)
    dag_run_listener.on_task_instance_failed("running", runtime, failure.value)
    assert list(outbox_at(tmp_path / "outbox").entries()) == []
    assert "/lake/out/a/revenue_by_country" in delivered_text(tmp_path / "sink")
    assert task_results(tmp_path / "sink") == {"FAILURE"}


def test_a_batch_of_livy_keeps_the_transport_that_airflow_injects(
    spark: FakeSpark, livy: Livy, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_airflows_transport(monkeypatch)
    report = report_of(
        batch(
            spark, openlineage_inject_transport_info=True, openlineage_inject_parent_job_info=True
        )
    )
    assert (report["events"], report["reason"], report["warnings"]) == (23, None, [])
    conf = livy.batches[-1]["conf"]
    transports = "spark.openlineage.transport.transports"
    assert conf["spark.openlineage.transport.type"] == "composite"
    assert conf[f"{transports}.users.url"] == "http://ol:5000"
    assert conf[f"{transports}.airflow_datahub.type"] == "file"


@pytest.mark.slow
def test_a_batch_that_lineage_cannot_be_added_to_reports_why(spark: FakeSpark, livy: Livy) -> None:
    operator = batch(spark, polling_interval=0)
    with pytest.raises(InjectionError, match="does not wait for its job"):
        operator._launcher(context_of(operator))
    assert "set polling_interval" in report_of(operator)["reason"]
    assert (
        "name the jar in full"
        in report_of(batch(spark, openlineage_jar=""), TaskInstance(try_number=2))["reason"]
    )
    assert all("OpenLineage" not in run for run in spark.runs)
    assert [one["conf"] for one in livy.batches] == [USERS, USERS]


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sequence[Json]]:
    with spark_operator(monkeypatch, tmp_path / "drivers.log") as created:
        yield created


@pytest.mark.usefixtures("spark")
def test_an_attempt_that_reattaches_to_the_driver_of_a_killed_one_delivers_its_lineage(
    kubernetes: Sequence[Json], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``reattach_on_restart``: the driver writes into the event file of the attempt that submitted
    it.
    """
    spec = {"sparkVersion": "4.0.1", "mainApplicationFile": "job.py", "driver": {}}

    def run(try_number: int) -> TaskInstance:
        manifest = {"metadata": {"name": "build"}, "spec": copy.deepcopy(spec)}
        operator = SparkKubernetesDatahubOperator(
            task_id="build",
            dag=dag(),
            template_spec=manifest,
            namespace="jobs",
            datahub_conn_id="datahub_file",
        )
        ti = TaskInstance(try_number=try_number)
        context = context_of(operator, ti)
        context["run_id"] = "run"
        operator.execute(context)
        return ti

    with monkeypatch.context() as killed:
        killed.setattr(TaskLineage, "_conclude", lambda *_: None)
        killed.setattr(KubernetesPodOperator, "execute", Mock(side_effect=SystemExit))
        with pytest.raises(SystemExit):
            run(1)
    driver = SimpleNamespace(
        metadata=SimpleNamespace(name="build-driver", labels={"try_number": "1"})
    )
    # As in the first versions of the provider, which call it before they create an application.
    monkeypatch.setattr(
        SparkKubernetesOperator, "find_spark_job", lambda _operator, _context: driver
    )
    monkeypatch.setattr(
        KubernetesPodOperator, "execute", lambda operator, context: operator.find_spark_job(context)
    )
    report = run(2).xcoms["lineage_report"]
    assert (len(kubernetes), report["events"], report["pending"], report["reason"]) == (
        1,
        23,
        0,
        None,
    )
    assert list(outbox_at(tmp_path / "outbox").entries()) == []
    spark_run = re.findall(
        r'"type": "(\w+)", "nativeResultType": "(?!airflow)', delivered_text(tmp_path / "sink")
    )
    assert set(spark_run) == {"SUCCESS"}


def test_an_application_on_kubernetes_has_lineage_whether_or_not_it_succeeds(
    spark: FakeSpark, kubernetes: Sequence[Json]
) -> None:
    manifest: dict[str, Any] = {
        "metadata": {"name": "build"},
        "spec": {
            "sparkVersion": "4.0.1",
            "sparkConf": USERS,
            "mainApplicationFile": "job.py",
            "driver": {},
        },
    }
    before = copy.deepcopy(manifest)

    def operator(**arguments: Any) -> SparkKubernetesDatahubOperator:
        given = {
            "template_spec": manifest,
            "namespace": "jobs",
            "datahub_conn_id": "datahub_file",
            **arguments,
        }
        return SparkKubernetesDatahubOperator(task_id="build", dag=dag(), **given)

    one = operator()
    context = context_of(one)
    context["run_id"] = "run"
    assert one.execute(context) == "done"
    assert LISTENERS in spark.runs[0]
    (created,) = kubernetes
    assert (
        created["spec"]["sparkConf"]["spark.jars.packages"]
        == "io.openlineage:openlineage-spark_2.13:1.53.0"
    )
    report = context["ti"].xcoms["lineage_report"]
    assert (report["events"], report["pending"], report["reason"]) == (23, 0, None)
    assert one.template_spec is manifest
    assert manifest == before
    spark.exits(1)
    one = operator(template_spec=None, application_file=json.dumps(manifest))
    report = report_of(
        one, TaskInstance(try_number=2), fails=AirflowException, match="code 1", run_id="run"
    )
    assert report["events"] == 23
    assert one.application_file


# -- what Livy and Kubernetes are sent, as a submission and back

_LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
OPENS = "--add-opens=java.base/java.security=ALL-UNNAMED"
PARENT = ParentRun("ns", "shop.build", "01990000-0000-7000-8000-000000000001")
INJECTED = {
    "spark.openlineage.transport.type": "file",
    "spark.openlineage.transport.location": "/shared/events/1.ndjson",
    "spark.openlineage.parentJobNamespace": "ns",
    "spark.openlineage.parentJobName": "shop.build",
    "spark.openlineage.parentRunId": "01990000-0000-7000-8000-000000000001",
    "spark.openlineage.namespace": "default",
}


def with_lineage(
    request: SparkRequest, field: str, value: Any, jar: JarChoice
) -> Mapping[str, Any]:
    """Return the operator's attributes for a request with lineage."""
    lineage = LineageInjection(
        "/shared/events/1.ndjson", jar, PARENT, properties={"namespace": "default"}
    )
    [submission] = request.read({field: value})
    return request.changed({field: value}, [inject(submission, lineage).submission])


def test_a_batch_of_livy_gets_the_listener_and_keeps_its_arguments() -> None:
    batch: dict[str, Any] = {
        "file": "s3://jobs/build.py",
        "args": ["2026-01-01"],
        "jars": ["s3://jobs/users.jar"],
        "conf": {"spark.executor.instances": 3, "spark.extraListeners": "com.example.Own"},
        "driver_memory": "2g",
        "name": None,
    }
    before = copy.deepcopy(batch)
    jar = JarChoice(jars=("s3://jars/openlineage-spark_2.13-1.53.0.jar",))
    livy = partial(with_lineage, LivyDatahubOperator.spark_request, "spark_params")
    assert livy(batch, jar)["spark_params"] == {
        **before,
        "jars": ["s3://jobs/users.jar", "s3://jars/openlineage-spark_2.13-1.53.0.jar"],
        "conf": {
            "spark.executor.instances": "3",
            "spark.extraListeners": f"com.example.Own,{_LISTENER}",
            "spark.driver.extraJavaOptions": OPENS,
            **INJECTED,
        },
    }
    assert batch == before
    package = JarChoice(packages=("io.openlineage:openlineage-spark_2.13:1.53.0",))
    bare = livy({"file": "x"}, package)["spark_params"]
    assert bare["conf"]["spark.jars.packages"] == "io.openlineage:openlineage-spark_2.13:1.53.0"
    assert bare.keys() == {"file", "conf"}


def users_manifest() -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "build"},
        "spec": {
            "sparkVersion": "4.0.1",
            "sparkConf": {"spark.extraListeners": "com.example.Own"},
            "deps": {"packages": ["a:b:1"], "files": ["x.txt"]},
            "driver": {
                "cores": 1,
                "javaOptions": "-Dx=y",
                "env": [{"name": "A", "value": 1}, {"name": "SECRET", "valueFrom": {}}],
            },
            "executor": {"instances": 2},
        },
    }


def test_a_manifest_of_kubernetes_gets_the_listener_and_keeps_its_fields() -> None:
    one = users_manifest()
    package = JarChoice(packages=("io.openlineage:openlineage-spark_2.13:1.53.0",))
    expected = users_manifest()
    expected["spec"]["sparkConf"] = {
        "spark.extraListeners": f"com.example.Own,{_LISTENER}",
        **INJECTED,
    }
    expected["spec"]["deps"]["packages"] = ["a:b:1", "io.openlineage:openlineage-spark_2.13:1.53.0"]
    expected["spec"]["driver"]["javaOptions"] = f"-Dx=y {OPENS}"
    kubernetes = partial(
        with_lineage, SparkKubernetesDatahubOperator.spark_request, "template_body"
    )
    changed = kubernetes({"spark": one, "kubernetes": {}}, package)
    assert changed == {
        "application_file": None,
        "template_spec": {"spark": expected, "kubernetes": {}},
    }
    assert one == users_manifest()
    injected = kubernetes({"spark": {"spec": {}}}, package)["template_spec"]["spark"]["spec"]
    assert (
        injected["sparkConf"]["spark.jars.packages"]
        == "io.openlineage:openlineage-spark_2.13:1.53.0"
    )
    assert injected["sparkConf"]["spark.driver.extraJavaOptions"] == OPENS
    assert injected.keys() == {"sparkConf"}


def test_a_manifest_gives_the_drivers_environment_scala_version_and_store() -> None:
    def known(spec: Json) -> Mapping[str, Any]:
        document = {"template_body": {"spark": {"spec": spec}}}
        return SparkKubernetesDatahubOperator.spark_request.spark(
            Mock(random_name_suffix=False), document
        )

    assert known(users_manifest()["spec"])["env"] == {"A": "1"}
    versions = {
        version: known({"sparkVersion": version})["scala_version"]
        for version in ("3.5.7", "4.1", "")
    }
    assert versions == {"3.5.7": "2.12", "4.1": "2.13", "": None}
    files = ("s3a://jobs/job.py", "gs://jobs/job.py", "local:///job.py", None)
    schemes = [known({"mainApplicationFile": file})["store_scheme"] for file in files]
    assert schemes == ["s3a", "gs", None, None]

"""Livy and Kubernetes: stand-ins of their interfaces submit what they are given to a stand-in of
Spark.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
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
from airflow_provider_spark_datahub.operators.spark_kubernetes import SparkKubernetesDatahubOperator
from airflow_provider_spark_datahub.operators.task_lineage import TaskLineage
from airflow_provider_spark_datahub.plugins import dag_run_listener
from tests.delivery.connections import connect
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered_text, task_results
from tests.operators.test_alterable_submit import configure_airflows_transport
from tests.operators.tries import CORPUS, FakeSpark, TaskInstance, context_of, dag, report_of
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


def batch(spark: FakeSpark, **arguments: Any) -> LivyDatahubOperator:
    given: dict[str, Any] = {"file": "job.py", "args": ["x"], "conf": USERS, "polling_interval": 1}
    given |= {"datahub_conn_id": "datahub_file", "openlineage_jar": f"local:{spark.jar}"}
    return LivyDatahubOperator(task_id="build", dag=dag(), **{**given, **arguments})


@pytest.mark.slow
def test_a_batch_of_livy_has_lineage_whether_or_not_it_succeeds(
    spark: FakeSpark, livy: Livy
) -> None:
    operator = batch(spark, conf={**USERS, "spark.executor.instances": 3})
    users = copy.deepcopy(operator.spark_params)
    report = report_of(operator)
    run = spark.runs[-1]
    assert LISTENERS in run
    assert run.endswith("job.py x")
    posted = livy.batches[-1]
    assert posted["conf"]["spark.jars"] == f"local:{spark.jar}"
    assert posted["conf"]["spark.executor.instances"] == "3"
    assert "jars" not in posted
    assert (report["events"], report["pending"], report["reason"]) == (23, 0, None)
    assert operator.spark_params == users
    spark.exits(3)
    report = report_of(
        batch(spark), TaskInstance(try_number=2), fails=AirflowException, match="did not succeed"
    )
    assert report["events"] == 23


def deferred(spark: FakeSpark, livy: Livy) -> tuple[Any, Any]:
    """Run an attempt until it defers its batch; return its context, and what it left for its
    resumption, when the batch has ended.
    """
    operator = batch(spark, deferrable=True, emit_periodically=1)
    context = context_of(operator)
    with spark.running():
        with pytest.raises(TaskDeferred) as deferral:
            operator.execute(context)
        # ``airflow dags test`` resumes the task in the same process, where a thread of the first
        # part would go on.
        join_threads("lineage-of-running-job")
    assert "lineage_report" not in context["ti"].xcoms, "the batch still runs"
    livy._processes[0].wait(20)
    return context, json.loads(json.dumps(deferral.value.kwargs))


def test_a_deferred_batch_has_its_lineage_when_it_is_resumed(
    spark: FakeSpark, livy: Livy, tmp_path: Path
) -> None:
    context, kwargs = deferred(spark, livy)
    event = {"status": "success", "batch_id": 0, "response": "done", "log_lines": None}
    again = batch(spark, deferrable=True)
    assert again.resume_execution("execute_complete", {**kwargs, "event": event}, context) == 0
    report = context["ti"].xcoms["lineage_report"]
    assert (report["events"], report["pending"], report["reason"]) == (23, 0, None)
    assert len(livy.batches) == 1
    assert '"FAILURE"' not in delivered_text(tmp_path / "sink"), (
        "its first process left an entry of its own"
    )


def test_a_deferred_batch_whose_trigger_fails_keeps_its_lineage(
    spark: FakeSpark, livy: Livy, tmp_path: Path
) -> None:
    """Airflow replaces what the operator left for its resumption, so that only the outbox knows the
    events.
    """
    context, _ = deferred(spark, livy)
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


def manifest() -> Json:
    spec = {"sparkVersion": "4.0.1", "mainApplicationFile": "job.py", "driver": {}}
    return {"metadata": {"name": "build"}, "spec": {**spec, "sparkConf": {**USERS}}}


def on_kubernetes(**arguments: Any) -> SparkKubernetesDatahubOperator:
    given: dict[str, Any] = {"namespace": "jobs", "datahub_conn_id": "datahub_file", **arguments}
    return SparkKubernetesDatahubOperator(task_id="build", dag=dag(), **given)


@pytest.mark.usefixtures("spark")
def test_an_attempt_that_reattaches_to_the_driver_of_a_killed_one_delivers_its_lineage(
    kubernetes: Sequence[Json], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``reattach_on_restart``: the driver writes into the event file of the attempt that submitted
    it.
    """

    def run(try_number: int) -> TaskInstance:
        operator = on_kubernetes(template_spec=manifest())
        ti = TaskInstance(try_number=try_number)
        context: Any = {**context_of(operator, ti), "run_id": "run"}
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
    users = manifest()
    one = on_kubernetes(template_spec=users)
    context: Any = {**context_of(one), "run_id": "run"}
    assert one.execute(context) == "done"
    assert LISTENERS in spark.runs[0]
    (created,) = kubernetes
    assert created["spec"]["sparkConf"]["spark.jars.packages"] == PACKAGE
    report = context["ti"].xcoms["lineage_report"]
    assert (report["events"], report["pending"], report["reason"]) == (23, 0, None)
    assert one.template_spec is users
    assert users == manifest()
    spark.exits(1)
    one = on_kubernetes(application_file=json.dumps(users))
    report = report_of(
        one, TaskInstance(try_number=2), fails=AirflowException, match="code 1", run_id="run"
    )
    assert report["events"] == 23
    assert one.application_file


# -- what Kubernetes is sent, as a submission and back

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


PACKAGE = "io.openlineage:openlineage-spark_2.13:1.53.0"


def with_lineage(template: Json) -> Mapping[str, Any]:
    """Return the operator's attributes for a template with lineage."""
    lineage = LineageInjection(
        "/shared/events/1.ndjson",
        JarChoice(packages=(PACKAGE,)),
        PARENT,
        properties={"namespace": "default"},
    )
    request, document = SparkKubernetesDatahubOperator.spark_request, {"template_body": template}
    [submission] = request.read(document)
    return request.changed(document, [inject(submission, lineage).submission])


def users_manifest() -> Any:
    return yaml.safe_load((CORPUS.parents[1] / "spark_application.yaml").read_text())


def test_a_manifest_of_kubernetes_gets_the_listener_and_keeps_its_fields() -> None:
    one = users_manifest()
    expected = users_manifest()
    expected["spec"]["sparkConf"] = {
        "spark.extraListeners": f"com.example.Own,{_LISTENER}",
        **INJECTED,
    }
    expected["spec"]["deps"]["packages"] = ["a:b:1", PACKAGE]
    expected["spec"]["driver"]["javaOptions"] = f"-Dx=y {OPENS}"
    assert with_lineage({"spark": one, "kubernetes": {}}) == {
        "application_file": None,
        "template_spec": {"spark": expected, "kubernetes": {}},
    }
    assert one == users_manifest()
    injected = with_lineage({"spark": {"spec": {}}})["template_spec"]["spark"]["spec"]
    assert injected["sparkConf"]["spark.jars.packages"] == PACKAGE
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

"""Requests of services: what they start, as submissions and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest
from airflow.providers.openlineage.utils import spark as airflows

from airflow_provider_spark_datahub.capture import (
    InjectionError,
    JarChoice,
    LineageInjection,
    ParentRun,
    Submission,
    inject,
)
from airflow_provider_spark_datahub.operators.dataproc import DataprocCreateBatchDatahubOperator
from airflow_provider_spark_datahub.operators.emr import (
    EmrAddStepsDatahubOperator,
    EmrServerlessStartJobDatahubOperator,
)
from airflow_provider_spark_datahub.operators.glue import GlueJobDatahubOperator
from airflow_provider_spark_datahub.operators.service_request import (
    Document,
    ServiceRequestOperator,
)
from tests.cases import cases, tables
from tests.operators.tries import drop_in

Json = dict[str, Any]
PARENT = ParentRun("ns", "shop.build", "01990000-0000-7000-8000-000000000001")
USERS = {"spark.extraListeners": "com.example.Own", "spark.driver.memory": "2g"}
NEW = {
    "spark.eventLog.enabled": "true",
    "spark.driver.memory": "3g",
    "spark.note": "a 'b' \"c\" = ü, d\\",
}


class Case(NamedTuple):
    """A request, and what its job gets, as the service says.

    :ivar properties: returns the Spark properties that a request gives its first job.
    """

    operator: type[ServiceRequestOperator]
    document: Document
    properties: Callable[[Document], Mapping[str, str]]
    jars: str | None


def spark_defaults(document: Document) -> Json:
    configurations = document["configuration_overrides"]["applicationConfiguration"]
    (found,) = (
        each["properties"] for each in configurations if each["classification"] == "spark-defaults"
    )
    return dict(found)


def of_arguments(arguments: list[str]) -> Json:
    places = (at for at, argument in enumerate(arguments) if argument == "--conf")
    return dict(arguments[at + 1].split("=", 1) for at in places)


def of_emr(document: Document) -> Json:
    import shlex

    (driver,) = document["job_driver"].values()
    return {
        **spark_defaults(document),
        **of_arguments(shlex.split(driver["sparkSubmitParameters"])),
    }


def of_glue(document: Document) -> Json:
    arguments = {**document["defaults"], **document["script_args"]}
    return of_arguments(f"--conf {arguments['--conf']}".split())


def step(*arguments: str, jar: str = "command-runner.jar") -> Json:
    return {
        "Name": "one",
        "ActionOnFailure": "CONTINUE",
        "HadoopJarStep": {"Jar": jar, "Args": list(arguments)},
    }


PROPERTIES: dict[str, Callable[[Document], Mapping[str, str]]] = {
    "EMR Serverless": of_emr,
    "EMR on EKS": of_emr,
    "EMR": lambda document: of_arguments(document["steps"][0]["HadoopJarStep"]["Args"][:-1]),
    "Glue": of_glue,
    "Dataproc": lambda document: document["job"]["pyspark_job"]["properties"],
    "Dataproc Serverless": lambda document: document["batch"]["runtime_config"]["properties"],
    "Databricks": lambda document: document["json"]["tasks"][0]["new_cluster"]["spark_conf"],
    "Livy": lambda document: document["spark_params"]["conf"],
}
CASES = {
    name: Case(drop_in(operator), document, PROPERTIES[name], jars)
    for name, operator, jars, document in tables("service_requests")["requests"][1:]
}
EMR = CASES["EMR Serverless"].document["job_driver"]["sparkSubmit"]
each_service = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def changed(case: Case, submission: Submission) -> Document:
    others = case.operator.spark_request.read(case.document)[1:]
    return {
        **case.document,
        **case.operator.spark_request.changed(case.document, [submission, *others]),
    }


@each_service
def test_a_request_is_read_and_written_without_a_loss(case: Case) -> None:
    before = copy.deepcopy(case.document)
    request = case.operator.spark_request
    submission = request.read(case.document)[0]
    assert (submission.properties, submission.jars) == (USERS, case.jars)
    assert changed(case, submission).keys() == before.keys()
    assert request.read(changed(case, submission))[0] == submission
    new = {
        name: value
        for name, value in NEW.items()
        if case.operator is not GlueJobDatahubOperator or " " not in value
    }
    other = Submission({**USERS, **new}, jars=case.jars and f"{case.jars},s3://jobs/our.jar")
    assert case.properties(changed(case, other)) == {**USERS, **new}
    assert request.read(changed(case, other))[0].jars == other.jars
    assert case.document == before, "the user's objects stay as they are"


@each_service
def test_the_listener_and_airflows_own_injection_agree(case: Case) -> None:
    """Whichever comes first, the job gets the parent run once; all other properties of ours reach
    it, too.
    """
    lineage = LineageInjection(
        "s3://lake/events", JarChoice(jars=("s3://jobs/openlineage.jar",)), PARENT
    )
    injected = inject(case.operator.spark_request.read(case.document)[0], lineage).submission
    properties = case.properties(changed(case, injected))
    assert properties == injected.properties
    ours = {name for name in properties if name.startswith("spark.openlineage.parent")}
    assert ours == {
        f"spark.openlineage.parent{part}" for part in ("JobNamespace", "JobName", "RunId")
    }
    assert airflows._is_parent_job_information_present_in_spark_properties(dict(properties))
    assert airflows._is_transport_information_present_in_spark_properties(dict(properties))


@pytest.mark.parametrize("overrides", [None, {}, {"applicationConfiguration": []}])
def test_a_job_without_spark_defaults_gets_none(overrides: Json | None) -> None:
    """EMR Serverless merges by classification: one of the job's would replace that of its
    application.
    """
    request = EmrServerlessStartJobDatahubOperator.spark_request
    document = {"job_driver": {"sparkSubmit": EMR}, "configuration_overrides": overrides}
    [submission] = request.read(document)
    written = request.changed(
        document, [Submission({**submission.properties, "spark.a": "b c"}, jars=submission.jars)]
    )
    assert written.keys() == {"job_driver"}
    parameters = written["job_driver"]["sparkSubmit"]["sparkSubmitParameters"]
    assert parameters == f"--conf 'spark.a=b c' {EMR['sparkSubmitParameters']}", (
        "the user's text stays as it is"
    )


def test_several_steps_get_the_same_and_others_stay() -> None:
    request = EmrAddStepsDatahubOperator.spark_request
    steps = [
        step("spark-submit", "a.py"),
        step("spark-submit", "b.py", jar="script-runner.jar"),
        step("bash", "-c", "x"),
    ]
    steps.append(step("run-example", "SparkPi"))
    for given in (steps, repr(steps)):
        found = request.read({"steps": given})
        assert [submission.application for submission in found] == ["a.py", "SparkPi"]
        written = request.changed(
            {"steps": given}, [Submission({"spark.x": str(n)}) for n in (1, 2)]
        )["steps"]
        assert [each["HadoopJarStep"]["Args"] for each in written] == [
            ["spark-submit", "--conf", "spark.x=1", "a.py"],
            steps[1]["HadoopJarStep"]["Args"],
            steps[2]["HadoopJarStep"]["Args"],
            ["run-example", "--conf", "spark.x=2", "SparkPi"],
        ]
    with pytest.raises(InjectionError, match="the steps cannot be read"):
        request.read({"steps": "steps.json"})


@cases("service_requests")
def test_a_request_without_a_spark_of_its_own_stays(operator: str, document: Json) -> None:
    assert drop_in(operator).spark_request.read(document) == []


def test_glue_shows_the_log_of_its_interface_and_keeps_the_jobs_own_arguments() -> None:
    class GoneError(Exception):
        pass

    job = {"Command": {"Name": "glueetl"}, "DefaultArguments": {"--conf": "spark.a=1"}}
    hook = MagicMock()
    hook.conn.exceptions.EntityNotFoundException = GoneError
    hook.conn.get_job.return_value = {"Job": job}
    ui = {"--enable-spark-ui": "true", "--spark-event-logs-path": "s3://logs/ui/"}
    operator = SimpleNamespace(
        hook=hook, job_name="a", script_args=ui, create_job_kwargs=None, update_config=False
    )
    request = GlueJobDatahubOperator.spark_request
    document = request.document(operator)
    [submission] = request.read(document)
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "s3://logs/ui/"}
    assert submission.properties == {**log, "spark.a": "1"}
    other = Submission({**submission.properties, "spark.b": "2"})
    assert (
        request.changed(document, [other])["script_args"]["--conf"] == "spark.a=1 --conf spark.b=2"
    )
    with pytest.raises(
        InjectionError, match=r"Glue splits --conf at blanks, and spark.b would be 'x y'"
    ):
        request.changed(document, [Submission({"spark.b": "x y"})])
    job["NonOverridableArguments"] = {"--conf": "spark.d=4"}
    with pytest.raises(InjectionError, match="the job a does not let a run set --conf"):
        request.document(operator)
    del job["NonOverridableArguments"]
    operator.create_job_kwargs, operator.update_config = (
        {"DefaultArguments": {"--conf": "spark.c=3"}},
        True,
    )
    assert request.read(request.document(operator))[0].properties == {**log, "spark.c": "3"}
    hook.conn.get_job.side_effect = GoneError
    operator.create_job_kwargs = {"Command": {"Name": "pythonshell"}}
    assert request.read(request.document(operator)) == []


def test_a_batch_that_logs_for_a_history_server_must_name_the_place() -> None:
    peripherals = {
        "spark_history_server_config": {"dataproc_cluster": "projects/p/clusters/history"}
    }
    batch: Json = {"pyspark_batch": {"main_python_file_uri": "gs://a"}, "environment_config": {}}
    batch["environment_config"]["peripherals_config"] = peripherals
    read = DataprocCreateBatchDatahubOperator.spark_request.read
    with pytest.raises(
        InjectionError, match=r"logs for the history server projects/p/clusters/history"
    ):
        read({"batch": batch})
    named = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "gs://history/logs"}
    assert (
        read({"batch": {**batch, "runtime_config": {"properties": named}}})[0].properties == named
    )


@cases("service_requests")
def test_a_task_that_does_not_wait_has_no_lineage(
    operator: str, arguments: Json, remedy: str
) -> None:
    one = drop_in(operator)
    with pytest.raises(InjectionError, match=f"does not wait for its job.*{remedy}"):
        one._launcher(SimpleNamespace(spark_request=one.spark_request, **arguments), {})

"""Drop-ins for the operators of Amazon EMR that run Spark: on clusters, serverless, and on EKS.

Tests: ``tests/operators/test_service_request.py``.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow.providers.amazon.aws.operators.emr import (
    EmrAddStepsOperator,
    EmrContainerOperator,
    EmrServerlessStartJobOperator,
)

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.operators.service_request import (
    Document,
    ServiceRequestOperator,
    SparkRequest,
    attributes,
    mapping,
)

_PARAMETERS = {
    "sparkSubmit": "sparkSubmitParameters",
    "sparkSubmitJobDriver": "sparkSubmitParameters",
    "sparkSqlJobDriver": "sparkSqlParameters",
}
"""Field with the options of ``spark-submit``, by the name of the driver: EMR Serverless', and those
of EMR on EKS.
"""
_APPLICATION = "applicationConfiguration"


def _driver(document: Document) -> tuple[str, Mapping[str, Any], capture.SubmitArguments] | None:
    """Return the name of a Spark driver, the driver, and its options; ``None`` for another one,
    such as Hive's.
    """
    drivers = mapping(document["job_driver"])
    name = next((name for name in _PARAMETERS if drivers.get(name)), None)
    if name is None:
        return None
    options = drivers[name].get(_PARAMETERS[name]) or ""
    try:
        return name, drivers[name], capture.SubmitArguments.parse(shlex.split(options))
    except ValueError as error:
        raise capture.InjectionError(f"{_PARAMETERS[name]} cannot be read: {error}") from error


def _defaults(document: Document) -> tuple[int, dict[str, str]] | None:
    """Return the place and the properties of the classification ``spark-defaults``, which options
    ``--conf`` hide.
    """
    configurations = mapping(document["configuration_overrides"]).get(_APPLICATION) or ()
    found = (
        (at, each)
        for at, each in enumerate(configurations)
        if each.get("classification") == "spark-defaults"
    )
    return next(((at, {**mapping(each.get("properties"))}) for at, each in found), None)


def _read_job(document: Document) -> list[capture.Submission]:
    if (driver := _driver(document)) is None:
        return []
    _, job, options = driver
    _, defaults = _defaults(document) or (0, {})
    submission = options.submission
    properties = {**defaults, **submission.properties}
    return [replace(submission, properties=properties, application=job.get("entryPoint"))]


def _write_job(document: Document, submissions: Sequence[capture.Submission]) -> dict[str, Any]:
    """Return a job that makes another submission.

    New properties go to its ``spark-defaults``. A job without any gets options: with this
    classification it would do without those of its application, since the service merges whole
    classifications.
    """
    [submission] = submissions
    if (driver := _driver(document)) is None:
        return {}
    (name, job, options), defaults = driver, _defaults(document)
    properties = {**submission.properties}
    as_options = {
        known: properties.pop(known)
        for known in (options.properties if defaults else list(properties))
    }
    arguments, users = (
        options.with_submission(replace(submission, properties=as_options)),
        options.arguments,
    )
    new = len(arguments) - len(users)
    text = job.get(_PARAMETERS[name]) or ""
    is_prefix = new >= 0 and tuple(arguments[new:]) == users
    text = f"{shlex.join(arguments[:new])} {text}".strip() if is_prefix else shlex.join(arguments)
    # The service refuses an empty text.
    job = {**job, _PARAMETERS[name]: text} if text else job
    changed = {"job_driver": {**document["job_driver"], name: job}}
    if defaults is None:
        return changed
    overrides = document["configuration_overrides"]
    configurations = list(overrides[_APPLICATION])
    configurations[defaults[0]] = {**configurations[defaults[0]], "properties": properties}
    return {**changed, "configuration_overrides": {**overrides, _APPLICATION: configurations}}


def _steps(document: Document) -> list[Any]:
    steps = document["steps"]
    try:
        return list(ast.literal_eval(steps) if isinstance(steps, str) else steps)
    except (SyntaxError, TypeError, ValueError) as error:
        raise capture.InjectionError(f"the steps cannot be read: {error}") from error


def _submits(steps: Sequence[Any]) -> Iterator[tuple[int, list[str], capture.SubmitArguments]]:
    """Yield the number, the command, and the options of each step that runs ``spark-submit``."""
    for number, step in enumerate(steps):
        jar = mapping(mapping(step).get("HadoopJarStep"))
        arguments = [str(argument) for argument in jar.get("Args") or ()]
        command = arguments[0].rpartition("/")[2] if arguments else ""
        if str(jar.get("Jar")).rpartition("/")[2] == "command-runner.jar" and command in (
            "spark-submit",
            "run-example",
        ):
            yield number, arguments[:1], capture.SubmitArguments.parse(arguments[1:])


def _read_steps(document: Document) -> list[capture.Submission]:
    return [options.submission for _, _, options in _submits(_steps(document))]


def _write_steps(document: Document, submissions: Sequence[capture.Submission]) -> dict[str, Any]:
    steps = _steps(document)
    for (number, command, options), submission in zip(_submits(steps), submissions, strict=True):
        arguments = [*command, *options.with_submission(submission)]
        steps[number] = {
            **steps[number],
            "HadoopJarStep": {**steps[number]["HadoopJarStep"], "Args": arguments},
        }
    return {"steps": steps}


class EmrServerlessStartJobDatahubOperator(ServiceRequestOperator, EmrServerlessStartJobOperator):
    """Operator that runs a job on EMR Serverless, and delivers its lineage when the job ends."""

    spark_request = SparkRequest(
        document=attributes("job_driver", "configuration_overrides"),
        read=_read_job,
        write=_write_job,
        waits=lambda operator: operator.wait_for_completion,
        how_to_wait="wait_for_completion=True",
        store_scheme="s3",
        shares_disk=False,
    )


class EmrContainerDatahubOperator(ServiceRequestOperator, EmrContainerOperator):
    """Operator that runs a job of EMR on EKS, and delivers its lineage when the job ends."""

    spark_request = replace(
        EmrServerlessStartJobDatahubOperator.spark_request,
        waits=lambda operator: operator.wait_for_completion or operator.deferrable,
    )


class EmrAddStepsDatahubOperator(ServiceRequestOperator, EmrAddStepsOperator):
    """Operator that runs steps on an EMR cluster, and delivers the lineage of all their Spark jobs
    when they end.
    """

    spark_request = SparkRequest(
        document=attributes("steps"),
        read=_read_steps,
        write=_write_steps,
        waits=lambda operator: operator.wait_for_completion or operator.deferrable,
        how_to_wait="wait_for_completion=True, or deferrable=True",
        store_scheme="s3",
        shares_disk=False,
    )

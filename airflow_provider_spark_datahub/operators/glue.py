"""A drop-in ``GlueJobOperator`` whose job run's lineage is in DataHub when the task ends.

Tests: ``tests/operators/test_service_request.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.amazon.aws.operators.glue import GlueJobOperator

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.operators.service_request import (
    Document,
    ServiceRequestOperator,
    SparkRequest,
    mapping,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_CONF, _JARS = "--conf", "--extra-jars"
_LOG_PATHS = ("--spark-event-logs-path", "--spark-ui-event-logs-path")
_EVENT_LOG = "spark.eventLog."
_SPARK_COMMANDS = ("glueetl", "gluestreaming")


def _document(operator: Any) -> Document:
    """Return the arguments of a job run, and the job's own, which they hide one by one."""
    hook = operator.hook
    try:
        job = hook.conn.get_job(JobName=operator.job_name)["Job"]
    except hook.conn.exceptions.EntityNotFoundException:
        job = {}
    created = operator.create_job_kwargs or {}
    job = {**job, **created} if operator.update_config or not job else job
    command = mapping(job.get("Command")).get("Name", _SPARK_COMMANDS[0])
    if _CONF in mapping(job.get("NonOverridableArguments")):
        raise capture.InjectionError(f"the job {operator.job_name} does not let a run set {_CONF}")
    return {
        "script_args": operator.script_args,
        "defaults": mapping(job.get("DefaultArguments")),
        "command": command,
    }


def _properties(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of an argument ``--conf``: Glue takes one, ``a=1 --conf b=2``, and
    splits it at blanks.
    """
    entries = (
        entry.strip().partition("=") for entry in str(arguments.get(_CONF) or "").split(f"{_CONF} ")
    )
    return {name: value for name, _, value in entries if name}


def _read(document: Document) -> list[capture.Submission]:
    """Return a job run as a submission. The log of Spark's interface is the job's own event log."""
    arguments = {**document["defaults"], **document["script_args"]}
    if document["command"] not in _SPARK_COMMANDS:
        return []
    path = next((arguments[name] for name in _LOG_PATHS if arguments.get(name)), None)
    has_log = path is not None and str(arguments.get("--enable-spark-ui")).lower() == "true"
    own_log = {f"{_EVENT_LOG}enabled": "true", f"{_EVENT_LOG}dir": str(path)} if has_log else {}
    return [
        capture.Submission(
            properties={**own_log, **_properties(arguments)}, jars=arguments.get(_JARS)
        )
    ]


def _write(document: Document, submissions: Sequence[capture.Submission]) -> dict[str, Any]:
    """Return the arguments that make another submission."""
    [submission], [before] = submissions, _read(document)
    own = _properties({**document["defaults"], **document["script_args"]})
    # The job's own log is not one of its properties.
    changed = {
        name: value
        for name, value in submission.properties.items()
        if before.properties.get(name) != value
    }
    for name, value in changed.items():
        if len(str(value).split()) != 1:
            raise capture.InjectionError(
                f"Glue splits {_CONF} at blanks, and {name} would be {value!r}"
            )
    conf = f" {_CONF} ".join(f"{name}={value}" for name, value in {**own, **changed}.items())
    added = {_CONF: conf, _JARS: submission.jars}
    return {
        "script_args": {
            **document["script_args"],
            **{name: value for name, value in added.items() if value},
        }
    }


class GlueJobDatahubOperator(ServiceRequestOperator, GlueJobOperator):
    """Operator that runs an AWS Glue job, and delivers its lineage when the job run ends."""

    spark_request = SparkRequest(
        document=_document,
        read=_read,
        write=_write,
        waits=lambda operator: operator.wait_for_completion or operator.deferrable,
        how_to_wait="wait_for_completion=True, or deferrable=True",
        store_scheme="s3",
        shares_disk=False,
    )

    def _find_previous_job_run(self, context: Context, task_uuid: str) -> str | None:
        """Find the job run of the attempt before, which a deferrable task does not keep in its
        state.
        """
        found: str | None = super()._find_previous_job_run(context, task_uuid)
        if found is not None:
            number = context["ti"].try_number - 1
            self._guarded("reconnecting", lambda attempt: attempt.reconnect_to(number))
        return found

"""A drop-in ``SparkSubmitOperator`` whose job's lineage is in DataHub when the task ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, BaseHook

from airflow_provider_spark_datahub.operators.lineage import (
    ResumableLineageOperator,
    SparkLineageOperator,
    SubmissionLauncher,
)

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_spark_datahub.capture import PropertiesFile, Submission
    from airflow_provider_spark_datahub.task import Launcher, SparkSubmit

_CHANGED_ARGUMENTS = ("conf", "jars", "packages", "driver_class_path", "properties_file")
_OTHER_ARGUMENTS = ("application", "application_args", "files", "py_files", "_archives")
"""Arguments that may be long."""
_STOP_SECONDS = 10.0
"""Time for a stopped spark-submit to disappear."""


class SparkSubmitDatahubOperator(ResumableLineageOperator, SparkSubmitOperator):
    """Operator that submits a Spark job, and delivers its lineage to DataHub when the job ends.

    It takes the arguments of ``SparkSubmitOperator`` and of :class:`SparkLineageOperator`.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, *SparkLineageOperator.lineage_fields)

    def _launcher(self, context: Context) -> Launcher:
        return _SubmitLauncher(self, context)

    def _get_hook(self) -> Any:
        hook = super()._get_hook()
        if self._task_lineage is not None and (attempt := self._task_lineage.attempt) is not None:
            self._task_lineage.guarded("watching", lambda: _watch_output(hook, attempt.driver_output.watched))
        return hook


class _SubmitLauncher(SubmissionLauncher):
    """Launcher of an operator that submits through ``SparkSubmitHook``."""

    def __init__(self, operator: SparkSubmitDatahubOperator, context: Context) -> None:
        self._operator = operator
        self._context = context

    def submission(self) -> Submission:
        """Return what the operator submits without lineage."""
        from airflow_provider_spark_datahub.capture import Submission

        operator = self._operator
        return Submission(
            properties=conf_with_airflows_transport(
                operator.conf, self._context, wanted=operator._openlineage_inject_transport_info
            ),
            jars=operator.jars,
            packages=operator.packages,
            driver_class_path=operator.driver_class_path,
            repositories=getattr(operator, "_repositories", None),
            application=operator.application,
        )

    def spark(self) -> SparkSubmit:
        """Return the spark-submit that will run, from the operator's arguments and its Spark connection."""
        from airflow_provider_spark_datahub.task import SparkSubmit

        operator = self._operator
        extra = connection_extra(operator._conn_id)
        return SparkSubmit(
            binary=operator._spark_binary or extra.get("spark-binary") or "spark-submit",
            env={**os.environ, **{name: str(value) for name, value in (operator.env_vars or {}).items()}},
            local_driver=(operator._deploy_mode or extra.get("deploy-mode")) != "cluster",
            properties_file=operator.properties_file or None,
            argument_bytes=sum(len(str(getattr(operator, name, None) or "")) for name in _OTHER_ARGUMENTS),
        )

    def launching(self, submission: Submission) -> AbstractContextManager[None]:
        """Give the operator the submission's values for one submit; the user's objects stay untouched."""
        # Write the file before the context begins: a failure in the context would fail the task.
        return self._launching(submission, *submission.hand_over())

    @contextmanager
    def _launching(
        self, submission: Submission, conf: dict[str, object], file: PropertiesFile | None
    ) -> Iterator[None]:
        operator = self._operator
        users = {name: getattr(operator, name) for name in _CHANGED_ARGUMENTS}
        operator.conf, operator.jars, operator.packages = conf, submission.jars, submission.packages
        operator.driver_class_path = submission.driver_class_path
        operator.properties_file = str(file.path) if file else operator.properties_file
        # A hook that was made before would submit without them.
        operator._hook = None
        try:
            yield
        finally:
            vars(operator).update(users)
            if file is not None:
                file.remove()

    def stop(self) -> None:
        """Stop the job, and wait until spark-submit is gone, so that it writes no more events."""
        # Our own on_kill() is for a task that Airflow kills.
        super(SparkLineageOperator, self._operator).on_kill()
        await_end(getattr(self._operator._hook, "_submit_sp", None))


def connection_extra(conn_id: str) -> dict[str, Any]:
    """Return the extra of a Spark connection; without the connection, Airflow's hooks use YARN in client mode."""
    try:
        return dict(BaseHook.get_connection(conn_id).extra_dejson)
    except AirflowException:
        return {}


def await_end(process: subprocess.Popen[Any] | None) -> None:
    """Wait for the end of a process that was stopped, but not for long."""
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_STOP_SECONDS)


def _watch_output(hook: SparkSubmitHook, watched: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
    """Let ``watched`` see the lines that ``spark-submit`` prints, as they pass."""
    read = hook._process_spark_submit_log

    def read_watched(itr: Iterator[Any]) -> None:
        read(watched(itr))

    hook._process_spark_submit_log = read_watched  # type: ignore[method-assign]


def conf_with_airflows_transport(conf: Mapping[Any, Any] | None, context: Context, *, wanted: bool) -> dict[Any, Any]:
    """Return the user's Spark properties with the OpenLineage transport that an operator of Airflow would inject.

    The operator injects none if there is one already, so ours would keep it from doing so.

    :param wanted: the operator's ``openlineage_inject_transport_info``.
    """
    if not wanted:
        return dict(conf or {})
    from airflow.providers.common.compat.openlineage.utils.spark import (
        inject_transport_information_into_spark_properties,
    )

    return dict(inject_transport_information_into_spark_properties(dict(conf or {}), context))

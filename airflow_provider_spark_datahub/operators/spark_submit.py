"""A drop-in ``SparkSubmitOperator`` whose job's lineage is in DataHub when the task ends."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowNotFoundException, Context

from airflow_provider_spark_datahub import capture, hooks, task
from airflow_provider_spark_datahub.operators.lineage import (
    ResumableLineageOperator,
    SubmissionLauncher,
    conf_with_airflows_transport,
)

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook


_OTHER_ARGUMENTS = ("application", "application_args", "files", "py_files", "_archives")
"""Arguments that may be long."""


class SparkSubmitDatahubOperator(ResumableLineageOperator, SparkSubmitOperator):
    """Operator that submits a Spark job, and delivers its lineage to DataHub when the job ends.

    It takes the arguments of ``SparkSubmitOperator`` and of :class:`SparkLineageOperator`.
    """

    def _launcher(self, context: Context) -> task.Launcher:
        return _SubmitLauncher(self, context)

    def _get_hook(self) -> Any:
        hook = super()._get_hook()
        self._guarded("watching", partial(_watch_output, hook), costs_lineage=False)
        return hook


class _SubmitLauncher(SubmissionLauncher):
    """Launcher of an operator that submits through ``SparkSubmitHook``."""

    def submissions(self) -> list[capture.Submission]:
        operator = self._operator
        submission = capture.Submission(
            properties=conf_with_airflows_transport(
                operator.conf, self._context, wanted=operator._openlineage_inject_transport_info
            ),
            jars=operator.jars,
            packages=operator.packages,
            driver_class_path=operator.driver_class_path,
            repositories=getattr(operator, "_repositories", None),
            application=operator.application,
        )
        return [submission]

    def spark(self) -> capture.SparkSubmit:
        operator = self._operator
        extra = connection_extra(operator._conn_id)
        return capture.SparkSubmit(
            binary=operator._spark_binary or extra.get("spark-binary") or "spark-submit",
            env={
                **os.environ,
                **{name: str(value) for name, value in (operator.env_vars or {}).items()},
            },
            local_driver=(operator._deploy_mode or extra.get("deploy-mode")) != "cluster",
            properties_file=operator.properties_file or None,
            argument_bytes=sum(
                len(str(getattr(operator, name, None) or "")) for name in _OTHER_ARGUMENTS
            ),
        )

    def has_submitted(self, failure: BaseException) -> bool:  # noqa: ARG002 (the hook knows)
        """Return whether the hook started ``spark-submit``; Airflow's checks before that may have
        failed.
        """
        return getattr(self._operator._hook, self.process, None) is not None

    def launching(self, submissions: Sequence[capture.Submission]) -> AbstractContextManager[None]:
        [submission] = submissions
        # Write the file before the context begins: a failure in the context would fail the task.
        conf, file = submission.hand_over()
        # A hook that was made before would submit without them.
        self._operator._hook = None
        return self.swapped(
            file,
            conf=conf,
            jars=submission.jars,
            packages=submission.packages,
            driver_class_path=submission.driver_class_path,
            properties_file=str(file) if file else self._operator.properties_file,
        )


def connection_extra(conn_id: str) -> dict[str, Any]:
    """Return the extra of a Spark connection; without the connection, Airflow's hooks use YARN in
    client mode.
    """
    try:
        return dict(hooks.connection_of(conn_id).extra_dejson)
    except AirflowNotFoundException:
        return {}
    except hooks.NoAnswerError as error:
        raise capture.InjectionError(f"Airflow did not answer: {error}") from error


def _watch_output(hook: SparkSubmitHook, attempt: task.AttemptLineage) -> None:
    """Let the attempt see the lines that ``spark-submit`` prints, as they pass."""
    read = hook._process_spark_submit_log

    def read_watched(itr: Iterator[Any]) -> None:
        read(attempt.driver_output.watched(itr))

    hook._process_spark_submit_log = read_watched  # type: ignore[method-assign]

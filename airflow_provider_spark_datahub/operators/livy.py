"""A drop-in ``LivyOperator`` whose batch's lineage is in DataHub when the task ends.

Tests: ``tests/operators/test_remote_spark.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.livy.operators.livy import LivyOperator

from airflow_provider_spark_datahub import capture, task
from airflow_provider_spark_datahub.operators.lineage import ResumableLineageOperator, SubmissionLauncher

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class LivyDatahubOperator(ResumableLineageOperator, LivyOperator):
    """Operator that runs a batch through Apache Livy, and delivers its lineage to DataHub when the batch ends.

    The task must wait for the batch (``polling_interval`` or ``deferrable``), and ``events_location`` be a folder that
    the driver and the worker share, or an address in S3. ``openlineage_jar`` names the jar in full, since the Spark
    behind Livy is not known.
    """

    def _launcher(self, context: Context) -> task.Launcher:
        if not self.deferrable and self._polling_interval <= 0:
            raise capture.InjectionError(
                "the task does not wait for its batch, so that it cannot read the events: "
                "set polling_interval, or deferrable=True"
            )
        return _LivyLauncher(self, context)


class _LivyLauncher(SubmissionLauncher):
    """Launcher of a batch by the arguments of ``LivyHook.post_batch``."""

    def submission(self) -> capture.Submission:
        from airflow_provider_spark_datahub.operators.spark_submit import conf_with_airflows_transport

        submission = _submission(self._operator.spark_params)
        wanted = self._operator.openlineage_inject_transport_info
        return replace(
            submission, properties=conf_with_airflows_transport(submission.properties, self._context, wanted=wanted)
        )

    def spark(self) -> capture.SparkSubmit:
        return capture.SparkSubmit(binary=None, env={}, local_driver=False)

    def launching(self, submission: capture.Submission) -> AbstractContextManager[None]:
        return self.swapped(spark_params=_batch(self._operator.spark_params, submission))


def _submission(batch: Mapping[str, Any]) -> capture.Submission:
    """Return a batch as a submission. Livy has packages as a property only."""
    jars = batch.get("jars") or ()
    return capture.Submission(
        properties=dict(batch.get("conf") or {}), jars=(jars if isinstance(jars, str) else ",".join(jars)) or None
    )


def _batch(batch: Mapping[str, Any], submission: capture.Submission) -> dict[str, Any]:
    """Return the arguments of ``LivyHook.post_batch`` that make another submission of a batch."""
    changed: dict[str, Any] = {"conf": {str(name): str(value) for name, value in submission.properties.items()}}
    if submission.jars:
        changed["jars"] = [jar.strip() for jar in submission.jars.split(",") if jar.strip()]
    return {**batch, **changed}

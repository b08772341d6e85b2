"""A drop-in ``SparkKubernetesOperator`` whose application's lineage is in DataHub when the task ends."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator

from airflow_provider_spark_datahub import capture, task
from airflow_provider_spark_datahub.operators.lineage import SparkLineageOperator, SubmissionLauncher

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class SparkKubernetesDatahubOperator(SparkLineageOperator, SparkKubernetesOperator):
    """Operator that runs a ``SparkApplication`` on Kubernetes, and delivers its lineage when the application ends.

    ``events_location`` is a folder of a volume that the manifest mounts into the driver, and that the worker has under
    the same path.
    """

    def find_spark_job(self, context: Context, *args: Any, **kwargs: Any) -> Any:
        """Return the driver's pod. Called by the parent class, which reattaches to the driver of an earlier attempt.

        The other arguments depend on the provider's version; the first versions have none.
        """
        pod = super().find_spark_job(context, *args, **kwargs)
        lineage = self._task_lineage
        if pod is not None and lineage is not None and (attempt := lineage.attempt) is not None:
            lineage.guarded("reconnecting", lambda: attempt.reconnect_to(int(pod.metadata.labels["try_number"])))
        return pod

    def _launcher(self, context: Context) -> task.Launcher:
        return _KubernetesLauncher(self, context)


class _KubernetesLauncher(SubmissionLauncher):
    """Launcher of a ``SparkApplication`` by its manifest."""

    def __init__(self, operator: SparkKubernetesDatahubOperator, context: Context) -> None:
        super().__init__(operator, context)
        self._body: dict[str, Any] = operator.template_body
        self._application = capture.SparkApplication(self._body["spark"])

    def submission(self) -> capture.Submission:
        return self._application.submission

    def spark(self) -> capture.SparkSubmit:
        application, operator = self._application, self._operator
        return capture.SparkSubmit(
            binary=None,
            env=application.environment,
            local_driver=False,
            scala_version=application.scala_version,
            # The Spark operator passes this name to spark-submit, where it wins over spark.app.name.
            suffixed_name=operator.create_job_name().rpartition("-")[0] if operator.random_name_suffix else None,
        )

    def launching(self, submission: capture.Submission) -> AbstractContextManager[None]:
        body = {**self._body, "spark": self._application.with_submission(submission)}
        return self.swapped(application_file=None, template_spec=body)

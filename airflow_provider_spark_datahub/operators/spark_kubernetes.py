"""A drop-in ``SparkKubernetesOperator`` whose application's lineage is in DataHub when the task ends.

Tests: ``tests/operators/test_remote_spark.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator

from airflow_provider_spark_datahub import capture, task
from airflow_provider_spark_datahub.operators.lineage import SparkLineageOperator, SubmissionLauncher

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


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
        self._application = _Application(self._body["spark"])

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


@dataclass(frozen=True, slots=True)
class _Application:
    """Application of the Spark operator for Kubernetes, by the manifest of its resource ``SparkApplication``."""

    manifest: Mapping[str, Any]

    @property
    def _spec(self) -> Mapping[str, Any]:
        return _mapping(self.manifest.get("spec"))

    @property
    def submission(self) -> capture.Submission:
        """The application as a submission."""
        deps = _mapping(self._spec.get("deps"))
        properties = dict(_mapping(self._spec.get("sparkConf")))
        java_options = _mapping(self._spec.get("driver")).get("javaOptions")
        if java_options:
            # The field hides the property.
            properties[_JAVA_OPTIONS] = java_options
        return capture.Submission(
            properties=properties,
            jars=_joined(deps.get("jars")),
            packages=_joined(deps.get("packages")),
            repositories=_joined(deps.get("repositories")),
        )

    def with_submission(self, submission: capture.Submission) -> dict[str, Any]:
        """Return the manifest that makes another submission."""
        spec = dict(self._spec)
        properties = {str(name): str(value) for name, value in submission.properties.items()}
        driver = _mapping(spec.get("driver"))
        if driver.get("javaOptions"):
            spec["driver"] = {**driver, "javaOptions": properties.pop(_JAVA_OPTIONS, driver["javaOptions"])}
        spec["sparkConf"] = properties
        lists = {"jars": _listed(submission.jars), "packages": _listed(submission.packages)}
        if any(lists.values()):
            added = {name: value for name, value in lists.items() if value}
            spec["deps"] = {**_mapping(spec.get("deps")), **added}
        return {**self.manifest, "spec": spec}

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the driver whose values are in the manifest."""
        variables = _mapping(self._spec.get("driver")).get("env") or ()
        return {
            str(variable["name"]): str(variable["value"])
            for variable in variables
            if "name" in variable and "value" in variable
        }

    @property
    def scala_version(self) -> capture.ScalaVersion | None:
        """Default Scala version of images for the manifest's ``sparkVersion``; ``None`` if it is not known."""
        major = str(self._spec.get("sparkVersion") or "").partition(".")[0]
        versions: dict[str, capture.ScalaVersion] = {"3": "2.12", "4": "2.13"}
        return versions.get(major)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _joined(entries: Sequence[str] | str | None) -> str | None:
    return (entries if isinstance(entries, str) else ",".join(entries)) if entries else None


def _listed(entries: str | None) -> list[str]:
    return [entry.strip() for entry in (entries or "").split(",") if entry.strip()]

"""A drop-in ``SparkKubernetesOperator`` whose application's lineage is in DataHub when the task
ends.

Tests: ``tests/operators/test_remote_spark.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.operators.service_request import (
    Document,
    ServiceRequestOperator,
    SparkRequest,
    attributes,
    joined,
    mapping,
    store_scheme,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SCALA: dict[str, capture.ScalaVersion] = {"3": "2.12", "4": "2.13"}
"""Default Scala version of images by the major version of their Spark."""


def _spec(document: Document) -> Mapping[str, Any]:
    """Return the specification of a ``SparkApplication``, the resource of the Spark operator for
    Kubernetes.
    """
    return mapping(mapping(document["template_body"]["spark"]).get("spec"))


def _read(document: Document) -> list[capture.Submission]:
    """Return the application of a manifest as a submission."""
    spec = _spec(document)
    deps, java_options = mapping(spec.get("deps")), mapping(spec.get("driver")).get("javaOptions")
    properties = dict(mapping(spec.get("sparkConf")))
    if java_options:
        # The field hides the property.
        properties[_JAVA_OPTIONS] = java_options
    return [
        capture.Submission(
            properties=properties,
            jars=joined(deps.get("jars")),
            packages=joined(deps.get("packages")),
            repositories=joined(deps.get("repositories")),
        )
    ]


def _write(document: Document, submissions: Sequence[capture.Submission]) -> dict[str, Any]:
    """Return the arguments whose manifest makes another submission."""
    [submission] = submissions
    spec = dict(_spec(document))
    properties = dict(submission.properties)
    driver = mapping(spec.get("driver"))
    if driver.get("javaOptions"):
        spec["driver"] = {
            **driver,
            "javaOptions": properties.pop(_JAVA_OPTIONS, driver["javaOptions"]),
        }
    spec["sparkConf"] = properties
    lists = {
        "jars": [*capture.split_list(submission.jars)],
        "packages": [*capture.split_list(submission.packages)],
    }
    if added := {name: value for name, value in lists.items() if value}:
        spec["deps"] = {**mapping(spec.get("deps")), **added}
    body = document["template_body"]
    return {
        "application_file": None,
        "template_spec": {**body, "spark": {**mapping(body["spark"]), "spec": spec}},
    }


def _spark(operator: Any, document: Document) -> dict[str, Any]:
    """Return what a manifest says of the driver: its environment, as far as it is known, and its
    Scala version.
    """
    spec = _spec(document)
    variables = mapping(spec.get("driver")).get("env") or ()
    return {
        "env": {
            str(each["name"]): str(each["value"])
            for each in variables
            if "name" in each and "value" in each
        },
        "scala_version": _SCALA.get(str(spec.get("sparkVersion") or "").partition(".")[0]),
        # The Spark operator passes this name to spark-submit, where it wins over spark.app.name.
        "suffixed_name": operator.create_job_name().rpartition("-")[0]
        if operator.random_name_suffix
        else None,
        "store_scheme": store_scheme(spec.get("mainApplicationFile")),
    }


class SparkKubernetesDatahubOperator(ServiceRequestOperator, SparkKubernetesOperator):
    """Operator that runs a ``SparkApplication`` on Kubernetes, and delivers its lineage when the
    application ends.

    ``events_location`` is a folder of a volume that the manifest mounts into the driver, and that
    the worker has under the same path; or an address in an object store.
    """

    spark_request = SparkRequest(
        document=attributes("template_body"),
        read=_read,
        write=_write,
        waits=lambda _: True,
        how_to_wait="",
        spark=_spark,
    )

    def find_spark_job(self, context: Context, *args: Any, **kwargs: Any) -> Any:
        """Return the driver's pod. Called by the parent class, which reattaches to the driver of an
        earlier attempt.

        The other arguments depend on the provider's version; the first versions have none.
        """
        pod = super().find_spark_job(context, *args, **kwargs)
        if pod is not None:
            self._guarded(
                "reconnecting",
                lambda attempt: attempt.reconnect_to(int(pod.metadata.labels["try_number"])),
            )
        return pod

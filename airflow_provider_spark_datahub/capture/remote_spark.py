"""Batches of Livy and manifests of Kubernetes, converted to submissions and back.

The classes never change their arguments; they return new objects. Settings that do not concern lineage stay unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_spark_datahub.capture.spark_installation import ScalaVersion
from airflow_provider_spark_datahub.capture.spark_submit import DRIVER_JAVA_OPTIONS, Submission, split_list


@dataclass(frozen=True, slots=True)
class LivyBatch:
    """Batch of Livy.

    :param arguments: of ``LivyHook.post_batch``.
    """

    arguments: Mapping[str, Any]

    @property
    def submission(self) -> Submission:
        """The batch as a submission. Livy has packages as a property only."""
        conf = dict(self.arguments.get("conf") or {})
        return Submission(properties=conf, jars=_joined(self.arguments.get("jars")))

    def with_submission(self, submission: Submission) -> dict[str, Any]:
        """Return the arguments that make another submission."""
        changed: dict[str, Any] = {"conf": {str(name): str(value) for name, value in submission.properties.items()}}
        if submission.jars:
            changed["jars"] = list(split_list(submission.jars))
        return {**self.arguments, **changed}


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """Application of the Spark operator for Kubernetes.

    :param manifest: its resource ``SparkApplication``.
    """

    manifest: Mapping[str, Any]

    @property
    def _spec(self) -> Mapping[str, Any]:
        return _mapping(self.manifest.get("spec"))

    @property
    def submission(self) -> Submission:
        """The application as a submission."""
        deps = _mapping(self._spec.get("deps"))
        properties = dict(_mapping(self._spec.get("sparkConf")))
        java_options = _mapping(self._spec.get("driver")).get("javaOptions")
        if java_options:
            # The field hides the property.
            properties[DRIVER_JAVA_OPTIONS] = java_options
        return Submission(
            properties=properties,
            jars=_joined(deps.get("jars")),
            packages=_joined(deps.get("packages")),
            repositories=_joined(deps.get("repositories")),
        )

    def with_submission(self, submission: Submission) -> dict[str, Any]:
        """Return the manifest that makes another submission."""
        spec = dict(self._spec)
        properties = {str(name): str(value) for name, value in submission.properties.items()}
        driver = _mapping(spec.get("driver"))
        if driver.get("javaOptions"):
            spec["driver"] = {**driver, "javaOptions": properties.pop(DRIVER_JAVA_OPTIONS, driver["javaOptions"])}
        spec["sparkConf"] = properties
        lists = {"jars": split_list(submission.jars), "packages": split_list(submission.packages)}
        if any(lists.values()):
            added = {name: list(value) for name, value in lists.items() if value}
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
    def scala_version(self) -> ScalaVersion | None:
        """Default Scala version of images for the manifest's ``sparkVersion``; ``None`` if it is not known."""
        major = str(self._spec.get("sparkVersion") or "").partition(".")[0]
        versions: dict[str, ScalaVersion] = {"3": "2.12", "4": "2.13"}
        return versions.get(major)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _joined(entries: Sequence[str] | str | None) -> str | None:
    return (entries if isinstance(entries, str) else ",".join(entries)) if entries else None

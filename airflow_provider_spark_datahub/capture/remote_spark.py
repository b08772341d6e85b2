"""Arguments of launchers whose Spark is elsewhere, as submissions and back: batches of Livy, manifests of Kubernetes.

Pure functions: what they return is new, and what they get stays as it is. Settings that lineage does not concern are
the user's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_spark_datahub.capture.spark_installation import ScalaVersion
from airflow_provider_spark_datahub.capture.spark_submit import Submission, split_list

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def livy_submission(batch: Mapping[str, Any]) -> Submission:
    """Return the arguments of ``LivyHook.post_batch`` as a submission. Livy has packages as a property only."""
    return Submission(properties=dict(batch.get("conf") or {}), jars=_joined(batch.get("jars")))


def livy_batch(batch: Mapping[str, Any], submission: Submission) -> dict[str, Any]:
    """Return the arguments of ``LivyHook.post_batch`` that make another submission."""
    changed: dict[str, Any] = {"conf": {str(name): str(value) for name, value in submission.properties.items()}}
    if submission.jars:
        changed["jars"] = list(split_list(submission.jars))
    return {**batch, **changed}


def manifest_submission(manifest: Mapping[str, Any]) -> Submission:
    """Return a ``SparkApplication`` of the Spark operator for Kubernetes as a submission."""
    spec = _mapping(manifest.get("spec"))
    deps = _mapping(spec.get("deps"))
    properties = dict(_mapping(spec.get("sparkConf")))
    java_options = _mapping(spec.get("driver")).get("javaOptions")
    if java_options:
        # It hides the property.
        properties[_JAVA_OPTIONS] = java_options
    return Submission(
        properties=properties,
        jars=_joined(deps.get("jars")),
        packages=_joined(deps.get("packages")),
        repositories=_joined(deps.get("repositories")),
    )


def manifest_of(manifest: Mapping[str, Any], submission: Submission) -> dict[str, Any]:
    """Return the ``SparkApplication`` that makes another submission."""
    spec = dict(_mapping(manifest.get("spec")))
    properties = {str(name): str(value) for name, value in submission.properties.items()}
    driver = _mapping(spec.get("driver"))
    if driver.get("javaOptions"):
        spec["driver"] = {**driver, "javaOptions": properties.pop(_JAVA_OPTIONS, driver["javaOptions"])}
    spec["sparkConf"] = properties
    lists = {"jars": split_list(submission.jars), "packages": split_list(submission.packages)}
    if any(lists.values()):
        spec["deps"] = {**_mapping(spec.get("deps")), **{name: list(value) for name, value in lists.items() if value}}
    return {**manifest, "spec": spec}


def manifest_environment(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables of the driver whose values the manifest holds."""
    variables = _mapping(_mapping(manifest.get("spec")).get("driver")).get("env") or ()
    return {
        str(variable["name"]): str(variable["value"])
        for variable in variables
        if "name" in variable and "value" in variable
    }


def manifest_scala_version(manifest: Mapping[str, Any]) -> ScalaVersion | None:
    """Return the Scala version that images of a ``sparkVersion`` have by default; ``None`` if it is not known."""
    major = str(_mapping(manifest.get("spec")).get("sparkVersion") or "").partition(".")[0]
    versions: dict[str, ScalaVersion] = {"3": "2.12", "4": "2.13"}
    return versions.get(major)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _joined(entries: Sequence[str] | str | None) -> str | None:
    return (entries if isinstance(entries, str) else ",".join(entries)) if entries else None

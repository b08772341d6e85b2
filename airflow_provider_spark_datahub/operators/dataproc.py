"""Drop-ins for the operators of Google Cloud Dataproc that run Spark: on clusters, and serverless.

Tests: ``tests/operators/test_service_request.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow.providers.google.cloud.operators.dataproc import (
    DataprocCreateBatchOperator,
    DataprocSubmitJobOperator,
)

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.operators.service_request import (
    Document,
    ServiceRequestOperator,
    SparkRequest,
    attributes,
    joined,
    mapping,
)

_LANGUAGES = ("pyspark", "spark", "spark_sql", "spark_r")
_JARS = "jar_file_uris"
_FILES = ("main_python_file_uri", "main_jar_file_uri")


def _fields(message: Any) -> dict[str, Any]:
    """Return the fields of a message, which may be given as its dict."""
    return dict(message) if isinstance(message, Mapping) else type(message).to_dict(message)


def _message(document: Document) -> tuple[str, dict[str, Any]]:
    """Return the kind of a message, ``job`` or ``batch``, and its fields."""
    [(kind, message)] = document.items()
    return kind, _fields(message)


def _spark_field(kind: str, message: Mapping[str, Any]) -> str:
    """Return the name of the field that describes what Spark runs; empty if there is none."""
    names = (f"{language}_{kind}" for language in _LANGUAGES)
    return next((name for name in names if message.get(name)), "")


def _properties_field(kind: str, spark_field: str) -> str:
    """Return the name of the field with the Spark properties."""
    return "runtime_config" if kind == "batch" else spark_field


def _refuse_history_server(message: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
    """Raise InjectionError if the service sets the place of its event log, for a history server."""
    environment = _fields(message.get("environment_config") or {})
    peripherals = _fields(environment.get("peripherals_config") or {})
    server = _fields(peripherals.get("spark_history_server_config") or {}).get("dataproc_cluster")
    if server and "spark.eventLog.dir" not in properties:
        raise capture.InjectionError(
            f"the batch logs for the history server {server}, and where is not known here: name the place in "
            "spark.eventLog.dir, with spark.eventLog.enabled=true"
        )


def _read(document: Document) -> list[capture.Submission]:
    kind, message = _message(document)
    spark_field = _spark_field(kind, message)
    if not spark_field:
        return []
    spark = _fields(message[spark_field])
    place = _fields(message.get(_properties_field(kind, spark_field)) or {})
    properties = {**mapping(place.get("properties"))}
    _refuse_history_server(message, properties)
    application = next((spark[name] for name in _FILES if spark.get(name)), None)
    return [capture.Submission(properties, joined(spark.get(_JARS)), application=application)]


def _write(document: Document, submissions: Sequence[capture.Submission]) -> dict[str, Any]:
    [submission] = submissions
    kind, message = _message(document)
    spark_field = _spark_field(kind, message)
    if submission.jars:
        jars = [*capture.split_list(submission.jars)]
        message[spark_field] = {**_fields(message[spark_field]), _JARS: jars}
    place = _properties_field(kind, spark_field)
    properties = dict(submission.properties)
    message[place] = {**_fields(message.get(place) or {}), "properties": properties}
    return {kind: message}


class DataprocSubmitJobDatahubOperator(ServiceRequestOperator, DataprocSubmitJobOperator):
    """Operator that runs a job on a Dataproc cluster, and delivers its lineage when the job ends."""

    spark_request = SparkRequest(
        document=attributes("job"),
        read=_read,
        write=_write,
        waits=lambda operator: not operator.asynchronous,
        how_to_wait="asynchronous=False",
        store_scheme="gs",
        shares_disk=False,
    )


class DataprocCreateBatchDatahubOperator(ServiceRequestOperator, DataprocCreateBatchOperator):
    """Operator that runs a batch of Dataproc Serverless, and delivers its lineage when the batch
    ends.
    """

    spark_request = replace(
        DataprocSubmitJobDatahubOperator.spark_request,
        document=attributes("batch"),
    )

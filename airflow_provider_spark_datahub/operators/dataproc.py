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

_KINDS = ("pyspark", "spark", "spark_sql", "spark_r")
_JARS = "jar_file_uris"
_FILES = ("main_python_file_uri", "main_jar_file_uri")


def _fields(message: Any) -> dict[str, Any]:
    """Return the fields of a message, which may be given as its dict."""
    return dict(message) if isinstance(message, Mapping) else type(message).to_dict(message)


def _spark(message: Mapping[str, Any], suffix: str) -> tuple[str, dict[str, Any]] | None:
    """Return the field of a message that describes what Spark runs, and its fields; ``None`` if it
    has none.
    """
    name = next((f"{kind}_{suffix}" for kind in _KINDS if message.get(f"{kind}_{suffix}")), None)
    return (name, _fields(message[name])) if name is not None else None


def _submission(spark: Mapping[str, Any], properties: Any) -> capture.Submission:
    application = next((spark[name] for name in _FILES if spark.get(name)), None)
    return capture.Submission(
        properties={**mapping(properties)}, jars=joined(spark.get(_JARS)), application=application
    )


def _with_jars(spark: Mapping[str, Any], submission: capture.Submission) -> dict[str, Any]:
    return (
        {**spark, _JARS: [*capture.split_list(submission.jars)]} if submission.jars else {**spark}
    )


def _read_job(document: Document) -> list[capture.Submission]:
    found = _spark(_fields(document["job"]), "job")
    return [_submission(found[1], found[1].get("properties"))] if found is not None else []


def _write_job(document: Document, submissions: Sequence[capture.Submission]) -> dict[str, Any]:
    job = _fields(document["job"])
    [submission], found = submissions, _spark(job, "job")
    if found is None:
        return {}
    return {
        "job": {
            **job,
            found[0]: {
                **_with_jars(found[1], submission),
                "properties": dict(submission.properties),
            },
        }
    }


def _runtime(batch: Mapping[str, Any]) -> dict[str, Any]:
    return _fields(batch.get("runtime_config") or {})


def _read_batch(document: Document) -> list[capture.Submission]:
    """Return a batch as a submission.

    :raises InjectionError: if the service sets the place of its event log, for a history server.
    """
    batch = _fields(document["batch"])
    found, properties = _spark(batch, "batch"), _runtime(batch).get("properties")
    peripherals = _fields(
        _fields(batch.get("environment_config") or {}).get("peripherals_config") or {}
    )
    server = _fields(peripherals.get("spark_history_server_config") or {}).get("dataproc_cluster")
    if server and "spark.eventLog.dir" not in mapping(properties):
        raise capture.InjectionError(
            f"the batch logs for the history server {server}, and where is not known here: name the place in "
            "spark.eventLog.dir, with spark.eventLog.enabled=true"
        )
    return [_submission(found[1], properties)] if found is not None else []


def _write_batch(document: Document, submissions: Sequence[capture.Submission]) -> dict[str, Any]:
    batch = _fields(document["batch"])
    [submission], found = submissions, _spark(batch, "batch")
    if found is None:
        return {}
    runtime = {**_runtime(batch), "properties": dict(submission.properties)}
    return {
        "batch": {**batch, found[0]: _with_jars(found[1], submission), "runtime_config": runtime}
    }


class DataprocSubmitJobDatahubOperator(ServiceRequestOperator, DataprocSubmitJobOperator):
    """Operator that runs a job on a Dataproc cluster, and delivers its lineage when the job ends."""

    spark_request = SparkRequest(
        document=attributes("job"),
        read=_read_job,
        write=_write_job,
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
        read=_read_batch,
        write=_write_batch,
    )

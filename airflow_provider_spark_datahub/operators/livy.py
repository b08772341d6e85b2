"""A drop-in ``LivyOperator`` whose batch's lineage is in DataHub when the task ends.

Tests: ``tests/operators/test_remote_spark.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.apache.livy.operators.livy import LivyOperator

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.operators.service_request import (
    Document,
    ServiceRequestOperator,
    SparkRequest,
    attributes,
    joined,
    store_scheme,
)


def _read(document: Document) -> list[capture.Submission]:
    """Return a batch as a submission. Livy has packages as a property only."""
    batch = document["spark_params"]
    return [
        capture.Submission(properties=dict(batch.get("conf") or {}), jars=joined(batch.get("jars")))
    ]


def _write(document: Document, submissions: Sequence[capture.Submission]) -> dict[str, Any]:
    """Return the arguments of ``LivyHook.post_batch`` that make another submission of a batch."""
    [submission] = submissions
    changed: dict[str, Any] = {"conf": dict(submission.properties)}
    if submission.jars:
        changed["jars"] = [*capture.split_list(submission.jars)]
    return {"spark_params": {**document["spark_params"], **changed}}


class LivyDatahubOperator(ServiceRequestOperator, LivyOperator):
    """Operator that runs a batch through Apache Livy, and delivers its lineage to DataHub when the
    batch ends.

    The task must wait for the batch (``polling_interval`` or ``deferrable``), and
    ``events_location`` be a folder that the driver and the worker share, or an address in an object
    store.
    """

    spark_request = SparkRequest(
        document=attributes("spark_params"),
        read=_read,
        write=_write,
        waits=lambda operator: operator.deferrable or operator._polling_interval > 0,
        how_to_wait="polling_interval, or deferrable=True",
        spark=lambda _, document: {
            "store_scheme": store_scheme(document["spark_params"].get("file"))
        },
    )

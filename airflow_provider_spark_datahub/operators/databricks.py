"""A drop-in ``DatabricksSubmitRunOperator`` whose run's lineage is in DataHub when the task ends.

Tests: ``tests/operators/test_service_request.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow.providers.databricks.operators.databricks import DatabricksSubmitRunOperator

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.operators.service_request import (
    Document,
    ServiceRequestOperator,
    SparkRequest,
    attributes,
    mapping,
)

_CLUSTER, _CONF = "new_cluster", "spark_conf"


def _clusters(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the new clusters of a request, in order: those of the run, of its tasks, and of their
    loops.
    """
    items = value.items() if isinstance(value, Mapping) else ((None, item) for item in value)
    for name, item in items:
        if name == _CLUSTER and isinstance(item, Mapping):
            yield item
        elif isinstance(item, (Mapping, list, tuple)):
            yield from _clusters(item)


def _with_confs(value: Any, confs: Iterator[Mapping[str, Any]]) -> Any:
    """Return a part of a request whose new clusters have other properties."""
    if isinstance(value, Mapping):
        return {
            name: {**item, _CONF: {**next(confs)}}
            if name == _CLUSTER and isinstance(item, Mapping)
            else _with_confs(item, confs)
            for name, item in value.items()
        }
    return (
        [_with_confs(item, confs) for item in value] if isinstance(value, (list, tuple)) else value
    )


def _read(document: Document) -> list[capture.Submission]:
    return [
        capture.Submission(properties={**mapping(cluster.get(_CONF))})
        for cluster in _clusters(document)
    ]


def _write(document: Document, submissions: Sequence[capture.Submission]) -> dict[str, Any]:
    changed: dict[str, Any] = _with_confs(
        document, iter([submission.properties for submission in submissions])
    )
    return changed


class DatabricksSubmitRunDatahubOperator(ServiceRequestOperator, DatabricksSubmitRunOperator):
    """Operator that runs tasks on new clusters of Databricks, and delivers their lineage when the
    run ends.

    Databricks keeps Spark's event log to itself: lineage is that of the listener, whose jars an
    init script of the cluster puts on its class path (``openlineage_jar="provided"``).
    """

    spark_request = SparkRequest(
        document=attributes("json", "tasks", _CLUSTER),
        read=_read,
        write=_write,
        waits=lambda operator: operator.wait_for_termination or operator.deferrable,
        how_to_wait="wait_for_termination=True",
        shares_disk=False,
    )

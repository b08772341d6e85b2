"""Receiver of OpenTelemetry's metrics over HTTP, in place of a collector."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.servers.loopback import AnsweringServer, Request

OtlpMetric = tuple[str, float, dict[str, str]]
"""Kind, last value (of a histogram the sum) and attributes."""


class OtlpReceiver:
    """Takes ``POST /v1/metrics``.

    :ivar requests: in their order.
    """

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self._server = AnsweringServer(self._answer)
        self.url = self._server.url

    def _answer(self, request: Request) -> tuple[int, bytes]:
        body = gzip.decompress(request.body) if request.headers.get("Content-Encoding") == "gzip" else request.body
        self.requests.append(ExportMetricsServiceRequest.FromString(body))
        return (200 if request.path == "/v1/metrics" else 404), b""

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[OtlpReceiver]:
        """Give a receiver that answers while this lasts."""
        receiver = cls()
        with receiver._server:
            yield receiver

    def metrics(self) -> dict[str, OtlpMetric]:
        """Return the metrics by their names."""
        found = {}
        for metric in (
            metric
            for request in self.requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ):
            kind = str(metric.WhichOneof("data"))
            point = getattr(metric, kind).data_points[-1]
            value = point.sum if kind.endswith("histogram") else point.as_double or point.as_int
            found[metric.name] = kind, value, {tag.key: tag.value.string_value for tag in point.attributes}
        return found

"""Receiver of OpenTelemetry's metrics over HTTP, in place of a collector."""

from __future__ import annotations

import gzip

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.servers.loopback import Answer, AnsweringServer, Request

OtlpMetric = tuple[str, float, dict[str, str]]
"""Kind, last value (of a histogram the sum) and attributes."""


class OtlpReceiver(AnsweringServer):
    """Takes ``POST /v1/metrics``.

    :ivar exported: in their order.
    """

    def __init__(self) -> None:
        self.exported: list[ExportMetricsServiceRequest] = []
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Keep the exported metrics."""
        body = gzip.decompress(request.body) if request.headers.get("Content-Encoding") == "gzip" else request.body
        self.exported.append(ExportMetricsServiceRequest.FromString(body))
        return Answer(200 if request.path == "/v1/metrics" else 404)

    def metrics(self) -> dict[str, OtlpMetric]:
        """Return the metrics by their names."""
        found = {}
        for metric in (
            metric
            for request in self.exported
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ):
            kind = str(metric.WhichOneof("data"))
            point = getattr(metric, kind).data_points[-1]
            value = point.sum if kind.endswith("histogram") else point.as_double or point.as_int
            found[metric.name] = kind, value, {tag.key: tag.value.string_value for tag in point.attributes}
        return found

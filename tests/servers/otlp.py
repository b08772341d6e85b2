"""Receiver of OpenTelemetry's metrics over HTTP, in place of a collector."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.servers.loopback import LoopbackServer

OtlpMetric = tuple[str, float, dict[str, str]]
"""Kind, last value (of a histogram the sum) and attributes."""


class OtlpReceiver:
    """Takes ``POST /v1/metrics``.

    :ivar requests: in their order.
    """

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.requests.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200 if self.path == "/v1/metrics" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = LoopbackServer(Handler)
        self.url = self._server.url

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

"""OpenLineage sink: raw events to a backend such as Marquez."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Backoff
from airflow_provider_spark_datahub.delivery.sink import RawEvent
from airflow_provider_spark_datahub.delivery.sinks.batches import BatchSink
from airflow_provider_spark_datahub.delivery.sinks.openlineage_settings import OpenLineageSettings

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sinks.openlineage_client import EventTransport


class OpenLineageSink(BatchSink):
    """Sink that delivers raw events through a transport of openlineage-python.

    It sends them one by one, in their order, so that a backend never sees the end of a run before its start. The
    transports' own retries, which know no deadline, are switched off.

    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "openlineage"
    takes = RawEvent
    largest_batch = 1
    server = "the OpenLineage backend"
    remedy = "set a valid API key as its password"

    def __init__(self, settings: OpenLineageSettings, *, backoff: Backoff | None = None) -> None:
        super().__init__(backoff)
        self._settings = settings

    def describe(self) -> str:
        """Return ``the OpenLineage backend at URL``, or the transport if that is not HTTP."""
        transport = self._settings.transport
        if transport["type"] != "http":
            return f"the OpenLineage backend of the transport {transport['type']!r}"
        url = urlsplit(str(transport["url"]))
        return f"the OpenLineage backend at {url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"

    def open_client(self, deadline: Deadline) -> EventTransport:
        """Return a transport."""
        from airflow_provider_spark_datahub.delivery.sinks.openlineage_client import EventTransport

        return EventTransport(self._settings, deadline)

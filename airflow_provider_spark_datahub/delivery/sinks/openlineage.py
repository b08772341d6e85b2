"""The settings of an OpenLineage backend, read from an ``openlineage`` connection.

The second destination: raw OpenLineage events to a backend such as Marquez.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.delivery.connection import ConnectionParts, masked
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import FAILED_ATTEMPTS, Backoff, Failure, FailureKind, Suspects
from airflow_provider_spark_datahub.delivery.outbox.format import event_of
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Numbered, Sink, SinkSettingsError

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sinks.openlineage_transport import EventTransport


@dataclass(frozen=True, slots=True)
class OpenLineageSettings:
    """How to reach an OpenLineage backend. Its ``repr`` holds no secret.

    :param transport: the configuration of a transport of openlineage-python, as in the section ``transport`` of its
        ``openlineage.yml``.
    """

    transport: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> OpenLineageSettings:
        """The settings that an Airflow connection holds.

        :param connection: ``host`` is the URL of the backend, or its host name, for the transport ``http``; ``port``
            its port, where the host does not name it; ``schema`` is ``http`` (default) or ``https``, and used only
            where the host is no URL; ``password`` is its API key; ``extra`` the transport's configuration, whose
            ``type`` is ``http`` where it is not given.
        :raises SinkSettingsError: where there is no address, or it is given twice.
        """
        transport, password = copy.deepcopy(dict(connection.extra)), connection.password
        transport.setdefault("type", "http")
        address = (connection.host or "").strip()
        for kind in _kinds(transport):
            if kind in _ANSWER_LATER or (kind == "kafka" and transport["type"] != "kafka"):
                raise SinkSettingsError(
                    f"The transport {kind!r} within {transport['type']!r} does not tell what arrived."
                )
        if transport["type"] != "http":
            if address or password:
                raise SinkSettingsError(
                    "Host and password are for the transport 'http'; what that of "
                    f"{transport['type']!r} needs is all in the extra."
                )
            return cls(transport)
        if address:
            if "url" in transport:
                raise SinkSettingsError("The URL is given twice: as host, and as 'url' in the extra. Leave one out.")
            url = address if "://" in address else f"{connection.schema or 'http'}://{address}"
            transport["url"] = f"{url}:{connection.port}" if connection.port else url
        if not transport.get("url"):
            raise SinkSettingsError("The connection has no host: give the backend's URL, e.g. http://marquez:5000.")
        if password:
            if "auth" in transport:
                raise SinkSettingsError("The key is given twice: as password, and as 'auth' in the extra.")
            transport["auth"] = {"type": "api_key", "apiKey": password.strip()}
        return cls(transport)

    @property
    def where(self) -> str:
        """The destination in a few words, without secrets."""
        if self.transport["type"] != "http":
            return f"of the transport {self.transport['type']!r}"
        parts = urlsplit(str(self.transport["url"]))
        return f"at {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def redact(self, words: str) -> str:
        """``words`` without passwords, tokens and keys, should a server repeat them."""
        return masked(words, _secrets(self.transport))


_ANSWER_LATER = {"async_http", "datadog"}


def _kinds(transport: Mapping[str, Any]) -> Iterator[str]:
    """The type of a transport, and of those in it."""
    yield str(transport.get("type"))
    inner = transport.get("transports") or []
    for one in inner.values() if isinstance(inner, Mapping) else inner:
        if isinstance(one, Mapping):
            yield from _kinds(one)


_SECRET = re.compile(r"password|secret|token|api_?key|credential|authorization|user\.info", re.IGNORECASE)


def _secrets(value: object, *, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            # The headers' names are the user's own.
            of_headers = name in ("custom_headers", "customHeaders")
            yield from _secrets(inner, is_secret=is_secret or of_headers or bool(_SECRET.search(str(name))))
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets(inner, is_secret=is_secret)
    elif isinstance(value, str) and is_secret:
        yield value
    elif isinstance(value, str) and "@" in value and "://" in value:
        yield value.partition("://")[2].rpartition("@")[0]


_REMEDY = "set a valid API key as its password"


class OpenLineageSink(Sink):
    """Delivers through a transport of openlineage-python: events one by one, in their order, so
    that a backend never sees the end of a run before its start.

    What may pass is tried again until the deadline; transports' own repetitions, which know no deadline, are switched
    off. An event that the backend fails on (HTTP 500) is rejected where it takes others before and after it.

    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "openlineage"

    def __init__(self, settings: OpenLineageSettings, *, backoff: Backoff | None = None) -> None:
        self._settings = settings
        self._backoff = backoff or Backoff()

    def describe(self) -> str:
        """``the OpenLineage backend at URL``."""
        return f"the OpenLineage backend {self._settings.where}"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send event after event. The transport is of this call alone."""
        from airflow_provider_spark_datahub.delivery.sinks.openlineage_transport import EventTransport, SetupError

        try:
            with EventTransport(self._settings, deadline) as transport:
                failure = self._send_all(transport, record, deadline)
        except SetupError as error:
            failure = error.failure
        if failure is not None:
            record.stop(self._problem(failure))

    def _send_all(self, transport: EventTransport, record: DeliveryRecord, deadline: Deadline) -> Failure | None:
        suspects = Suspects(record, "the OpenLineage backend")
        for item in record.pending():
            event = event_of(item[1])
            if event is None:
                return Failure(
                    FailureKind.MISCONFIGURED,
                    "it takes OpenLineage events, and this is a proposal to DataHub: name it as openlineage_conn_id",
                )
            failure = self._emit(transport, record, event, deadline)
            if failure is None:
                record.confirm([item], stored=True)
                suspects.convict(witness=item)
            elif failure.kind is FailureKind.REJECTED:
                record.reject(item, failure.words)
            elif failure.kind is not FailureKind.FAILED or deadline.remaining() <= self._backoff.first:
                return failure
            elif not suspects.add(item, failure, lambda known: self._takes(transport, record, known, deadline)):
                break
        return suspects.last

    def _takes(self, transport: EventTransport, record: DeliveryRecord, item: Numbered, deadline: Deadline) -> bool:
        """Whether the backend still takes the last event that it took, which changes the order of none."""
        event = event_of(item[1])
        return event is not None and self._emit(transport, record, event, deadline) is None

    def _emit(
        self, transport: EventTransport, record: DeliveryRecord, event: Mapping[str, Any], deadline: Deadline
    ) -> Failure | None:
        attempt, failed = 1, 0
        while (failure := transport.emit(event)) is not None:
            failed += failure.kind is FailureKind.FAILED
            wait = self._backoff.delay(attempt)
            if not failure.kind.may_pass or wait >= deadline.remaining() or failed >= FAILED_ATTEMPTS:
                break
            record.attempt_failed(self._problem(failure))
            self._backoff.sleep(wait)
            attempt += 1
        return failure

    def _problem(self, failure: Failure) -> str:
        return f"{self.describe()} {failure.verdict(_REMEDY)}."

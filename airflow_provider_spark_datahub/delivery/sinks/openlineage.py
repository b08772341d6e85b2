"""OpenLineage sink: raw events to a backend such as Marquez, and its ``openlineage`` connection."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.delivery.connection import ConnectionParts, mask_secrets
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Backoff, Failure, FailureKind, PoisonFilter, SetupError
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, RawEvent, Sink, SinkSettingsError

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sinks.openlineage_transport import EventTransport


@dataclass(frozen=True, slots=True)
class OpenLineageSettings:
    """Settings to reach an OpenLineage backend. Their ``repr`` holds no secret.

    :param transport: the configuration of a transport of openlineage-python, as in the section ``transport`` of its
        ``openlineage.yml``.
    """

    transport: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> OpenLineageSettings:
        """Read the settings from an Airflow connection.

        :param connection: ``host`` is the URL of the backend, or its host name, for the transport ``http``; ``port``
            its port, if the host does not name it; ``schema`` is ``http`` (default) or ``https``, and used only if the
            host is not a URL; ``password`` is its API key; ``extra`` the transport's configuration, whose ``type`` is
            ``http`` by default.
        :raises SinkSettingsError: if there is no address, it is given twice, or the transport may lose events.
        """
        # Fields of a form that were left empty are not given.
        given = {key: value for key, value in connection.extra.items() if value not in (None, "")}
        transport, password = copy.deepcopy(given), connection.password
        transport.setdefault("type", "http")
        address = (connection.host or "").strip()
        _check_types(transport)
        if transport["type"] != "http":
            if address or password:
                raise SinkSettingsError(
                    "Host and password are for the transport 'http'. Configure the transport "
                    f"{transport['type']!r} in the extra alone."
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

    def redact(self, text: str) -> str:
        """Return ``text`` without passwords, tokens and keys, in case a server repeats them."""
        return mask_secrets(text, _secrets(self.transport))


_ANSWER_LATER = {"async_http", "datadog"}
_KAFKA = {"kafka", "msk-iam"}
_TAKE_OBJECTS = {"amazon_datazone_api", "gcplineage"}


def _check_types(transport: Mapping[str, Any]) -> None:
    """Check that the transport, and those in it, report which events arrived."""
    for kind in _types(transport):
        if kind in _ANSWER_LATER or (kind in _KAFKA and transport["type"] not in _KAFKA):
            raise SinkSettingsError(
                f"The transport {kind!r} within {transport['type']!r} does not report which events arrived."
            )
        if kind in _TAKE_OBJECTS:
            raise SinkSettingsError(
                f"The transport {kind!r} ignores events as Spark wrote them: it only takes objects of "
                "openlineage-python's classes."
            )


def _types(transport: Mapping[str, Any]) -> Iterator[str]:
    """Yield the type of a transport, and of those in it."""
    yield str(transport.get("type"))
    nested = transport.get("transports") or []
    # Those of `composite`, and that of `transform`.
    for inner in [*(nested.values() if isinstance(nested, Mapping) else nested), transport.get("transport")]:
        if isinstance(inner, Mapping):
            yield from _types(inner)


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
    """Sink that delivers raw events through a transport of openlineage-python.

    It sends them one by one, in their order, so that a backend never sees the end of a run before its start. Failures
    that may pass are retried until the deadline; the transports' own retries, which know no deadline, are switched
    off. An event that the backend fails on (HTTP 500) is rejected if it takes others before and after it.

    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "openlineage"
    takes = RawEvent

    def __init__(self, settings: OpenLineageSettings, *, backoff: Backoff | None = None) -> None:
        self._settings = settings
        self._backoff = backoff or Backoff()

    def describe(self) -> str:
        """Return ``the OpenLineage backend at URL``, or the transport if that is not HTTP."""
        transport = self._settings.transport
        if transport["type"] != "http":
            return f"the OpenLineage backend of the transport {transport['type']!r}"
        url = urlsplit(str(transport["url"]))
        return f"the OpenLineage backend at {url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send event after event. The transport is used by this call only."""
        from airflow_provider_spark_datahub.delivery.sinks.openlineage_transport import EventTransport

        try:
            with closing(EventTransport(self._settings, deadline)) as transport:
                failure = self._send_all(transport, record, deadline)
        except SetupError as error:
            failure = error.failure
        if failure is not None:
            record.stop(self._problem(failure), failure.kind.outage_after)

    def _send_all(self, transport: EventTransport, record: DeliveryRecord, deadline: Deadline) -> Failure | None:
        def resend(numbered: tuple[int, RawEvent]) -> bool | Failure:
            # Emitting an event once more does not change the order of the others.
            return self._emit(transport, record, numbered[1], deadline) or True

        poison = PoisonFilter[RawEvent](record, "the OpenLineage backend", resend)
        for numbered in record.pending(RawEvent):
            failure = self._emit(transport, record, numbered[1], deadline)
            if failure is None:
                record.confirm([numbered], stored=True)
                poison.judge(taken=numbered)
            elif failure.kind is FailureKind.REJECTED:
                record.reject(numbered, failure.text)
            elif failure.kind is not FailureKind.FAILED or deadline.remaining() <= self._backoff.first:
                return failure
            elif not poison.add(numbered, failure):
                break
        return poison.last

    def _emit(
        self, transport: EventTransport, record: DeliveryRecord, event: RawEvent, deadline: Deadline
    ) -> Failure | None:
        failure, _ = self._backoff.retry(
            "emit an event",
            lambda: transport.emit(event.decoded()),
            deadline,
            lambda failure, _: record.attempt_failed(self._problem(failure)),
            patient=record.patient,
        )
        return failure

    def _problem(self, failure: Failure) -> str:
        return f"{self.describe()} {failure.predicate(_REMEDY)}."

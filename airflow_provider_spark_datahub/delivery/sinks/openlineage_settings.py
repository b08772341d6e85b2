"""Settings of the OpenLineage sink, from an ``openlineage`` connection."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_spark_datahub.delivery.connection import ConnectionParts, give, mask_secrets
from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError


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
            url = address if "://" in address else f"{connection.schema or 'http'}://{address}"
            give(transport, "url", f"{url}:{connection.port}" if connection.port else url, "host")
        if not transport.get("url"):
            raise SinkSettingsError("The connection has no host: give the backend's URL, e.g. http://marquez:5000.")
        if password:
            give(transport, "auth", {"type": "api_key", "apiKey": password.strip()}, "password")
        return cls(transport)

    def redact(self, text: str) -> str:
        """Return ``text`` without passwords, tokens and keys, in case a server repeats them."""
        return mask_secrets(text, self.transport)


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

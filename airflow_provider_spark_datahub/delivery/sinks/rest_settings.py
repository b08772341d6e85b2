"""Settings of the REST sink, from a ``datahub-rest`` connection.

Tests: ``tests/delivery/test_connections.py``.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.delivery.connection import ConnectionParts, Read, Reader, mask_secrets
from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError

_EmitMode = Literal["SYNC_PRIMARY", "SYNC_WAIT", "ASYNC", "ASYNC_WAIT"]


@dataclass(frozen=True, slots=True)
class RestSettings:
    """Settings to reach DataHub's metadata service (GMS). Their ``repr`` holds no secret.

    :param server: GMS's URL, e.g. ``http://gms:8080`` or ``https://acme.example/api/gms``.
    :param token: the access token; ``None`` if the service wants none.
    :param timeout_sec: seconds one request may wait for its connection, and for the next bytes of its answer.
    :param extra_headers: HTTP headers of every request. They may hold credentials and are never logged.
    :param ca_certificate_path: a PEM file or folder of authorities to trust instead of the usual ones.
    :param client_certificate_path: a PEM file for mutual TLS.
    :param client_key_path: its key, if that is in a file of its own.
    :param disable_ssl_verification: trust any certificate.
    :param retry_max_times: how often one request is repeated at most; ``None`` if only the deadline limits it.
    :param emit_mode: DataHub's emit mode. The ASYNC ones answer before anything is stored; SYNC_WAIT and
        ASYNC_WAIT differ from their shorter forms only with ``openapi_ingestion``.
    :param openapi_ingestion: use GMS's OpenAPI end points instead of the Rest.li ones.
    """

    server: str
    token: str | None = field(default=None, repr=False)
    timeout_sec: float = 10.0
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_certificate_path: str | None = None
    client_certificate_path: str | None = None
    client_key_path: str | None = None
    disable_ssl_verification: bool = False
    retry_max_times: int | None = None
    emit_mode: _EmitMode = "SYNC_PRIMARY"
    openapi_ingestion: bool = False

    def __post_init__(self) -> None:
        if self.emit_mode == "ASYNC_WAIT" and not self.openapi_ingestion:
            raise SinkSettingsError(
                "emit_mode ASYNC_WAIT needs openapi_ingestion: true (only there GMS reports the outcome of a write)."
            )
        if self.client_key_path and not self.client_certificate_path:
            raise SinkSettingsError("client_key_path needs client_certificate_path: a key without its certificate.")

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> RestSettings:
        """Read the settings from an Airflow connection, as DataHub's own hook does.

        :param connection: ``host`` is GMS's URL (``http://gms:8080``) or its host name; ``port`` its port, if the host
            does not name it; ``schema`` is ``http`` (default) or ``https``, and used only if the host is not a URL;
            ``password`` is the access token; ``extra`` has the names of this class's other fields.
        :raises SinkSettingsError: if a part is missing, unknown or of the wrong type. It never holds a secret.
        """
        settings = Read.extra(connection.extra, _EXTRA)
        server = _server(connection.host, connection.port, connection.schema)
        return cls(server=server, token=_token(connection.password), **settings)

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that may hold a secret."""
        authorisation = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**authorisation, **self.extra_headers}

    def redact(self, text: str) -> str:
        """Return ``text`` without the token, the values of the extra headers and the secret in the environment.

        A server may repeat them.
        """
        in_environment = os.environ.get("DATAHUB_SYSTEM_CLIENT_SECRET", "")
        secrets = {"token": self.token, "secret": in_environment, "extra_headers": self.extra_headers}
        return mask_secrets(text, secrets)


def _headers(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SinkSettingsError.wrong_type(key, "an object of header names and texts", value)
    headers = {}
    for name, content in value.items():
        if not (isinstance(name, str) and isinstance(content, str)):
            raise SinkSettingsError(f"Header {name!r} in {key!r} must be text.")
        if not (_printable(name) and _printable(content)):
            raise SinkSettingsError(f"Header {name!r} in {key!r} holds characters that HTTP does not allow.")
        headers[name] = content
    return headers


def _emit_mode(key: str, value: object) -> _EmitMode:
    modes = get_args(_EmitMode)
    mode = value.strip().upper() if isinstance(value, str) else value
    if mode not in modes:
        near = difflib.get_close_matches(str(mode), modes, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SinkSettingsError(f"{key!r} in the connection's extra must be one of {', '.join(modes)}.{hint}")
    return cast(_EmitMode, mode)


_EXTRA: dict[str, Reader] = {
    "timeout_sec": Read.seconds,
    "extra_headers": _headers,
    "ca_certificate_path": Read.text,
    "client_certificate_path": Read.text,
    "client_key_path": Read.text,
    "disable_ssl_verification": Read.boolean,
    "retry_max_times": Read.count,
    "emit_mode": _emit_mode,
    "openapi_ingestion": Read.boolean,
}


def _printable(content: str) -> bool:
    return content.isascii() and content.isprintable()


def _token(password: str | None) -> str | None:
    token = (password or "").strip()  # a pasted token often has a line break at its end
    if not _printable(token) or " " in token:
        raise SinkSettingsError("The connection's password (the access token) holds spaces or other such characters.")
    return token or None


def _server(host: str | None, port: int | None, schema: str | None) -> str:
    address = (host or "").strip()
    if not address:
        raise SinkSettingsError("The connection has no host: give the URL of DataHub's GMS, e.g. http://gms:8080.")
    try:
        url = urlsplit(address if "://" in address else f"{schema or 'http'}://{address}")
        in_host = url.port  # reading it validates it
    except ValueError as error:
        raise SinkSettingsError("The connection's host is not a URL: give one such as http://gms:8080.") from error
    if url.scheme not in ("http", "https"):
        raise SinkSettingsError(f"The connection's schema must be http or https, not {url.scheme!r}.")
    if not url.hostname:
        raise SinkSettingsError("The connection's host names no machine: give a URL such as http://gms:8080.")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise SinkSettingsError(
            "The connection's host must be a plain URL: the access token belongs in the password, "
            "and a URL of GMS has no query."
        )
    if in_host and port and in_host != port:
        raise SinkSettingsError(f"The connection's host names port {in_host}, its port field {port}: leave one out.")
    netloc = f"{url.netloc.rstrip(':')}:{port}" if port and not in_host else url.netloc
    return f"{url.scheme}://{netloc}{url.path.rstrip('/')}"

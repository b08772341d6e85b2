"""The settings of the REST sink, read from a ``datahub-rest`` connection."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args
from urllib.parse import SplitResult, urlsplit

from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError

EmitModeName = Literal["SYNC_PRIMARY", "SYNC_WAIT", "ASYNC", "ASYNC_WAIT"]


@dataclass(frozen=True, slots=True)
class RestSettings:
    """How to reach DataHub's metadata service (GMS). Its ``repr`` holds no secret.

    :param server: GMS's URL, e.g. ``http://gms:8080`` or ``https://acme.example/api/gms``.
    :param token: the access token; None where the service wants none.
    :param timeout_sec: seconds one request may wait for its connection, and for the next bytes of its answer.
    :param extra_headers: HTTP headers of every request. They may hold credentials and are never logged.
    :param ca_certificate_path: a PEM file or folder of authorities to trust instead of the usual ones.
    :param client_certificate_path: a PEM file for mutual TLS.
    :param client_key_path: its key, where that is in a file of its own.
    :param disable_ssl_verification: trust any certificate.
    :param retry_max_times: how often one request is repeated at most; None where only the time limits it (the
        time does so in any case).
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
    emit_mode: EmitModeName = "SYNC_PRIMARY"
    openapi_ingestion: bool = False

    def __post_init__(self) -> None:
        if self.emit_mode == "ASYNC_WAIT" and not self.openapi_ingestion:
            raise SinkSettingsError(
                "emit_mode ASYNC_WAIT needs openapi_ingestion: true (GMS tells what became of a write only there)."
            )
        if self.client_key_path and not self.client_certificate_path:
            raise SinkSettingsError("client_key_path needs client_certificate_path: a key without its certificate.")

    @classmethod
    def from_connection(
        cls,
        host: str | None,
        port: int | None,
        schema: str | None,
        password: str | None,
        extra: Mapping[str, Any],
    ) -> RestSettings:
        """The settings that an Airflow connection holds, as DataHub's own hook reads it.

        :param host: GMS's URL (``http://gms:8080``) or its host name.
        :param port: its port, where the host does not name it.
        :param schema: ``http`` (default) or ``https``; used only where the host is no URL.
        :param password: the access token.
        :param extra: the names of this class's other fields. Values from a connection URI are text, so the text of
            a number or of a truth value will do; empty ones count as not given.
        :raises SinkSettingsError: where a part is missing, unknown or of the wrong type. Never holds a value that
            may be secret.
        """
        settings: dict[str, Any] = {}
        for key, value in extra.items():
            reader = _EXTRA.get(key)
            if reader is None:
                raise SinkSettingsError(f"Unknown key in the connection's extra: {key!r}.{_nearest(key)}")
            if value is not None and value != "":
                settings[key] = reader(key, value)
        return cls(server=_server(host, port, schema), token=_token(password), **settings)

    def headers(self) -> dict[str, str]:
        """The HTTP headers that may hold a secret."""
        authorisation = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**authorisation, **self.extra_headers}

    def redact(self, text: str) -> str:
        """``text`` without the token and the values of the extra headers, should a server repeat them."""
        for secret in sorted({self.token or "", *self.extra_headers.values()}, key=len, reverse=True):
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "***")
        return text


_SHORTEST_SECRET = 6  # shorter header values ("1", "true") are no secrets, and are part of ordinary words


def _nearest(key: str) -> str:
    near = difflib.get_close_matches(key.lower(), _EXTRA, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else f" Known keys: {', '.join(_EXTRA)}."


def _ill_typed(key: str, wanted: str, value: object) -> SinkSettingsError:
    return SinkSettingsError(f"{key!r} in the connection's extra must be {wanted}, not {type(value).__name__}.")


def _seconds(key: str, value: object) -> float:
    wanted = "a number of seconds above 0"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _ill_typed(key, wanted, value)
    try:
        seconds = float(value)
    except ValueError as error:
        raise SinkSettingsError(f"{key!r} in the connection's extra must be {wanted}, not {value!r}.") from error
    if not (seconds > 0 and math.isfinite(seconds)):
        raise SinkSettingsError(f"{key!r} in the connection's extra must be {wanted}, not {value!r}.")
    return seconds


def _count(key: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    raise _ill_typed(key, "a whole number from 0", value)


def _truth(key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _ill_typed(key, "true or false", value)


def _text(key: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise _ill_typed(key, "text", value)


def _headers(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _ill_typed(key, "an object of header names and texts", value)
    headers = {}
    for name, content in value.items():
        if not (isinstance(name, str) and isinstance(content, str)):
            raise SinkSettingsError(f"Header {name!r} in {key!r} must be text.")
        if not (_printable(name) and _printable(content)):
            raise SinkSettingsError(f"Header {name!r} in {key!r} holds characters that HTTP does not allow.")
        headers[name] = content
    return headers


def _emit_mode(key: str, value: object) -> EmitModeName:
    modes = get_args(EmitModeName)
    mode = value.strip().upper() if isinstance(value, str) else value
    if mode not in modes:
        near = difflib.get_close_matches(str(mode), modes, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SinkSettingsError(f"{key!r} in the connection's extra must be one of {', '.join(modes)}.{hint}")
    return cast(EmitModeName, mode)


_EXTRA: dict[str, Callable[[str, object], object]] = {
    "timeout_sec": _seconds,
    "extra_headers": _headers,
    "ca_certificate_path": _text,
    "client_certificate_path": _text,
    "client_key_path": _text,
    "disable_ssl_verification": _truth,
    "retry_max_times": _count,
    "emit_mode": _emit_mode,
    "openapi_ingestion": _truth,
}


def _printable(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _token(password: str | None) -> str | None:
    token = (password or "").strip()  # a token that was pasted often brings its line's end
    if not _printable(token) or " " in token:
        raise SinkSettingsError("The connection's password (the access token) holds spaces or other such characters.")
    return token or None


def _server(host: str | None, port: int | None, schema: str | None) -> str:
    text = (host or "").strip()
    if not text:
        raise SinkSettingsError("The connection has no host: give the URL of DataHub's GMS, e.g. http://gms:8080.")
    url = _split(text if "://" in text else f"{schema or 'http'}://{text}")
    if url.scheme not in ("http", "https"):
        raise SinkSettingsError(f"The connection's schema must be http or https, not {url.scheme!r}.")
    if not url.hostname:
        raise SinkSettingsError("The connection's host names no machine: give a URL such as http://gms:8080.")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise SinkSettingsError(
            "The connection's host must be a plain URL: the access token belongs in the password, "
            "and a URL of GMS has no query."
        )
    in_host = url.port
    if in_host and port and in_host != port:
        raise SinkSettingsError(f"The connection's host names port {in_host}, its port field {port}: leave one out.")
    netloc = f"{url.netloc.rstrip(':')}:{port}" if port and not in_host else url.netloc
    return f"{url.scheme}://{netloc}{url.path.rstrip('/')}"


def _split(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        _ = url.port  # only reading it validates it
    except ValueError as error:
        raise SinkSettingsError("The connection's host is no URL: give one such as http://gms:8080.") from error
    return url

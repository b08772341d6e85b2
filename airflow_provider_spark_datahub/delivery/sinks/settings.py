"""Settings of the sinks, from the parts of an Airflow connection: known keys, typed values, no
value in an error.

Tests: ``tests/delivery/test_connections.py``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError
from airflow_provider_spark_datahub.foundation.text import SECRET_NAME, nearest, read_boolean


@dataclass(frozen=True, repr=False)
class ConnectionParts:
    """Parts of a connection, by Airflow's names. Each sink's settings document what they mean.

    :param extra: decoded.
    """

    host: str | None = None
    port: int | None = None
    schema: str | None = None
    login: str | None = None
    password: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


_Reader = Callable[[str, object], Any]
"""Returns the setting of a key and its value.

:raises SinkSettingsError: if the value is of another type.
"""


def _reader(wanted: str, read: Callable[[object], Any]) -> _Reader:
    """Return the reader of values for which ``read`` does not return ``None``."""

    def reader(key: str, value: object) -> Any:
        setting = read(value)
        if setting is None:
            raise SinkSettingsError.wrong_type(key, wanted, value)
        return setting

    return reader


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds(value: object) -> float | None:
    with suppress(ValueError):
        if (
            isinstance(value, int | float | str)
            and not isinstance(value, bool)
            and 0 < float(value) < math.inf
        ):
            return float(value)
    return None


class Read:
    """Readers of a connection's extra, and of the usual types in it."""

    @classmethod
    def extra(
        cls, extra: Mapping[str, Any], readers: Mapping[str, _Reader], place: str = "extra"
    ) -> dict[str, Any]:
        """Return the settings in ``extra``, by the keys of ``readers``.

        Values from a connection URI are text, so the text of a number or of a truth value will do.
        Empty values count as not given.

        :param place: name of this part of the connection, for errors.
        :raises SinkSettingsError: if a key is unknown, or a value is of the wrong type.
        """
        for key in extra:
            if key not in readers:
                hint = cls.suggestion(key, readers)
                raise SinkSettingsError(f"Unknown key in the connection's {place}: {key!r}.{hint}")
        return {
            key: readers[key](key, value)
            for key, value in extra.items()
            if value is not None and value != ""
        }

    @staticmethod
    def suggestion(key: str, keys: Iterable[str]) -> str:
        """Return a sentence that names the known key that was probably meant, or all of them."""
        names = list(keys)
        near = nearest(key.lower(), names)
        return f" Did you mean {near!r}?" if near else f" Known keys: {', '.join(names)}."

    seconds = staticmethod(_reader("a number of seconds above 0", _seconds))
    count = staticmethod(_reader("a whole number from 0", _whole))
    boolean = staticmethod(_reader("true or false", read_boolean))
    text = staticmethod(_reader("text", lambda value: value if isinstance(value, str) else None))
    mapping = staticmethod(
        _reader("an object", lambda value: dict(value) if isinstance(value, Mapping) else None)
    )


def _give(settings: dict[str, Any], name: str, value: object, place: str) -> None:
    """Add a setting that is given beside the object of settings, unless the value is empty.

    :param place: where it is given, for the error.
    :raises SinkSettingsError: if it is in both places.
    """
    if value:
        if settings.get(name):
            raise SinkSettingsError(
                f"{name!r} is given twice: in the extra, and as {place}. Leave one out."
            )
        settings[name] = value


_HEADERS = "extra_headers"
"""Their names are the user's own."""
_CREDENTIALS = re.compile(r"[\s:]+")
_SHORTEST_SECRET = 6  # shorter values ("1", "true") are parts of ordinary words


_USER_OF_URL = re.compile(r"://([^/?#@,]*)@")


def _mask_secrets(text: str, settings: object) -> str:
    """Return ``text`` with ``***`` in the place of each secret in some settings, in case a server
    repeats them.

    Of ``Bearer TOKEN`` and ``USER:PASSWORD``, the second part is a secret as well.
    """
    secrets = {
        part
        for secret in _secrets(settings)
        for part in (secret, *_CREDENTIALS.split(secret, maxsplit=1)[1:])
    }
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


def _secrets(value: object, *, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets(
                inner,
                is_secret=is_secret or name == _HEADERS or bool(SECRET_NAME.search(str(name))),
            )
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets(inner, is_secret=is_secret)
    elif isinstance(value, str) and is_secret:
        yield value
    elif isinstance(value, str) and "@" in value and "://" in value:
        yield value.partition("://")[2].rpartition("@")[0]
        # An address may have another "@" in its path, and there may be several with commas between
        # them.
        yield from _USER_OF_URL.findall(value)


_EmitMode = Literal["SYNC_PRIMARY", "SYNC_WAIT", "ASYNC", "ASYNC_WAIT"]


@dataclass(frozen=True)
class RestSettings:
    """Settings to reach DataHub's metadata service (GMS). Their ``repr`` holds no secret.

    :param server: GMS's URL, e.g. ``http://gms:8080`` or ``https://acme.example/api/gms``.
    :param token: the access token; ``None`` if the service wants none.
    :param timeout_sec: seconds one request may wait for its connection, and for the next bytes of
        its answer.
    :param extra_headers: HTTP headers of every request. They may hold credentials and are never
        logged.
    :param ca_certificate_path: a PEM file or folder of authorities to trust instead of the usual
        ones.
    :param client_certificate_path: a PEM file for mutual TLS.
    :param client_key_path: its key, if that is in a file of its own.
    :param disable_ssl_verification: trust any certificate.
    :param retry_max_times: how often one request is repeated at most; ``None`` if only the deadline
        limits it.
    :param emit_mode: DataHub's emit mode. GMS answers the ASYNC ones before anything is stored.
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

    def __post_init__(self) -> None:
        if self.client_key_path and not self.client_certificate_path:
            raise SinkSettingsError(
                "client_key_path needs client_certificate_path: a key without its certificate."
            )

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> RestSettings:
        """Read the settings from an Airflow connection, as DataHub's own hook does.

        :param connection: ``host`` is GMS's URL (``http://gms:8080``) or its host name; ``port``
            its port, if the host does not name it; ``schema`` is ``http`` (default) or ``https``,
            and used only if the host is not a URL; ``password`` is the access token; ``extra`` has
            the names of this class's other fields.
        :raises SinkSettingsError: if a part is missing, unknown or of the wrong type. It never
            holds a secret.
        """
        # DataHub's own hook reads one more key, for another endpoint of the same GMS.
        extra = {
            key: value for key, value in connection.extra.items() if key != "openapi_ingestion"
        }
        settings = Read.extra(extra, _REST_EXTRA)
        server = _server(connection.host, connection.port, connection.schema)
        return cls(server=server, token=_token(connection.password), **settings)

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers that may hold a secret."""
        authorisation = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**authorisation, **self.extra_headers}

    def redact(self, text: str) -> str:
        """Return ``text`` without the token, the values of the extra headers and the secret in the
        environment.

        A server may repeat them.
        """
        in_environment = os.environ.get("DATAHUB_SYSTEM_CLIENT_SECRET", "")
        secrets = {
            "token": self.token,
            "secret": in_environment,
            "extra_headers": self.extra_headers,
        }
        return _mask_secrets(text, secrets)


def _headers(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SinkSettingsError.wrong_type(key, "an object of header names and texts", value)
    headers = {}
    for name, content in value.items():
        if not (isinstance(name, str) and isinstance(content, str)):
            raise SinkSettingsError(f"Header {name!r} in {key!r} must be text.")
        if not (_printable(name) and _printable(content)):
            raise SinkSettingsError(
                f"Header {name!r} in {key!r} holds characters that HTTP does not allow."
            )
        headers[name] = content
    return headers


def _emit_mode(key: str, value: object) -> _EmitMode:
    modes = get_args(_EmitMode)
    mode = value.strip().upper() if isinstance(value, str) else value
    if mode not in modes:
        near = nearest(str(mode), modes)
        hint = f" Did you mean {near}?" if near else ""
        raise SinkSettingsError(
            f"{key!r} in the connection's extra must be one of {', '.join(modes)}.{hint}"
        )
    return cast(_EmitMode, mode)


_REST_EXTRA: dict[str, _Reader] = {
    "timeout_sec": Read.seconds,
    "extra_headers": _headers,
    "ca_certificate_path": Read.text,
    "client_certificate_path": Read.text,
    "client_key_path": Read.text,
    "disable_ssl_verification": Read.boolean,
    "retry_max_times": Read.count,
    "emit_mode": _emit_mode,
}


def _printable(content: str) -> bool:
    return content.isascii() and content.isprintable()


def _token(password: str | None) -> str | None:
    token = (password or "").strip()  # a pasted token often has a line break at its end
    if not _printable(token) or " " in token:
        raise SinkSettingsError(
            "The connection's password (the access token) holds spaces or other such characters."
        )
    return token or None


def _server(host: str | None, port: int | None, schema: str | None) -> str:
    address = (host or "").strip()
    if not address:
        raise SinkSettingsError(
            "The connection has no host: give the URL of DataHub's GMS, e.g. http://gms:8080."
        )
    try:
        url = urlsplit(address if "://" in address else f"{schema or 'http'}://{address}")
        in_host = url.port  # reading it validates it
    except ValueError as error:
        raise SinkSettingsError(
            "The connection's host is not a URL: give one such as http://gms:8080."
        ) from error
    if url.scheme not in ("http", "https"):
        raise SinkSettingsError(
            f"The connection's schema must be http or https, not {url.scheme!r}."
        )
    if not url.hostname:
        raise SinkSettingsError(
            "The connection's host names no machine: give a URL such as http://gms:8080."
        )
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise SinkSettingsError(
            "The connection's host must be a plain URL: the access token belongs in the password, "
            "and a URL of GMS has no query."
        )
    if in_host and port and in_host != port:
        raise SinkSettingsError(
            f"The connection's host names port {in_host}, its port field {port}: leave one out."
        )
    netloc = f"{url.netloc.rstrip(':')}:{port}" if port and not in_host else url.netloc
    return f"{url.scheme}://{netloc}{url.path.rstrip('/')}"


# where DataHub's metadata change consumer reads proposals by default
_DEFAULT_TOPIC = "MetadataChangeProposal_v1"


@dataclass(frozen=True)
class KafkaSettings:
    """Settings to reach the Kafka from which DataHub reads proposals. Their ``repr`` holds no
    secret.

    :param bootstrap: brokers, e.g. ``broker1:9092,broker2:9092``.
    :param schema_registry_url: of the registry that holds the schema of proposals; ``None`` for
        acryl-datahub's default: ``$KAFKA_SCHEMAREGISTRY_URL``, else the registry inside GMS on this
        machine.
    :param schema_registry_config: options of confluent-kafka's ``SchemaRegistryClient``.
    :param producer_config: options of librdkafka.
    :param client_timeout_seconds: for one request to the registry; the deadline holds in any case.
    :param topic: of proposals.
    """

    bootstrap: str
    schema_registry_url: str | None = field(default=None, repr=False)
    schema_registry_config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    producer_config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    client_timeout_seconds: float = 60.0
    topic: str = _DEFAULT_TOPIC

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> KafkaSettings:
        """Read the settings from an Airflow connection, as DataHub's own hook does.

        :param connection: ``host`` names the brokers, or ``connection.bootstrap`` in the extra
            does; ``port`` is the port of those that are named without one; ``login`` and
            ``password`` are ``sasl.username`` and ``sasl.password``, unless ``producer_config``
            sets them. ``extra`` has the shape of acryl-datahub's ``KafkaSinkConfig``:
            ``connection`` with this class's other fields, and ``topic_routes``. Other options of
            ``KafkaSinkConfig`` are accepted without effect. The fields of Airflow's form are beside
            ``connection``; they are flat, and Airflow hides the secret ones by their names.
        :raises SinkSettingsError: if a part is missing, unknown or of the wrong type. It never
            holds a secret.
        """
        for key in connection.extra.keys() & (_KAFKA_CONNECTION.keys() - _KAFKA_FORM.keys()):
            raise SinkSettingsError(
                f"{key!r} belongs into the object 'connection' in the connection's extra."
            )
        top = Read.extra(connection.extra, _KAFKA_EXTRA)
        inner = Read.extra(
            top.get("connection", {}), _KAFKA_CONNECTION, "extra, object 'connection'"
        )
        producer, registry = (
            inner.setdefault("producer_config", {}),
            inner.setdefault("schema_registry_config", {}),
        )
        brokers = filter(None, map(str.strip, (connection.host or "").split(",")))
        port = f":{connection.port}" if connection.port else ""
        named = (broker if re.search(r":\d+$", broker) else f"{broker}{port}" for broker in brokers)
        _give(inner, "bootstrap", ",".join(named), "host")
        if "bootstrap" not in inner:
            raise SinkSettingsError(
                "The connection has no host: give Kafka's brokers, e.g. broker1:9092,broker2:9092."
            )
        _give(
            inner,
            "schema_registry_url",
            top.get("schema_registry_url"),
            "field 'schema_registry_url'",
        )
        if "schema_registry_password" in top:
            user = f"{top.get('schema_registry_login', '')}:{top['schema_registry_password']}"
            _give(registry, "basic.auth.user.info", user, "field 'schema_registry_password'")
        for name, option in _KAFKA_FORM_OPTIONS.items():
            _give(producer, option, top.get(name), f"field {name!r}")
        _give(producer, "sasl.username", connection.login, "login")
        _give(producer, "sasl.password", connection.password, "password")
        if (connection.login or connection.password) and "security.protocol" not in producer:
            raise SinkSettingsError(
                "The connection has a login or a password, but 'producer_config' in its extra names no "
                "'security.protocol' that uses them: e.g. SASL_SSL, with its 'sasl.mechanism'."
            )
        if str(producer.get("acks", producer.get("request.required.acks"))) == "0":
            raise SinkSettingsError(
                "'acks' in producer_config must not be 0: Kafka would confirm nothing."
            )
        return cls(topic=top.get("topic_routes", {}).get(_PROPOSALS, _DEFAULT_TOPIC), **inner)

    def redact(self, text: str) -> str:
        """Return ``text`` without passwords, tokens and keys, in case a server repeats them."""
        return _mask_secrets(
            text, [self.producer_config, self.schema_registry_config, self.schema_registry_url]
        )


_PROPOSALS = "MetadataChangeProposal"


def _routes(key: str, value: object) -> dict[str, str]:
    routes = Read.mapping(key, value)
    if _PROPOSALS not in routes:
        other = [name for name in routes if name != "MetadataChangeEvent"]
        hint = Read.suggestion(other[0], [_PROPOSALS]) if other else ""
        raise SinkSettingsError(
            f"{key!r} in the connection's extra names no topic for {_PROPOSALS!r}.{hint}"
        )
    return {name: Read.text(f"{key}.{name}", topic) for name, topic in routes.items()}


def _unused(_key: str, value: object) -> object:
    return value


_KAFKA_CONNECTION: dict[str, _Reader] = {
    "bootstrap": Read.text,
    "schema_registry_url": Read.text,
    "schema_registry_config": Read.mapping,
    "producer_config": Read.mapping,
    "client_timeout_seconds": Read.seconds,
}
_KAFKA_FORM: dict[str, _Reader] = dict.fromkeys(
    (
        "schema_registry_url",
        "schema_registry_login",
        "schema_registry_password",
        "security_protocol",
        "sasl_mechanism",
        "ssl_private_key",
    ),
    Read.text,
)
_KAFKA_FORM_OPTIONS = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "ssl_private_key": "ssl.key.pem",
}
_KAFKA_EXTRA: dict[str, _Reader] = {
    **_KAFKA_FORM,
    "connection": Read.mapping,
    "topic_routes": _routes,
    # Of KafkaSinkConfig: the topic of an older kind of message; how long a full queue may block
    # (here the deadline limits it); another way for proposals that Kafka does not take (here they
    # are quarantined).
    "topic": _unused,
    "max_queue_full_block_seconds": _unused,
    "rest_fallback": _unused,
}

"""The settings of the Kafka sink, read from a ``datahub-kafka`` connection."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.delivery.connection import ConnectionParts
from airflow_provider_spark_datahub.delivery.connection_extra import (
    Reader,
    mapping,
    masked,
    nearest,
    read_extra,
    seconds,
    text,
)
from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError

DEFAULT_TOPIC = "MetadataChangeProposal_v1"
"""Where DataHub's metadata change consumer reads proposals, unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach the Kafka from which DataHub reads proposals. Its ``repr`` holds no secret.

    :param bootstrap: brokers, e.g. ``broker1:9092,broker2:9092``.
    :param schema_registry_url: of the registry that holds the schema of proposals; None for acryl-datahub's default:
        ``$KAFKA_SCHEMAREGISTRY_URL``, else the registry inside GMS on this machine.
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
    topic: str = DEFAULT_TOPIC

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> KafkaSettings:
        """The settings that an Airflow connection holds, as DataHub's own hook reads it.

        :param connection: ``host`` is the brokers, here or as ``connection.bootstrap`` in the extra; ``port`` that of
            the broker, where the host names one without it; ``login`` and ``password`` are ``sasl.username`` and
            ``sasl.password``, where ``producer_config`` does not give them; ``extra`` has the shape of acryl-datahub's
            ``KafkaSinkConfig``: ``connection`` with this class's other fields, and ``topic_routes``. What that class
            has for other purposes is accepted, and has no effect.
        :raises SinkSettingsError: where a part is missing, unknown or of the wrong type. Never holds a value that
            may be secret.
        """
        for key in connection.extra.keys() & _CONNECTION.keys():
            raise SinkSettingsError(f"{key!r} belongs into the object 'connection' in the connection's extra.")
        top = read_extra(connection.extra, _EXTRA)
        inner = read_extra(top.get("connection", {}), _CONNECTION, "extra, object 'connection'")
        bootstrap = _bootstrap(connection.host, connection.port, inner.pop("bootstrap", None))
        producer = _with_password(inner.pop("producer_config", {}), connection.login, connection.password)
        if str(producer.get("acks", producer.get("request.required.acks"))) == "0":
            raise SinkSettingsError("'acks' in producer_config must not be 0: Kafka would confirm nothing.")
        topic = top.get("topic_routes", {}).get(_PROPOSALS, DEFAULT_TOPIC)
        return cls(bootstrap=bootstrap, producer_config=producer, topic=topic, **inner)

    def redact(self, words: str) -> str:
        """``words`` without passwords, tokens and keys, should a server repeat them."""
        return masked(words, self._secrets())

    def _secrets(self) -> Iterator[str]:
        for options in (self.producer_config, self.schema_registry_config):
            for name, value in options.items():
                if isinstance(value, str) and _SECRET.search(name):
                    yield value
                    if name == "basic.auth.user.info":
                        yield value.partition(":")[2]
                elif isinstance(value, str) and "://" in value:
                    yield from _password_in(value)
        yield from _password_in(self.schema_registry_url or "")


_PROPOSALS = "MetadataChangeProposal"
_SECRET = re.compile(r"password|secret|token|user\.info|jaas|credential|\.pem$|oauthbearer\.config", re.IGNORECASE)


def _password_in(url: str) -> Iterator[str]:
    try:
        secret = urlsplit(url).password
    except ValueError:
        return
    if secret:
        yield secret


def _bootstrap(host: str | None, port: int | None, in_extra: str | None) -> str:
    brokers = (host or "").strip()
    if brokers and in_extra:
        raise SinkSettingsError("The brokers are given twice: as host, and as 'bootstrap' in the extra. Leave one out.")
    if brokers and port:
        brokers = f"{brokers}:{port}"
    if not (brokers or in_extra):
        raise SinkSettingsError("The connection has no host: give Kafka's brokers, e.g. broker1:9092,broker2:9092.")
    return brokers or str(in_extra)


def _with_password(producer: dict[str, Any], login: str | None, password: str | None) -> dict[str, Any]:
    for name, value in (("sasl.username", login), ("sasl.password", password)):
        if value and name in producer:
            raise SinkSettingsError(f"{name!r} is given twice: in producer_config, and as a field of the connection.")
    if not (login or password):
        return producer
    if "security.protocol" not in producer:
        raise SinkSettingsError(
            "The connection has a login or a password, but 'producer_config' in its extra names no "
            "'security.protocol' that uses them: e.g. SASL_SSL, with its 'sasl.mechanism'."
        )
    given = {"sasl.username": login, "sasl.password": password}
    return {**producer, **{name: value for name, value in given.items() if value}}


def _routes(key: str, value: object) -> dict[str, str]:
    routes = mapping(key, value)
    if _PROPOSALS not in routes:
        other = [name for name in routes if name != "MetadataChangeEvent"]
        hint = nearest(other[0], [_PROPOSALS]) if other else ""
        raise SinkSettingsError(f"{key!r} in the connection's extra names no topic for {_PROPOSALS!r}.{hint}")
    return {name: text(f"{key}.{name}", topic) for name, topic in routes.items()}


def _unused(_key: str, value: object) -> object:
    return value


_CONNECTION: dict[str, Reader] = {
    "bootstrap": text,
    "schema_registry_url": text,
    "schema_registry_config": mapping,
    "producer_config": mapping,
    "client_timeout_seconds": seconds,
}
_EXTRA: dict[str, Reader] = {
    "connection": mapping,
    "topic_routes": _routes,
    # Of KafkaSinkConfig: the topic of an older kind of message; how long a full queue may block (the deadline says it
    # here); another way for proposals that Kafka does not take (those are quarantined here).
    "topic": _unused,
    "max_queue_full_block_seconds": _unused,
    "rest_fallback": _unused,
}

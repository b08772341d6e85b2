"""Settings of the Kafka sink, from a ``datahub-kafka`` connection.

Tests: ``tests/delivery/test_connections.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_spark_datahub.delivery.connection import ConnectionParts, Read, Reader, give, mask_secrets
from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError

_DEFAULT_TOPIC = "MetadataChangeProposal_v1"  # where DataHub's metadata change consumer reads proposals by default


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Settings to reach the Kafka from which DataHub reads proposals. Their ``repr`` holds no secret.

    :param bootstrap: brokers, e.g. ``broker1:9092,broker2:9092``.
    :param schema_registry_url: of the registry that holds the schema of proposals; ``None`` for acryl-datahub's
        default: ``$KAFKA_SCHEMAREGISTRY_URL``, else the registry inside GMS on this machine.
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

        :param connection: ``host`` names the brokers, or ``connection.bootstrap`` in the extra does; ``port`` is the
            port of a single broker that is named without one; ``login`` and ``password`` are ``sasl.username`` and
            ``sasl.password``, unless ``producer_config`` sets them. ``extra`` has the shape of acryl-datahub's
            ``KafkaSinkConfig``: ``connection`` with this class's other fields, and ``topic_routes``. Other options of
            ``KafkaSinkConfig`` are accepted without effect. The fields of Airflow's form are beside ``connection``;
            they are flat, and Airflow hides the secret ones by their names.
        :raises SinkSettingsError: if a part is missing, unknown or of the wrong type. It never holds a secret.
        """
        for key in connection.extra.keys() & (_CONNECTION.keys() - _FORM.keys()):
            raise SinkSettingsError(f"{key!r} belongs into the object 'connection' in the connection's extra.")
        top = Read.extra(connection.extra, _EXTRA)
        inner = Read.extra(top.get("connection", {}), _CONNECTION, "extra, object 'connection'")
        producer, registry = inner.setdefault("producer_config", {}), inner.setdefault("schema_registry_config", {})
        brokers = (connection.host or "").strip()
        give(inner, "bootstrap", f"{brokers}:{connection.port}" if brokers and connection.port else brokers, "host")
        if "bootstrap" not in inner:
            raise SinkSettingsError("The connection has no host: give Kafka's brokers, e.g. broker1:9092,broker2:9092.")
        give(inner, "schema_registry_url", top.get("schema_registry_url"), "field 'schema_registry_url'")
        if "schema_registry_password" in top:
            user = f"{top.get('schema_registry_login', '')}:{top['schema_registry_password']}"
            give(registry, "basic.auth.user.info", user, "field 'schema_registry_password'")
        for name, option in _FORM_OPTIONS.items():
            give(producer, option, top.get(name), f"field {name!r}")
        give(producer, "sasl.username", connection.login, "login")
        give(producer, "sasl.password", connection.password, "password")
        if (connection.login or connection.password) and "security.protocol" not in producer:
            raise SinkSettingsError(
                "The connection has a login or a password, but 'producer_config' in its extra names no "
                "'security.protocol' that uses them: e.g. SASL_SSL, with its 'sasl.mechanism'."
            )
        if str(producer.get("acks", producer.get("request.required.acks"))) == "0":
            raise SinkSettingsError("'acks' in producer_config must not be 0: Kafka would confirm nothing.")
        return cls(topic=top.get("topic_routes", {}).get(_PROPOSALS, _DEFAULT_TOPIC), **inner)

    def redact(self, text: str) -> str:
        """Return ``text`` without passwords, tokens and keys, in case a server repeats them."""
        return mask_secrets(text, [self.producer_config, self.schema_registry_config, self.schema_registry_url])


_PROPOSALS = "MetadataChangeProposal"


def _routes(key: str, value: object) -> dict[str, str]:
    routes = Read.mapping(key, value)
    if _PROPOSALS not in routes:
        other = [name for name in routes if name != "MetadataChangeEvent"]
        hint = Read.suggestion(other[0], [_PROPOSALS]) if other else ""
        raise SinkSettingsError(f"{key!r} in the connection's extra names no topic for {_PROPOSALS!r}.{hint}")
    return {name: Read.text(f"{key}.{name}", topic) for name, topic in routes.items()}


def _unused(_key: str, value: object) -> object:
    return value


_CONNECTION: dict[str, Reader] = {
    "bootstrap": Read.text,
    "schema_registry_url": Read.text,
    "schema_registry_config": Read.mapping,
    "producer_config": Read.mapping,
    "client_timeout_seconds": Read.seconds,
}
_FORM: dict[str, Reader] = dict.fromkeys(
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
_FORM_OPTIONS = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "ssl_private_key": "ssl.key.pem",
}
_EXTRA: dict[str, Reader] = {
    **_FORM,
    "connection": Read.mapping,
    "topic_routes": _routes,
    # Of KafkaSinkConfig: the topic of an older kind of message; how long a full queue may block (here the deadline
    # limits it); another way for proposals that Kafka does not take (here they are quarantined).
    "topic": _unused,
    "max_queue_full_block_seconds": _unused,
    "rest_fallback": _unused,
}

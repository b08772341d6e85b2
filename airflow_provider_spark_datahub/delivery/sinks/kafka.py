"""The settings of the Kafka sink, read from a ``datahub-kafka`` connection.

The Kafka sink: proposals to the topic from which DataHub ingests them.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.delivery.connection import (
    ConnectionParts,
    Reader,
    mapping,
    masked,
    nearest,
    read_extra,
    seconds,
    text,
)
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind
from airflow_provider_spark_datahub.delivery.sink import (
    DeliveryRecord,
    Finding,
    Numbered,
    Sink,
    SinkSettingsError,
    Verdict,
)

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sinks.kafka_transport import KafkaClient

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


_REMEDY = "set its login and password, or sasl.* in producer_config"


class KafkaSink(Sink):
    """Delivers through Kafka, in the messages of acryl-datahub's emitter, by an idempotent producer.

    The key of a message is its entity's URN, so an entity's proposals keep their order. A proposal counts as delivered
    once the brokers acknowledged it and all before it of the same entity; DataHub reads it later, so it is *accepted*,
    not stored. Where brokers refuse a batch, its proposals are sent once more, each in a batch of its own: only then
    does a refusal say something of the proposal, and only then is it rejected.

    :raises SinkSettingsError: Kafka's client is not installed.
    """

    name: ClassVar[str] = "kafka"

    def __init__(self, settings: KafkaSettings) -> None:
        if find_spec("confluent_kafka") is None:
            raise SinkSettingsError(
                "Kafka's client is not installed: pip install 'airflow-provider-spark-datahub[kafka]'."
            )
        self._settings = settings

    def describe(self) -> str:
        """``Kafka at BROKERS (topic TOPIC)``."""
        return f"Kafka at {self._settings.bootstrap} (topic {self._settings.topic})"

    def check(self, deadline: Deadline) -> list[Finding]:
        """Whether brokers and registry answer, with these credentials, and the topic is there."""
        from airflow_provider_spark_datahub.delivery.sinks.kafka_transport import KafkaClient, SetupError

        try:
            with KafkaClient(self._settings, deadline, alone=False) as client:
                failure = client.look()
        except SetupError as error:
            failure = error.failure
        if failure is not None:
            return [Finding("DataHub", Verdict.BAD, f"{self.describe()} {failure.verdict(_REMEDY)}")]
        return [Finding("DataHub", Verdict.GOOD, f"{self.describe()} answers, and so does the schema registry")]

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send all together, then alone what was refused. The producers are of this call alone."""
        from airflow_provider_spark_datahub.delivery.sinks.kafka_transport import KafkaClient, SetupError

        for alone in (False, True):
            if not record.pending():
                return
            try:
                with KafkaClient(self._settings, deadline, alone=alone) as client:
                    failure = client.reach() or self._send_all(client, record, deadline, alone=alone)
            except SetupError as error:
                failure = error.failure
            if failure is not None:
                record.stop(f"{self.describe()} {failure.verdict(_REMEDY)}.")
                return

    def _send_all(
        self, client: KafkaClient, record: DeliveryRecord, deadline: Deadline, *, alone: bool
    ) -> Failure | None:
        """Send what is pending and wait for the reports; what is refused stays pending unless it was ``alone``.

        :returns: why it is of no use to go on; None where there is no such reason.
        """
        reports = _Reports(record, alone=alone)
        for item in record.pending():
            reports.expect(item)
            failure = client.produce(item[1], partial(reports.tell, item))
            if failure is not None:
                reports.refuse(item, failure)
            if reports.failure is not None:
                return reports.failure
        while client.outstanding and not deadline.expired:
            client.poll()
        return reports.failure


class _Reports:
    """What Kafka reports of messages, turned into acknowledgements that keep the order within each entity.

    Would a later proposal of an entity count as delivered while an earlier one stays pending, the earlier one would
    overwrite it when it is sent again.

    :param alone: a refusal is about the proposal.
    :ivar failure: why a message was not delivered, where that was no refusal; the first one.
    """

    def __init__(self, record: DeliveryRecord, *, alone: bool) -> None:
        self.failure: Failure | None = None
        self._record = record
        self._alone = alone
        self._waiting: dict[str, deque[Numbered]] = defaultdict(deque)
        self._acknowledged: set[int] = set()

    def expect(self, item: Numbered) -> None:
        """``item`` is sent after all that were expected before."""
        self._waiting[item[1].entity_urn].append(item)

    def refuse(self, item: Numbered, failure: Failure) -> None:
        """The client did not even send ``item``."""
        if failure.kind is FailureKind.REJECTED:
            self._reject(item, failure)
        else:
            self.failure = self.failure or failure

    def tell(self, item: Numbered, failure: Failure | None) -> None:
        """What became of ``item``, which was sent."""
        if failure is None:
            self._acknowledged.add(item[0])
            self._confirm(item[1].entity_urn)
        elif self._alone or failure.kind is not FailureKind.REJECTED:
            self.refuse(item, failure)

    def _reject(self, item: Numbered, failure: Failure) -> None:
        self._record.reject(item, failure.words)
        self._waiting[item[1].entity_urn].remove(item)
        self._confirm(item[1].entity_urn)

    def _confirm(self, entity_urn: str) -> None:
        queue = self._waiting[entity_urn]
        while queue and queue[0][0] in self._acknowledged:
            self._record.confirm([queue.popleft()], stored=False)

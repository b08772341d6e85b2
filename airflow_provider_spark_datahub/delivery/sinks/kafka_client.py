"""Kafka client of one delivery: writes messages as acryl-datahub's emitter does, and classifies
failures.

It imports confluent-kafka; import this module only when something is about to be sent.

Tests: ``tests/delivery/test_kafka.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pydantic
from confluent_kafka import KafkaError, KafkaException, SerializingProducer
from confluent_kafka.error import KeySerializationError, ValueSerializationError
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext, StringSerializer
from datahub.configuration.common import ConfigurationError
from datahub.configuration.kafka import KafkaProducerConnectionConfig
from datahub.metadata.schema_classes import GenericAspectClass, MetadataChangeProposalClass
from datahub.metadata.schemas import getMetadataChangeProposalSchema

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import (
    Failure,
    FailureKind,
    LibraryError,
    call_library,
)
from airflow_provider_spark_datahub.delivery.sinks.settings import KafkaSettings

log = logging.getLogger(__name__)

# seconds before the deadline at which Kafka's clients give up, so that they can report the reason
_LAST_MOMENT = 0.3
_POLL_SECONDS = 0.2
_LONGEST_SEARCH_FOR_A_TOPIC = 10.0

_Report = Callable[[Failure | None], None]
"""Called once per message: with ``None`` if Kafka acknowledged it."""


class KafkaClient:
    """Producer of proposals to a topic until a deadline, which reports on each once.

    Unlike acryl-datahub's own emitter, it closes its connections to the registry, and waits for it
    for a limited time.

    :param alone: each message is a batch of its own. A broker takes or refuses a batch as a whole,
        so only then is a refusal about the message.
    """

    def __init__(self, settings: KafkaSettings, deadline: Deadline, *, alone: bool) -> None:
        self._settings = settings
        self._deadline = deadline
        self._trouble: Failure | None = None
        self._unusable: Failure | None = None
        """Why there is no producer: the settings name an unknown option, a certificate that is
        missing ...
        """
        self._open = ExitStack()
        try:
            connection = self._connection(alone)
            registry = {"url": connection.schema_registry_url, **connection.schema_registry_config}
            self._registry = self._open.enter_context(SchemaRegistryClient(registry))
            self._serializer = AvroSerializer(
                self._registry, getMetadataChangeProposalSchema(), to_dict=_avro_form
            )
            self._producer = SerializingProducer(
                {
                    "bootstrap.servers": connection.bootstrap,
                    "key.serializer": StringSerializer("utf_8"),
                    "value.serializer": self._serializer,
                    **connection.producer_config,
                }
            )
        except pydantic.ValidationError as error:
            details = "; ".join(
                f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()
            )
            self._unusable = self._failure(FailureKind.MISCONFIGURED, details)
        except (KafkaException, ConfigurationError, ValueError, TypeError, OSError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            self._unusable = self._failure(FailureKind.MISCONFIGURED, text)

    def wait_until_ready(self) -> Failure | None:
        """Wait until a broker and the registry answer; return ``None`` once both do."""
        failure = self._unusable or self._repeat(self._ask_brokers)
        return failure or self._repeat(self._serialise_probe, self._registry_seconds)

    def probe(self) -> Failure | None:
        """Check that brokers and registry answer and that the topic exists, without writing
        anything.
        """
        failure = self._unusable or self._repeat(self._ask_brokers) or self._missing_topic()
        return failure or self._repeat(
            lambda: self._of_registry(self._registry.get_subjects), self._registry_seconds
        )

    def produce(self, proposal: Proposal, report: _Report) -> Failure | None:
        """Queue a message; return ``None`` if it is on its way and ``report`` will be called."""

        def delivered(error: KafkaError | None, _message: object) -> None:
            report(None if error is None else self._failure_of(error))

        while True:
            if self._deadline.expired:
                return self._failure(FailureKind.UNAVAILABLE, "no time is left")
            try:
                self._producer.produce(
                    topic=self._settings.topic,
                    key=proposal.entity_urn,
                    value=_to_mcp(proposal),
                    on_delivery=delivered,
                )
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
            except KeySerializationError as error:
                return self._failure(FailureKind.REJECTED, f"Kafka cannot carry its URN: {error}")
            except ValueSerializationError as error:
                return self._failure(
                    FailureKind.REJECTED, f"it does not fit DataHub's Avro schema: {error}"
                )
            except KafkaException as error:
                return self._failure_of(error.args[0])
            else:
                self._producer.poll(0)
                return None

    def poll(self) -> None:
        """Wait for reports, and pass them on."""
        self._producer.poll(min(_POLL_SECONDS, self._deadline.remaining()))

    @property
    def outstanding(self) -> int:
        """The number of messages without a report."""
        return len(self._producer)

    def close(self) -> None:
        """Drop the messages without a report, and close the connections."""
        if self._unusable is None:
            self._producer.purge()
            self._producer.poll(0)
        self._open.close()

    def _repeat(self, ask: Callable[[], Failure | None], seconds: float = 0.0) -> Failure | None:
        """Ask until there is an answer or no time for another one. :param seconds: that an answer
        may take.
        """
        attempt = 1
        while (
            (failure := ask()) is not None
            and failure.kind is FailureKind.UNAVAILABLE
            and self._left() > seconds
        ):
            log.debug("Kafka is not ready, attempt %d: %s", attempt, failure.text)
            self._producer.poll(_POLL_SECONDS)
            attempt += 1
        return failure

    def _ask_brokers(self) -> Failure | None:
        try:
            self._producer.list_topics(self._settings.topic, timeout=min(1.0, self._left()))
        except KafkaException as error:
            self._producer.poll(0)  # passes on the errors of the brokers' threads
            return self._trouble or self._failure_of(error.args[0])
        self._trouble = None
        return None

    def _missing_topic(self) -> Failure | None:
        topic = self._settings.topic
        try:
            error = (
                self._producer.list_topics(topic, timeout=max(0.1, self._left()))
                .topics[topic]
                .error
            )
        except KafkaException as failed:
            error = failed.args[0]
        return None if error is None else self._failure_of(error)

    def _serialise_probe(self) -> Failure | None:
        """Serialise a proposal that certainly fits the schema.

        A failure here is the registry's, a later one is about a proposal. The serialiser asks the
        registry only once.
        """
        context = SerializationContext(self._settings.topic, MessageField.VALUE)
        return self._of_registry(lambda: self._serializer(_to_mcp(_PROBE), context))

    def _of_registry(self, ask: Callable[[], object]) -> Failure | None:
        try:
            call_library(ask, SchemaRegistryError, ValueError, TypeError)
        except SchemaRegistryError as error:
            kind = _REGISTRY_KINDS.get(error.http_status_code, FailureKind.UNAVAILABLE)
            return self._failure(kind, f"its schema registry: {error}")
        except (ValueError, TypeError) as error:
            return self._failure(FailureKind.MISCONFIGURED, f"its schema registry: {error}")
        except LibraryError as error:
            return self._failure(FailureKind.UNAVAILABLE, f"its schema registry: {error}")
        return None

    def _left(self) -> float:
        return max(0.0, self._deadline.remaining() - _LAST_MOMENT)

    def _connection(self, alone: bool) -> KafkaProducerConnectionConfig:
        settings = self._settings
        registry = {**settings.schema_registry_config, "max.retries": 0}
        timeout = registry.get("timeout") or settings.client_timeout_seconds
        # If one request gets no answer, there is time for another.
        registry["timeout"] = self._registry_seconds = max(
            0.1, min(float(timeout), self._left() / 4)
        )
        address: dict[str, Any] = (
            {}
            if settings.schema_registry_url is None
            else {"schema_registry_url": settings.schema_registry_url}
        )
        # This class finds the registry's default address, and the function that `oauth_cb` names.
        return KafkaProducerConnectionConfig(
            bootstrap=settings.bootstrap,
            schema_registry_config=registry,
            producer_config=self._producer_config(alone),
            **address,
        )

    def _producer_config(self, alone: bool) -> dict[str, Any]:
        options = dict(self._settings.producer_config)
        left_ms = max(1, int(self._left() * 1000))
        for name in ("message.timeout.ms", "delivery.timeout.ms"):
            if str(options.get(name, "")).isdecimal():
                left_ms = min(left_ms, int(options.pop(name)) or left_ms)
        defaults: dict[str, Any] = {
            "message.timeout.ms": left_ms,
            "topic.metadata.propagation.max.ms": max(
                1, int(min(_LONGEST_SEARCH_FOR_A_TOPIC * 1000, left_ms / 2))
            ),
            # our own answer reports failed connections; librdkafka would log them twice a second
            "log_level": 2,
            # the default of 10 s is a third of a task's time for lineage
            "reconnect.backoff.max.ms": 1000,
        }
        if not options.keys() & _EXCLUDES_IDEMPOTENCE:
            defaults["enable.idempotence"] = True
        ours: dict[str, Any] = {"error_cb": self._on_trouble, "logger": log}
        if alone:
            ours["batch.num.messages"] = 1
        return {**defaults, **options, **ours}

    def _on_trouble(self, error: KafkaError) -> None:
        """Remember why a connection failed, since the report of a message only names a timeout."""
        failure = self._failure_of(error)
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._trouble is None:
            self._trouble = failure

    def _failure(self, kind: FailureKind, text: str) -> Failure:
        return Failure(kind, text).for_log(self._settings.redact)

    def _failure_of(self, error: KafkaError) -> Failure:
        if error.code() == KafkaError._MSG_TIMED_OUT and self._trouble is not None:
            return self._trouble
        return self._failure(FailureKind.from_kafka_error(error), error.str())


_PROBE = Proposal("dataFlow", "urn:li:dataFlow:(spark,probe,PROD)", "status", {"removed": False})


def _to_mcp(proposal: Proposal) -> MetadataChangeProposalClass:
    """Return a proposal as DataHub's generated class.

    The aspect stays JSON: parsing it would drop fields that an older acryl-datahub does not know.
    """
    return MetadataChangeProposalClass(
        entityType=proposal.entity_type,
        entityUrn=proposal.entity_urn,
        changeType=proposal.change_type,
        aspectName=proposal.aspect_name,
        aspect=GenericAspectClass(proposal.encoded_value, proposal.content_type),
    )


def _avro_form(mcp: MetadataChangeProposalClass, _context: SerializationContext) -> dict[str, Any]:
    """Return what acryl-datahub's emitter serialises."""
    form: dict[str, Any] = mcp.to_obj(tuples=True)
    return form


_EXCLUDES_IDEMPOTENCE = {
    "enable.idempotence",
    "acks",
    "request.required.acks",
    "retries",
    "message.send.max.retries",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "queuing.strategy",
}
"""Options that librdkafka may refuse beside idempotence: if the connection sets one, it decides."""

_REGISTRY_KINDS = {
    401: FailureKind.UNAUTHORISED,
    403: FailureKind.UNAUTHORISED,
    404: FailureKind.MISCONFIGURED,
    405: FailureKind.MISCONFIGURED,
    # the topic has a schema that is not compatible with a proposal's
    409: FailureKind.MISCONFIGURED,
    422: FailureKind.MISCONFIGURED,
}

"""One delivery through a transport of openlineage-python, and what its failures mean.

Imports openlineage-python's client at once; import this module where something is about to be sent.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import requests
from openlineage.client.serde import Serde
from openlineage.client.transport import get_default_factory
from openlineage.client.transport.kafka import KafkaTransport

from airflow_provider_spark_datahub.conversion import as_object
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import (
    Failure,
    FailureKind,
    ThirdPartyError,
    kind_of_status,
    one_line,
    third_party,
)
from airflow_provider_spark_datahub.delivery.sinks.openlineage import OpenLineageSettings

_ONE_ATTEMPT = {"total": 0, "connect": 0, "read": 0, "status_forcelist": []}
_POLL_SECONDS = 0.1


class SetupError(Exception):
    """A transport that cannot be made from its configuration."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.words)
        self.failure = failure


class EventTransport:
    """Emits events until a deadline, each in one attempt.

    :raises SetupError: the configuration lacks something, or names a type that is not there.
    """

    def __init__(self, settings: OpenLineageSettings, deadline: Deadline) -> None:
        self._settings = settings
        self._deadline = deadline
        try:
            config = _strict(settings.transport, deadline)
            self._transport = third_party(lambda: get_default_factory().create(config))
        except (ThirdPartyError, TypeError, ValueError) as error:
            raise SetupError(self._failure(FailureKind.MISCONFIGURED, str(error))) from error

    def emit(self, event: Mapping[str, Any]) -> Failure | None:
        """Send one event; None where the backend acknowledged it."""
        if self._deadline.expired:
            return self._failure(FailureKind.UNAVAILABLE, "no time is left")
        try:
            if isinstance(self._transport, KafkaTransport):
                return self._produce(self._transport, event)
            # Its annotation names openlineage-python's classes; what it does takes a dict as well.
            emit: Any = self._transport.emit
            third_party(lambda: emit(dict(event)), requests.HTTPError)
        except requests.HTTPError as error:
            return self._refusal(error)
        except ThirdPartyError as error:
            return self._failure(FailureKind.UNAVAILABLE, str(error))
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._transport, KafkaTransport) and self._transport.producer is not None:
            self._transport.producer.purge()
        # What arrived is known by now.
        with suppress(ThirdPartyError):
            third_party(lambda: self._transport.close(0))

    def _produce(self, transport: KafkaTransport, event: Mapping[str, Any]) -> Failure | None:
        """What the transport does, with a look at what became of the message: it only logs that."""
        from confluent_kafka import KafkaException

        from airflow_provider_spark_datahub.delivery.failure import kind_of_kafka_error

        producer: Any = transport.producer
        reports: list[Any] = []
        message = {
            "topic": transport.topic,
            "key": transport.message_key or _key(event),
            "value": Serde.to_json(dict(event)).encode(),
        }
        try:
            third_party(
                lambda: producer.produce(**message, on_delivery=lambda error, _message: reports.append(error)),
                KafkaException,
            )
            while not reports:
                if self._deadline.expired:
                    return self._failure(FailureKind.UNAVAILABLE, "Kafka did not acknowledge an event in time")
                third_party(lambda: producer.poll(_POLL_SECONDS), KafkaException)
        except KafkaException as error:
            reports = [error.args[0]]
        return None if reports[0] is None else self._failure(kind_of_kafka_error(reports[0]), reports[0].str())

    def _refusal(self, error: requests.HTTPError) -> Failure:
        answer = error.response
        if answer is None:
            return self._failure(FailureKind.UNAVAILABLE, str(error))
        status = answer.status_code
        kind = kind_of_status(status)
        return self._failure(kind, f"HTTP {status}: {answer.text.strip() or answer.reason}")

    def _failure(self, kind: FailureKind, words: str) -> Failure:
        return Failure(kind, one_line(self._settings.redact(words)))


def _strict(config: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
    """The configuration such that no failure is hidden or outlasts the deadline."""
    strict = copy.deepcopy(dict(config))
    match strict.get("type"):
        case "http":
            strict["retry"] = {**strict.get("retry", {}), **_ONE_ATTEMPT}
            strict["timeout"] = min(float(strict.get("timeout") or 5.0), max(0.1, deadline.remaining() / 2))
        case "kafka" if isinstance(strict.get("config"), dict):
            left = max(1, int(deadline.remaining() * 1000) - 300)
            strict["config"] = {"enable.idempotence": True, "log_level": 2, "message.timeout.ms": left} | strict[
                "config"
            ]
        case "composite":
            inner = strict.get("transports") or []
            named = [{**one, "name": name} for name, one in inner.items()] if isinstance(inner, dict) else inner
            strict["transports"] = [_strict(one, deadline) for one in named]
            strict["continue_on_failure"] = False  # else it only logs what one of them failed by
    return strict


def _key(event: Mapping[str, Any]) -> str:
    """The key that openlineage-python gives a run event: one for all runs below the same root job, in order."""
    parent = as_object(as_object(as_object(event.get("run")).get("facets")).get("parent"))
    jobs = (as_object(parent.get("root")).get("job"), parent.get("job"), event.get("job"))
    job = next(filter(None, map(as_object, jobs)), {})
    return f"run:{job.get('namespace')}/{job.get('name')}"

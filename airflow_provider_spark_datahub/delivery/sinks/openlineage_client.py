"""Transport of openlineage-python for one delivery, with one attempt per event and classified failures.

It imports openlineage-python's client; import this module only when something is about to be sent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import requests
from openlineage.client.serde import Serde
from openlineage.client.transport import Transport, get_default_factory
from openlineage.client.transport.composite import CompositeTransport
from openlineage.client.transport.http import HttpTransport
from openlineage.client.transport.kafka import KafkaTransport
from openlineage.client.transport.noop import NoopTransport

from airflow_provider_spark_datahub.conversion import as_object
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind, LibraryError, SetupError, call_library
from airflow_provider_spark_datahub.delivery.sink import RawEvent
from airflow_provider_spark_datahub.delivery.sinks.http_adapter import BoundedAdapter, failure_of
from airflow_provider_spark_datahub.delivery.sinks.openlineage_settings import OpenLineageSettings

_ONE_ATTEMPT = {"total": 0, "connect": 0, "read": 0, "status_forcelist": []}
_POLL_SECONDS = 0.1


class EventTransport:
    """Transport that emits events until a deadline, each in one attempt.

    :raises SetupError: if the configuration is incomplete, or names an unknown type.
    """

    def __init__(self, settings: OpenLineageSettings, deadline: Deadline) -> None:
        self._settings = settings
        self._deadline = deadline
        try:
            config = _strict(settings.transport, deadline)
            self._transport = call_library(lambda: get_default_factory().create(config))
        except (LibraryError, TypeError, ValueError) as error:
            raise SetupError(self._failure(FailureKind.MISCONFIGURED, str(error))) from error
        if isinstance(self._transport, NoopTransport) and config.get("type") != NoopTransport.kind:
            text = "the environment variable OPENLINEAGE_DISABLED is true: openlineage-python would discard the events"
            raise SetupError(self._failure(FailureKind.MISCONFIGURED, text))
        for http in _http_transports(self._transport):
            http.session.mount(http.url, BoundedAdapter(deadline))

    def post(self, events: Sequence[RawEvent]) -> bool | Failure:
        """Send one event; return True if the backend acknowledged it."""
        event = dict(events[0].decoded())
        if self._deadline.expired:
            return self._failure(FailureKind.UNAVAILABLE, "no time is left")
        try:
            if isinstance(self._transport, KafkaTransport):
                return self._produce(self._transport, event) or True
            # Its annotation names openlineage-python's classes, but it takes a dict as well.
            emit: Any = self._transport.emit
            call_library(lambda: emit(event), requests.RequestException)
        except requests.RequestException as error:
            return failure_of(error).for_log(self._settings.redact)
        except LibraryError as error:
            return self._failure(FailureKind.UNAVAILABLE, str(error))
        return True

    def close(self) -> None:
        """Close the transport without waiting: the outcome of every event is known."""
        if isinstance(self._transport, KafkaTransport) and self._transport.producer is not None:
            self._transport.producer.purge()
        with suppress(LibraryError):
            call_library(lambda: self._transport.close(0))

    def _produce(self, transport: KafkaTransport, event: dict[str, Any]) -> Failure | None:
        """Do what the transport does, but wait for the outcome, which the transport only logs."""
        from confluent_kafka import KafkaException

        producer: Any = transport.producer
        reports: list[Any] = []
        message = {
            "topic": transport.topic,
            "key": transport.message_key or _key(event),
            "value": Serde.to_json(event).encode(),
        }
        try:
            call_library(
                lambda: producer.produce(**message, on_delivery=lambda error, _message: reports.append(error)),
                KafkaException,
            )
            while not reports:
                if self._deadline.expired:
                    return self._failure(FailureKind.UNAVAILABLE, "Kafka did not acknowledge an event in time")
                call_library(lambda: producer.poll(_POLL_SECONDS), KafkaException)
        except KafkaException as error:
            reports = list(error.args)
        report = reports[0]
        return None if report is None else self._failure(FailureKind.from_kafka_error(report), report.str())

    def _failure(self, kind: FailureKind, text: str) -> Failure:
        return Failure(kind, text).for_log(self._settings.redact)


def _http_transports(transport: Transport) -> Iterator[HttpTransport]:
    if isinstance(transport, HttpTransport):
        yield transport
    elif isinstance(transport, CompositeTransport):
        for inner in transport.transports:
            yield from _http_transports(inner)
    elif isinstance(inside := getattr(transport, "transport", None), Transport):  # of `transform`
        yield from _http_transports(inside)


def _strict(config: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
    """Return the configuration with which no failure is hidden, and none outlasts the deadline."""
    strict = copy.deepcopy(dict(config))
    match strict.get("type"):
        case "http":
            strict["retry"] = {**strict.get("retry", {}), **_ONE_ATTEMPT}
            strict["timeout"] = min(float(strict.get("timeout") or 5.0), max(0.1, deadline.remaining() / 2))
        case "kafka" | "msk-iam" if isinstance(strict.get("config"), dict):
            left = max(1, int(deadline.remaining() * 1000) - 300)
            strict["config"] = {"enable.idempotence": True, "log_level": 2, "message.timeout.ms": left} | strict[
                "config"
            ]
        case "composite":
            nested = strict.get("transports") or []
            named = [{**inner, "name": name} for name, inner in nested.items()] if isinstance(nested, dict) else nested
            strict["transports"] = [_strict(inner, deadline) for inner in named]
            strict["continue_on_failure"] = False  # else it only logs their failures
        case "transform" if isinstance(strict.get("transport"), dict):
            strict["transport"] = _strict(strict["transport"], deadline)
    return strict


def _key(event: Mapping[str, Any]) -> str:
    """Return the key that openlineage-python gives a run event: all runs below the same root job share it."""
    parent = as_object(as_object(as_object(event.get("run")).get("facets")).get("parent"))
    jobs = (as_object(parent.get("root")).get("job"), parent.get("job"), event.get("job"))
    job = next(filter(None, map(as_object, jobs)), {})
    return f"run:{job.get('namespace')}/{job.get('name')}"

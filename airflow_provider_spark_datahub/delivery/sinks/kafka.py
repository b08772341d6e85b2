"""Kafka sink: proposals to the topic from which DataHub ingests them."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind
from airflow_provider_spark_datahub.delivery.sink import (
    CheckResult,
    CheckStatus,
    DeliveryRecord,
    NumberedItem,
    Sink,
    SinkSettingsError,
)
from airflow_provider_spark_datahub.delivery.sinks.settings import KafkaSettings
from airflow_provider_spark_datahub.foundation.text import counted

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sinks.kafka_client import KafkaClient

log = logging.getLogger(__name__)

_REMEDY = "set its login and password, or sasl.* in producer_config"


class KafkaSink(Sink):
    """Sink that delivers through Kafka, in the messages of acryl-datahub's emitter, by an
    idempotent producer.

    The key of a message is its entity's URN, so an entity's proposals keep their order. A proposal
    counts as accepted once the brokers have acknowledged it and all earlier ones of its entity. If
    they refuse a batch, each of its proposals is sent alone, and rejected if it is refused again.

    :raises SinkSettingsError: if Kafka's client is not installed.
    """

    name: ClassVar[str] = "kafka"

    def __init__(self, settings: KafkaSettings) -> None:
        if find_spec("confluent_kafka") is None:
            raise SinkSettingsError(
                "Kafka's client is not installed: pip install 'airflow-provider-spark-datahub[kafka]'."
            )
        self._settings = settings

    def describe(self) -> str:
        """Return ``Kafka at BROKERS (topic TOPIC)``."""
        return f"Kafka at {self._settings.bootstrap} (topic {self._settings.topic})"

    def check(self, deadline: Deadline) -> list[CheckResult]:
        """Check that brokers and registry answer with these credentials, and that the topic exists."""
        with closing(self._open_client(deadline, alone=False)) as client:
            failure = client.probe()
        if failure is not None:
            return [
                CheckResult(
                    "DataHub", CheckStatus.BAD, f"{self.describe()} {failure.predicate(_REMEDY)}"
                )
            ]
        return [
            CheckResult(
                "DataHub",
                CheckStatus.GOOD,
                f"{self.describe()} answers, and so does the schema registry",
            )
        ]

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send all proposals together, then each refused one alone. The producers are used by this
        call only.
        """
        for alone in (False, True):
            pending = len(record.pending())
            if not pending:
                return
            with closing(self._open_client(deadline, alone=alone)) as client:
                failure = client.wait_until_ready() or self._send_all(
                    client, record, deadline, alone=alone
                )
            log.debug(
                "Kafka topic %s, %s: %d of %s acknowledged or rejected (%s)",
                self._settings.topic,
                "one by one" if alone else "in batches",
                pending - len(record.pending()),
                counted(pending, "proposal"),
                failure.kind.name if failure else "no failure",
            )
            if failure is not None:
                record.stop(
                    f"{self.describe()} {failure.predicate(_REMEDY)}.", failure.kind.outage_after
                )
                return

    def _open_client(self, deadline: Deadline, *, alone: bool) -> KafkaClient:
        from airflow_provider_spark_datahub.delivery.sinks.kafka_client import KafkaClient

        return KafkaClient(self._settings, deadline, alone=alone)

    def _send_all(
        self, client: KafkaClient, record: DeliveryRecord, deadline: Deadline, *, alone: bool
    ) -> Failure | None:
        """Send the pending proposals and wait for the reports. A refused one stays pending unless
        it was ``alone``.

        :returns: why going on is useless; ``None`` if it may help.
        """
        reports = _Reports(record)
        for numbered in record.pending():
            reports.expect(numbered)
            failure = client.produce(
                numbered[1], partial(reports.receive, numbered, is_certain=alone)
            )
            if failure is not None:
                reports.receive(numbered, failure, is_certain=True)
            if reports.failure is not None:
                return reports.failure
        while client.outstanding and not deadline.expired:
            client.poll()
        return reports.failure


class _Reports:
    """Kafka's reports on messages, turned into acknowledgements that keep the order within each
    entity.

    If a later proposal of an entity counted as delivered while an earlier one stays pending, the
    earlier one would overwrite it when it is sent again.

    :ivar failure: why a message was not delivered, if it was not refused; the first one.
    """

    def __init__(self, record: DeliveryRecord) -> None:
        self.failure: Failure | None = None
        self._record = record
        self._expected = defaultdict[str, deque[NumberedItem]](deque)
        self._acknowledged = set[int]()

    def expect(self, numbered: NumberedItem) -> None:
        self._expected[numbered[1].entity_urn].append(numbered)

    def receive(self, numbered: NumberedItem, failure: Failure | None, *, is_certain: bool) -> None:
        """Record the report on a proposal. :param is_certain: a refusal is about it, not about
        others of its batch.
        """
        queue = self._expected[numbered[1].entity_urn]
        if failure is None:
            self._acknowledged.add(numbered[0])
        elif failure.kind is not FailureKind.REJECTED:
            self.failure = self.failure or failure
        elif is_certain:
            self._record.reject(numbered, failure.text)
            queue.remove(numbered)
        while queue and queue[0][0] in self._acknowledged:
            self._record.confirm([queue.popleft()], stored=False)

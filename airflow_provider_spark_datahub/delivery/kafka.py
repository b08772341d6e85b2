"""The Kafka sink: proposals to the topic from which DataHub ingests them."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind
from airflow_provider_spark_datahub.delivery.finding import Finding, Verdict
from airflow_provider_spark_datahub.delivery.kafka_settings import KafkaSettings
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Numbered, Sink, SinkSettingsError

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.kafka_transport import KafkaClient


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
        from airflow_provider_spark_datahub.delivery.kafka_transport import KafkaClient, SetupError

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
        from airflow_provider_spark_datahub.delivery.kafka_transport import KafkaClient, SetupError

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

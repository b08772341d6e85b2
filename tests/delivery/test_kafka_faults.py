from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, SerializingProducer

from airflow_provider_spark_datahub.delivery import CheckStatus, Deadline, Delivery
from tests.delivery.faults import Fault, survive
from tests.delivery.kafka_target import Target, by_entity, contents
from tests.delivery.samples import patch, upsert, upserts
from tests.patience import HANGS
from tests.servers.kafka import Kafka
from tests.servers.schema_registry import SchemaRegistry

# tests/reliability/test_server_faults.py stops broker and registry.
FAULTS = [
    Fault[Target]("broker hangs", lambda target: target.kafka.frozen(), "is not available ("),
    Fault[Target]("registry hangs", lambda target: target.registry.frozen(), "is not available (its schema registry: "),
]


@pytest.fixture(scope="module", autouse=True)
def _clients_are_imported() -> None:
    """Import acryl-datahub, so that its second does not count in the time of a delivery."""


@pytest.fixture
def target(kafka: Kafka, schema_registry: SchemaRegistry) -> Target:
    return Target(kafka, schema_registry)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_proposals_arrive_after_the_fault(fault: Fault[Target], target: Target) -> None:
    proposals = [proposal for number in range(20) for proposal in (upsert(f"job{number}"), patch(f"job{number}"))]
    survive(fault, target, target.sink(), proposals)
    assert by_entity(target.stored()) == by_entity(contents(proposals))


@pytest.mark.no_cover
def test_a_restarted_broker_loses_and_doubles_nothing(target: Target) -> None:
    proposals = upserts(20_000)
    deliveries: list[Delivery] = []
    thread = threading.Thread(
        target=lambda: deliveries.append(target.sink().deliver(proposals, Deadline.after(60))), daemon=True
    )
    thread.start()
    while not target.kafka.messages(target.topic):
        time.sleep(0.01)
    with target.kafka.stopped():
        assert thread.is_alive()
    thread.join(70)
    assert deliveries == [Delivery(delivered=20_000, stored=False)]
    assert by_entity(target.stored()) == by_entity(contents(proposals))


def test_a_broker_that_stops_during_a_check_is_reported(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = SerializingProducer.list_topics
    asked: list[object] = []

    def first_alone(producer: SerializingProducer, *args: Any, **options: Any) -> object:
        asked.append(args)
        if len(asked) > 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return ask(producer, *args, **options)

    monkeypatch.setattr(SerializingProducer, "list_topics", first_alone, raising=False)
    (result,) = target.sink().check(Deadline.after(HANGS))
    assert (result.status, len(asked)) == (CheckStatus.BAD, 2)
    assert "is not available" in result.message


def test_proposals_acknowledged_before_a_fault_are_not_pending_after_it(target: Target) -> None:
    # The registry holds no more schemas, and the brokers go on.
    proposals = upserts(200)
    sink = target.sink()
    assert sink.deliver(proposals[:100], Deadline.after(60)).delivered == 100
    with target.kafka.stopped():
        delivery = sink.deliver(proposals[100:], Deadline.after(2))
    assert delivery.pending == tuple(proposals[100:])
    assert by_entity(target.stored()) == by_entity(contents(proposals[:100]))

"""The Kafka sink, with a real broker and schema registry."""

from __future__ import annotations

import json
import logging
import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from socketserver import BaseRequestHandler
from typing import Any, cast

import pytest

from airflow_provider_spark_datahub.delivery import CheckStatus, ConnectionParts, Deadline, Delivery
from airflow_provider_spark_datahub.delivery.sinks import KafkaSettings, KafkaSink
from tests.cases import cases
from tests.delivery.faults import Fault, survive
from tests.delivery.samples import Content, contents, patch, stored_content, upsert, upserts
from tests.patience import BUDGETS, not_outlasting, within
from tests.servers.kafka import PASSWORD, USER, Kafka
from tests.servers.loopback import LoopbackServer
from tests.servers.schema_registry import SchemaRegistry


class Target:
    """A topic of its own, and sinks for it. :param configuration: of the topic."""

    def __init__(self, kafka: Kafka, registry: SchemaRegistry, **configuration: str) -> None:
        self.kafka, self.registry = kafka, registry
        self.topic = kafka.make_topic(**configuration)

    def sink(
        self,
        host: str | None = None,
        login: str | None = None,
        password: str | None = None,
        topic: str | None = None,
        **fields: Any,
    ) -> KafkaSink:
        """:param fields: of the object ``connection`` in the connection's extra."""
        extra = {
            "connection": {"schema_registry_url": self.registry.url, **fields},
            "topic_routes": {"MetadataChangeProposal": topic or self.topic},
        }
        connection = ConnectionParts(
            host or self.kafka.bootstrap, login=login, password=password, extra=extra
        )
        return KafkaSink(KafkaSettings.from_connection(connection))

    def stored(self) -> list[Content]:
        return [stored_content(each.proposal) for each in self.kafka.messages(self.topic)]


def by_entity(items: list[Content]) -> dict[str, list[Content]]:
    """Group messages by entity: Kafka keeps the order only within one."""
    found: dict[str, list[Content]] = {}
    for each in items:
        found.setdefault(each[0], []).append(each)
    return found


@pytest.fixture
def target(kafka: Kafka, schema_registry: SchemaRegistry) -> Target:
    return Target(kafka, schema_registry)


def test_proposals_arrive_once_in_the_order_of_their_entity(target: Target) -> None:
    proposals = [
        proposal
        for number in range(50)
        for proposal in (upsert(f"job{number}"), patch(f"job{number}"))
    ]
    assert target.sink().deliver(proposals, Deadline.after(60)) == Delivery(
        delivered=100, stored=False
    )
    assert by_entity(target.stored()) == by_entity(contents(proposals))
    assert all(
        each.key == each.proposal["entityUrn"] for each in target.kafka.messages(target.topic)
    )


def test_a_urn_that_no_message_can_carry_is_rejected_alone(target: Target) -> None:
    proposals = [upsert("a"), upsert("broken \ud800 name"), upsert("b")]
    delivery = target.sink().deliver(proposals, Deadline.after(60))
    assert (delivery.delivered, [rejection.item for rejection in delivery.rejected]) == (
        2,
        [proposals[1]],
    )
    assert by_entity(target.stored()) == by_entity(contents([proposals[0], proposals[2]]))


def test_a_message_that_is_too_large_is_rejected_alone(
    kafka: Kafka, schema_registry: SchemaRegistry
) -> None:
    target = Target(kafka, schema_registry, **{"max.message.bytes": "20000"})
    # Of one entity, so that its partition holds a batch with the culprit in the middle.
    proposals = [
        upsert("a", title="1"),
        upsert("a", title="x" * 40_000),
        patch("a"),
        *upserts(300),
        upsert("a"),
    ]
    delivery = target.sink().deliver(proposals, Deadline.after(60))
    assert (delivery.delivered, delivery.pending, delivery.problem) == (303, (), None)
    assert [rejection.item for rejection in delivery.rejected] == [proposals[1]]
    assert "too large" in delivery.rejected[0].reason.lower()
    expected = by_entity(contents([*proposals[:1], *proposals[2:]]))
    # What stood in a refused batch was sent again, with all that comes after it in its entity.
    stored = by_entity(target.stored())
    latest = {
        urn: [item for at, item in enumerate(found) if item not in found[at + 1 :]]
        for urn, found in stored.items()
    }
    assert latest == expected


def secure(target: Target, password: str, **more: Any) -> Callable[[], Delivery]:
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.ca.location": str(target.kafka.ca),
        **more,
    }
    sink = target.sink(target.kafka.secure_bootstrap, USER, password, producer_config=config)
    return lambda: sink.deliver(upserts(3), Deadline.after(20))


def test_tls_can_have_its_own_authority_and_a_password(target: Target) -> None:
    assert secure(target, PASSWORD)() == Delivery(delivered=3, stored=False)
    assert by_entity(target.stored()) == by_entity(contents(upserts(3)))


def test_a_wrong_password_is_reported_at_once(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    delivery = secure(target, "canary-wrong-password")()
    assert (delivery.delivered, delivery.pending) == (0, tuple(upserts(3)))
    assert "refuses the connection's credentials" in str(delivery.problem)
    assert "set its login and password" in str(delivery.problem)
    assert "canary" not in f"{delivery.problem}{caplog.text}"


def test_an_untrusted_certificate_is_reported(target: Target) -> None:
    delivery = secure(target, PASSWORD, **{"ssl.ca.location": "/etc/ssl/certs"})()
    assert len(delivery.pending) == 3
    assert "cannot be used with this connection" in str(delivery.problem)
    assert "certificate verify failed" in str(delivery.problem)


LIES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda _: bytes(range(256)) * 64,
    "a frame of 2 GB": lambda _: b"\x7f\xff\xff\xff" + bytes(1_000_000),
    "an answer to another request": lambda _: b"\x00\x00\x00\x08" + b"\x7f\xff\xff\xff" + bytes(4),
    "the request itself": lambda asked: asked,
    "nothing": lambda _: b"",
}


@pytest.mark.parametrize("lie", LIES)
def test_what_answers_like_no_broker_costs_no_more_than_the_deadline(
    target: Target, lie: str
) -> None:
    """Garbage costs neither memory nor proposals. A false acknowledgement looks like a true one."""

    class Liar(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                while asked := self.request.recv(65_536):
                    self.request.sendall(LIES[lie](asked))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with LoopbackServer(cast("Any", Liar)) as liar, not_outlasting(3):
        delivery = target.sink(liar.url.removeprefix("http://")).deliver(
            upserts(3), Deadline.after(3)
        )
    assert (delivery.delivered, delivery.rejected, delivery.pending) == (0, (), tuple(upserts(3)))
    assert "Kafka" in str(delivery.problem)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@cases("kafka")
def test_an_unknown_client_option_is_reported(
    target: Target, connection: dict[str, Any], words: str
) -> None:
    delivery = target.sink(**connection).deliver(upserts(3), Deadline.after(20))
    assert len(delivery.pending) == 3
    assert f"{target.sink().describe()} cannot be used with this connection" in str(
        delivery.problem
    )
    assert words in str(delivery.problem)


def test_a_missing_topic_is_reported(target: Target) -> None:
    # The client searches for it for half of the time, up to ten seconds.
    delivery = within(
        lambda budget: target.sink(topic="no-such-topic").deliver(
            upserts(3), Deadline.after(budget)
        ),
        lambda delivery: "Unknown topic" in str(delivery.problem),
        BUDGETS[1:],
    )
    assert len(delivery.pending) == 3
    assert "(topic no-such-topic) cannot be used with this connection" in str(delivery.problem)
    assert "Unknown topic" in str(delivery.problem)


def test_an_incompatible_schema_in_the_registry_is_reported(target: Target) -> None:
    target.registry.register(f"{target.topic}-value", json.dumps("string"))
    delivery = target.sink().deliver(upserts(3), Deadline.after(20))
    assert len(delivery.pending) == 3
    assert "cannot be used with this connection (its schema registry: " in str(delivery.problem)
    assert "HTTP status code 409" in str(delivery.problem)


def checked(sink: KafkaSink, seconds: float = 8) -> tuple[CheckStatus, str]:
    (finding,) = sink.check(Deadline.after(seconds))
    return finding.status, finding.message


def test_a_check_writes_nothing(target: Target) -> None:
    status, message = checked(target.sink())
    assert (status, message) == (
        CheckStatus.GOOD,
        f"{target.sink().describe()} answers, and so does the schema registry",
    )
    assert target.stored() == []
    assert f"{target.topic}-value" not in target.registry.subjects()


@cases("kafka")
def test_a_check_reports_its_findings(target: Target, changes: dict[str, Any], words: str) -> None:
    message = ""
    for seconds in (2, 8, 32):  # on a busy machine, the first may be too few to learn why
        status, message = checked(target.sink(**changes), seconds)
        assert status is CheckStatus.BAD
        if words in message:
            break
    assert words in message


# -- faults of the servers


FAULTS = [
    Fault[Target](
        "broker down", lambda target: target.kafka.stopped(), "is not available (127.0.0.1:"
    ),
    Fault[Target](
        "registry down",
        lambda target: target.registry.stopped(),
        "is not available (its schema registry: ",
    ),
    Fault[Target]("broker hangs", lambda target: target.kafka.frozen(), "is not available ("),
    Fault[Target](
        "registry hangs",
        lambda target: target.registry.frozen(),
        "is not available (its schema registry: ",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_proposals_arrive_after_the_fault(fault: Fault[Target], target: Target) -> None:
    proposals = [
        proposal
        for number in range(20)
        for proposal in (upsert(f"job{number}"), patch(f"job{number}"))
    ]
    survive(fault, target, target.sink(), proposals)
    assert by_entity(target.stored()) == by_entity(contents(proposals))


@pytest.mark.no_cover
def test_a_restarted_broker_loses_and_doubles_nothing(target: Target) -> None:
    proposals = upserts(20_000)
    deliveries: list[Delivery] = []
    thread = threading.Thread(
        target=lambda: deliveries.append(target.sink().deliver(proposals, Deadline.after(60))),
        daemon=True,
    )
    thread.start()
    while not target.kafka.messages(target.topic):
        time.sleep(0.01)
    with target.kafka.stopped():
        assert thread.is_alive()
    thread.join(70)
    assert deliveries == [Delivery(delivered=20_000, stored=False)]
    assert by_entity(target.stored()) == by_entity(contents(proposals))

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.transport import Transport
from openlineage.client.transport.transform import EventTransformer

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import ConnectionParts, Deadline, Delivery, OutboxItem, RawEvent
from airflow_provider_spark_datahub.delivery.failure import Backoff
from airflow_provider_spark_datahub.delivery.sinks import OpenLineageSettings, OpenLineageSink
from tests.cases import cases
from tests.delivery.faults import BUDGET
from tests.delivery.samples import upsert
from tests.patience import HANGS, not_outlasting, within
from tests.reliability.bad_servers import answering, endless, in_turn, serving, slow_drip
from tests.servers.kafka import Kafka
from tests.servers.openlineage import Backend
from tests.servers.process import closed_port

CORPUS = Path(__file__).parents[1] / "data" / "corpus" / "events"
KEY = "canary-key-0123456789"


@pytest.fixture(scope="module", autouse=True)
def _client_is_imported() -> None:
    """Import openlineage-python, so that this does not count in the time of a delivery."""


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend(KEY) as backend:
        yield backend


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    (file,) = CORPUS.glob("a_csv_join_agg*")
    return [json.loads(line) for line in file.read_text().splitlines()]


def items(events: list[dict[str, Any]]) -> list[OutboxItem]:
    """Return events as they come from the outbox."""
    stored = [RawEvent.from_json(json.dumps(event).encode()).to_json() for event in events]
    return [RawEvent.from_stored(proposal) or proposal for proposal in map(Proposal.from_obj, map(json.loads, stored))]


def rejected_events(delivery: Delivery) -> list[Mapping[str, Any]]:
    return [rejection.item.decoded() for rejection in delivery.rejected if isinstance(rejection.item, RawEvent)]


def sink_of(
    url: str | None, waits: list[float] | None = None, password: str | None = KEY, **extra: Any
) -> OpenLineageSink:
    settings = OpenLineageSettings.from_connection(ConnectionParts(url, password=password, extra=extra))
    if waits is None:
        return OpenLineageSink(settings)
    return OpenLineageSink(settings, backoff=Backoff(jitter=lambda: 1.0, sleep=waits.append))


def test_events_arrive_unchanged_and_in_order(backend: Backend, events: list[dict[str, Any]]) -> None:
    assert len(events) > 3
    delivery = sink_of(backend.url).deliver(items(events), Deadline.after(30))
    assert delivery == Delivery(delivered=len(events), stored=True)
    assert backend.events == [without_nulls(event) for event in events]


def without_nulls(value: Any) -> Any:
    """Return an event without the nulls that openlineage-python omits."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value if inner is not None and inner != {}]
    return value


def test_failures_that_may_pass_are_retried(backend: Backend, events: list[dict[str, Any]]) -> None:
    backend.statuses = [503, 500, 429]
    waits: list[float] = []
    assert sink_of(backend.url, waits).deliver(items(events[:2]), Deadline.after(30)).delivered == 2
    assert backend.events == [without_nulls(event) for event in events[:2]]
    assert waits == [0.5, 1.0, 2.0]


def test_only_the_culprit_is_rejected(backend: Backend, events: list[dict[str, Any]]) -> None:
    backend.refuses = "urn:no"
    bad = {"eventTime": "urn:no"}
    delivery = sink_of(backend.url).deliver(items([events[0], bad, events[1]]), Deadline.after(30))
    assert (delivery.delivered, rejected_events(delivery)) == (2, [bad])
    assert "HTTP 422" in delivery.rejected[0].reason
    assert KEY not in delivery.rejected[0].reason


def test_poison_events_are_rejected(backend: Backend, events: list[dict[str, Any]]) -> None:
    # At the beginning, between others and at the end; the order of the others stays.
    backend.stumbles_over = "urn:poison"
    first, middle, last = ({"eventTime": "urn:poison", "eventType": kind} for kind in ("START", "RUNNING", "COMPLETE"))
    delivery = sink_of(backend.url, []).deliver(
        items([first, *events[:2], middle, *events[2:4], last]), Deadline.after(30)
    )
    assert (delivery.delivered, delivery.pending, delivery.problem) == (4, (), None)
    assert rejected_events(delivery) == [first, middle, last]
    assert delivery.rejected[0].reason.startswith("the OpenLineage backend failed on it alone, not on others: HTTP 500")
    # The last one that it took is asked about each: it may be there twice.
    arrived = [event for number, event in enumerate(backend.events) if event not in backend.events[:number]]
    assert arrived == [without_nulls(event) for event in events[:4]]


def test_a_backend_that_fails_on_everything_rejects_nothing(backend: Backend, events: list[dict[str, Any]]) -> None:
    backend.statuses = [500] * 1000
    delivery = sink_of(backend.url, []).deliver(items(events), Deadline.after(30))
    assert (delivery.delivered, delivery.rejected, len(delivery.pending)) == (0, (), len(events))
    assert "fails (HTTP 500: " in str(delivery.problem)
    assert len(backend.statuses) > 980


def test_a_backend_that_begins_to_fail_rejects_nothing(backend: Backend, events: list[dict[str, Any]]) -> None:
    backend.statuses = [201, 201] + [500] * 1000
    delivery = sink_of(backend.url, []).deliver(items(events), Deadline.after(30))
    assert (delivery.delivered, delivery.rejected, len(delivery.pending)) == (2, (), len(events) - 2)
    assert backend.events == [without_nulls(event) for event in events[:2]]


@pytest.mark.parametrize(
    ("password", "path", "words"),
    [
        ("canary-wrong-key", "", "refuses the connection's credentials (HTTP 401"),
        (KEY, "elsewhere/", "cannot be used with this connection (HTTP 404"),
    ],
)
def test_failures_that_will_not_pass_are_reported_at_once(
    backend: Backend, events: list[dict[str, Any]], password: str, path: str, words: str
) -> None:
    sink = sink_of(backend.url, [], password, endpoint=f"{path}api/v1/lineage")
    delivery = sink.deliver(items(events), Deadline.after(30))
    assert (delivery.delivered, len(delivery.pending)) == (0, len(events))
    assert f"the OpenLineage backend at {backend.url} {words}" in str(delivery.problem)
    assert "canary" not in str(delivery.problem)


@pytest.mark.slow
def test_a_backend_that_is_down_or_hangs_does_not_outlast_the_deadline(
    backend: Backend, events: list[dict[str, Any]]
) -> None:
    backend.hangs = HANGS
    for url in (f"http://127.0.0.1:{closed_port()}", backend.url):
        with not_outlasting(BUDGET):
            delivery = sink_of(url).deliver(items(events), Deadline.after(BUDGET))
        assert len(delivery.pending) == len(events)
        assert delivery.problem


@pytest.mark.slow
def test_the_failure_before_a_hanging_request_is_reported(events: list[dict[str, Any]]) -> None:
    def deliver(seconds: float) -> Delivery:
        with serving(in_turn(answering(status="503 Maintenance"), slow_drip)) as address:
            return sink_of(f"http://{address}").deliver(items(events), Deadline.after(seconds))

    delivery = within(deliver, lambda delivery: "HTTP 503" in str(delivery.problem))
    assert delivery.pending == tuple(items(events))
    assert " is not available (HTTP 503" in str(delivery.problem)


def test_login_pages_and_interim_answers_acknowledge_nothing(events: list[dict[str, Any]]) -> None:
    # Any other 2xx acknowledges, as it does for OpenLineage's own clients.
    page = answering(status="200 OK", headers="Content-Type: text/html\r\n", body=b"<html>")
    login = answering(status="302 Found", headers="Location: /login\r\n")
    interim = answering(status="101 Switching Protocols")
    for behaviour, problem in (
        (page, "HTTP 200 with a web page"),
        (login, "HTTP 302, a redirect to /login"),
        (interim, "HTTP 101, an interim answer"),
    ):
        with serving(behaviour) as address:
            delivery = sink_of(f"http://{address}", []).deliver(items(events), Deadline.after(30))
        assert (delivery.delivered, len(delivery.pending)) == (0, len(events))
        assert problem in str(delivery.problem)
    with serving(endless(b"HTTP/1.1 201 Created\r\n\r\n", b" " * 4096)) as address:
        assert sink_of(f"http://{address}").deliver(items(events[:2]), Deadline.after(HANGS)).delivered == 2


class Unchanged(EventTransformer):
    """Transformer as users write them."""

    def transform(self, event: Any) -> Any:
        return event


def test_a_transformed_event_arrives_as_any_other_does(backend: Backend, events: list[dict[str, Any]]) -> None:
    def transforming(url: str) -> OpenLineageSink:
        http = {"type": "http", "url": url, "auth": {"type": "api_key", "apiKey": KEY}}
        return sink_of(None, [], None, type="transform", transport=http, transformer_class=f"{__name__}.Unchanged")

    assert transforming(backend.url).deliver(items(events), Deadline.after(30)).delivered == len(events)
    assert backend.events == [without_nulls(event) for event in events]
    page = answering(status="200 OK", headers="Content-Type: text/html\r\n", body=b"<html>")
    with serving(page) as address:
        delivery = transforming(f"http://{address}").deliver(items(events), Deadline.after(30))
    assert (delivery.delivered, len(delivery.pending)) == (0, len(events))


def test_events_stay_pending_where_openlineage_is_switched_off(
    backend: Backend, events: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "True")
    delivery = sink_of(backend.url).deliver(items(events), Deadline.after(30))
    assert (delivery.delivered, len(delivery.pending), backend.events) == (0, len(events), [])
    assert "OPENLINEAGE_DISABLED" in str(delivery.problem)


def test_the_time_that_a_backend_asks_for_is_waited(events: list[dict[str, Any]]) -> None:
    waits: list[float] = []
    busy = answering(status="429 Too Many Requests", headers="Retry-After: 7\r\n")
    with serving(in_turn(busy, answering(status="201 Created"))) as address:
        assert sink_of(f"http://{address}", waits).deliver(items(events[:1]), Deadline.after(HANGS)).delivered == 1
    assert waits == [7.0]


def test_proposals_are_refused(backend: Backend) -> None:
    delivery = sink_of(backend.url).deliver([upsert("a")], Deadline.after(30))
    assert (delivery.pending, backend.events) == ((upsert("a"),), [])
    assert "name it as openlineage_conn_id" in str(delivery.problem)


@pytest.mark.slow
def test_events_go_to_a_file_and_a_backend_at_once(
    backend: Backend, events: list[dict[str, Any]], tmp_path: Path
) -> None:
    file = {"type": "file", "log_file_path": str(tmp_path / "events"), "append": True}
    http = {"type": "http", "url": backend.url, "auth": {"type": "api_key", "apiKey": KEY}}
    sink = sink_of(None, None, None, type="composite", transports={"file": file, "http": http})
    assert sink.deliver(items(events), Deadline.after(30)).delivered == len(events)
    assert len((tmp_path / "events").read_text().splitlines()) == len(backend.events) == len(events)
    backend.statuses = [503] * 100
    delivery = sink.deliver(items(events), Deadline.after(1))
    assert len(delivery.pending) == len(events)


@cases("openlineage_backend")
def test_an_unusable_transport_is_reported(config: dict[str, Any], words: str) -> None:
    settings = OpenLineageSettings.from_connection(ConnectionParts(extra=config))
    delivery = OpenLineageSink(settings).deliver(items([{}]), Deadline.after(30))
    assert len(delivery.pending) == 1
    assert f"cannot be used with this connection ({words}" in str(delivery.problem)


def test_events_go_through_kafka(kafka: Kafka, events: list[dict[str, Any]]) -> None:
    topic = kafka.make_topic()
    config = {"bootstrap.servers": kafka.bootstrap}
    sink = sink_of(None, None, None, type="kafka", topic=topic, config=config)
    assert sink.deliver(items(events), Deadline.after(60)) == Delivery(delivered=len(events), stored=True)
    found = consumed(kafka, topic)
    assert [value for _, value in found] == [without_nulls(event) for event in events]
    assert len({key for key, _ in found}) == 1


def test_an_event_that_is_too_large_for_kafka_is_rejected_alone(kafka: Kafka, events: list[dict[str, Any]]) -> None:
    topic = kafka.make_topic()
    sink = sink_of(None, None, None, type="kafka", topic=topic, config={"bootstrap.servers": kafka.bootstrap})
    large = {**events[1], "job": {"namespace": "default", "name": "x" * 2_000_000}}
    delivery = sink.deliver(items([events[0], large, events[2]]), Deadline.after(60))
    assert (delivery.delivered, rejected_events(delivery)) == (2, [large])
    assert "too large" in delivery.rejected[0].reason.lower()
    assert [value for _, value in consumed(kafka, topic)] == [without_nulls(events[0]), without_nulls(events[2])]


class Anybodys(Transport):
    """Transport as users may write one, with bugs."""

    kind = "anybodys"

    def __init__(self, config: Any) -> None:
        del config

    def emit(self, event: Any) -> Any:
        raise ReferenceError(f"a bug, at {event['eventType']}")

    def close(self, timeout: float = -1) -> bool:
        raise ReferenceError(f"a bug after {timeout} s")


def test_a_bug_in_a_users_transport_leaves_everything_pending(events: list[dict[str, Any]]) -> None:
    sink = sink_of(None, [], None, type=f"{__name__}.Anybodys")
    delivery = within(
        lambda seconds: sink.deliver(items(events), Deadline.after(seconds)),
        lambda delivery: "ReferenceError" in str(delivery.problem),
    )
    assert len(delivery.pending) == len(events)
    assert "(ReferenceError: a bug, at START, " in str(delivery.problem)


@pytest.mark.slow
def test_a_kafka_that_is_down_leaves_everything_pending(events: list[dict[str, Any]]) -> None:
    config = {"bootstrap.servers": f"127.0.0.1:{closed_port()}"}
    sink = sink_of(None, None, None, type="kafka", topic="t", config=config)
    delivery = sink.deliver(items(events), Deadline.after(1.5))
    assert len(delivery.pending) == len(events)
    assert "the OpenLineage backend of the transport 'kafka'" in str(delivery.problem)


def consumed(kafka: Kafka, topic: str) -> list[tuple[str, Any]]:
    """Return all messages. They have one key, so they are in one partition."""
    return [(key.decode(), json.loads(value)) for key, value in kafka.contents(topic)]

from __future__ import annotations

from airflow_provider_spark_datahub.delivery.failure import Backoff, CircuitBreaker
from airflow_provider_spark_datahub.delivery.sink import Delivery, Rejection
from tests.delivery.samples import upserts

ONE, TWO = upserts(2)
DOWN = Delivery(0, pending=(ONE,), problem="it is down")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def breaker(clock: Clock) -> CircuitBreaker:
    # Without jitter: waits of 10, 20, 40, 40 ...
    return CircuitBreaker(2, Backoff(first=10.0, longest=40.0, jitter=lambda: 1.0), clock)


def test_it_opens_after_failures_in_a_row() -> None:
    tested = breaker(Clock())
    tested.record(DOWN)
    assert tested.refusal() is None
    tested.record(DOWN)
    assert tested.refusal() == "2 deliveries in a row failed, the next attempt is due in 10 s: it is down"


def test_any_delivered_item_keeps_it_closed() -> None:
    for good in (
        Delivery(1),
        Delivery(0),
        Delivery(0, rejected=(Rejection(ONE, "no"),)),
        Delivery(1, pending=(TWO,), problem="it is full"),
    ):
        tested = breaker(Clock())
        tested.record(DOWN)
        tested.record(good)
        tested.record(DOWN)
        assert tested.refusal() is None


def test_each_wait_lets_one_delivery_through_and_waits_grow() -> None:
    clock = Clock()
    tested = breaker(clock)
    tested.record(DOWN)
    for wait in (10, 20, 40, 40):
        tested.record(DOWN)
        clock.now += wait - 1
        assert str(tested.refusal()).endswith("is due in 1 s: it is down")
        clock.now += 1
        assert tested.refusal() is None
        assert tested.refusal() is not None  # only one


def test_a_delivery_that_arrives_closes_it() -> None:
    clock = Clock()
    tested = breaker(clock)
    tested.record(DOWN)
    tested.record(DOWN)
    clock.now += 10
    assert tested.refusal() is None
    tested.record(Delivery(1))
    assert tested.refusal() is None
    tested.record(DOWN)
    assert tested.refusal() is None


def test_a_connection_has_one() -> None:
    assert CircuitBreaker.for_connection("a test's connection") is CircuitBreaker.for_connection("a test's connection")
    assert CircuitBreaker.for_connection("a test's connection") is not CircuitBreaker.for_connection("another")

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.sink import Delivery, DeliveryRecord, Rejection, Sink
from tests.delivery.samples import upsert, upserts
from tests.patience import HANGS


class SlowSink(Sink):
    """Delivers the first of two equal proposals, rejects the third, then hangs until released."""

    name = "slow"

    def __init__(self) -> None:
        self.released = threading.Event()
        self.closed = False

    def describe(self) -> str:
        return "a slow sink"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        assert not deadline.expired
        items = record.pending()
        record.confirm(items[:1], stored=True)
        record.reject(items[2], "no such thing")
        assert self.released.wait(10)
        record.confirm(record.pending(), stored=True)

    def close(self) -> None:
        self.closed = True


def test_progress_before_the_deadline_is_known_and_later_progress_changes_nothing() -> None:
    same, other, last = upsert("same"), upsert("other"), upsert("last")
    sink = SlowSink()
    delivery = sink.deliver([same, same, other, last], Deadline.after(0.2))
    sink.released.set()
    assert delivery == Delivery(
        delivered=1,
        rejected=(Rejection(other, "no such thing"),),
        pending=(same, last),
        problem="a slow sink did not acknowledge everything before the time for lineage was over.",
        stored=True,
    )


class Failing(Sink):
    """Fails, then does what it is told, then hangs until released."""

    name = "failing"

    def __init__(self, between: Callable[[DeliveryRecord], None] = lambda _: None) -> None:
        self.released = threading.Event()
        self._between = between

    def describe(self) -> str:
        return "a failing sink"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        assert not deadline.expired
        record.repeat("it is down.")
        self._between(record)
        self.released.wait(HANGS)


def test_the_failure_before_an_attempt_that_hangs_is_told() -> None:
    proposals = upserts(1)
    sink = Failing()
    delivery = sink.deliver(proposals, Deadline.after(0.2))
    sink.released.set()
    assert delivery == Delivery(0, pending=tuple(proposals), problem="it is down.")


@pytest.mark.parametrize(
    "answers",
    [
        lambda record: record.confirm(record.pending()[:1], stored=True),
        lambda record: record.reject(record.pending()[0], "no such thing"),
    ],
    ids=["taken", "rejected"],
)
def test_but_not_one_before_an_answer(answers: Callable[[DeliveryRecord], None]) -> None:
    sink = Failing(answers)
    delivery = sink.deliver(upserts(2), Deadline.after(0.2))
    sink.released.set()
    assert delivery.problem == "a failing sink did not acknowledge everything before the time for lineage was over."


def test_nothing_to_deliver_needs_no_destination() -> None:
    assert SlowSink().deliver([], Deadline.after(10)) == Delivery(delivered=0)


def test_is_a_context_manager_that_closes() -> None:
    with SlowSink() as sink:
        assert not sink.closed
    assert sink.closed


def test_one_accepted_batch_makes_the_delivery_no_more_than_accepted() -> None:
    record = DeliveryRecord(upserts(3))
    first, second, third = record.pending()
    record.confirm([first], stored=True)
    record.confirm([second], stored=False)
    record.confirm([third], stored=True)
    assert record.delivery() == Delivery(delivered=3, stored=False)


def test_the_first_problem_stands_and_goes_where_nothing_is_pending() -> None:
    record = DeliveryRecord(upserts(1))
    record.stop("first")
    record.stop("second")
    assert record.delivery().problem == "first"
    record.confirm(record.pending(), stored=True)
    assert record.delivery().problem is None

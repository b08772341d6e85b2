from __future__ import annotations

import threading

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.sink import Delivery, DeliveryRecord, Rejection, Sink
from tests.delivery.samples import upsert, upserts


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

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline, Delivery, Rejection, Sink
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord
from tests.delivery.samples import upsert, upserts
from tests.patience import HANGS, within

Step = Callable[[DeliveryRecord], None]


class SlowSink(Sink):
    """Sink that takes one step after the other, hangs until it is released, then delivers the rest."""

    name = "slow"

    def __init__(self, *steps: Step) -> None:
        self.released = threading.Event()
        self.hangs = False
        self._steps = steps

    def describe(self) -> str:
        return "a slow sink"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        released = self.released
        for step in self._steps:
            step(record)
        self.hangs = not deadline.expired
        assert released.wait(HANGS)
        record.confirm(record.pending(), stored=True)

    def deliver_until(self, proposals: Sequence[Proposal]) -> Delivery:
        """Return the result when the time is over, then release the sink."""

        def deliver(seconds: float) -> Delivery:
            self.released = threading.Event()
            delivery = self.deliver(proposals, Deadline.after(seconds))
            self.released.set()
            return delivery

        return within(deliver, lambda _: self.hangs)


def take_first(record: DeliveryRecord) -> None:
    record.confirm(record.pending()[:1], stored=True)


def reject_second(record: DeliveryRecord) -> None:
    record.reject(record.pending()[1], "no such thing")


def fail_once(record: DeliveryRecord) -> None:
    record.attempt_failed("it is down.")


@pytest.mark.slow
def test_progress_before_the_deadline_is_known_and_later_progress_changes_nothing() -> None:
    same, other, last = upsert("same"), upsert("other"), upsert("last")
    assert SlowSink(take_first, reject_second).deliver_until([same, same, other, last]) == Delivery(
        delivered=1,
        rejected=(Rejection(other, "no such thing"),),
        pending=(same, last),
        problem="a slow sink did not acknowledge everything before the time for lineage was over.",
        stored=True,
    )


@pytest.mark.slow
def test_the_failure_before_a_hanging_attempt_is_reported() -> None:
    proposals = upserts(1)
    delivery = SlowSink(fail_once).deliver_until(proposals)
    assert delivery == Delivery(0, pending=tuple(proposals), problem="it is down.")


@pytest.mark.slow
@pytest.mark.parametrize("answer", [take_first, reject_second])
def test_a_failure_before_an_answer_is_not_reported(answer: Step) -> None:
    delivery = SlowSink(fail_once, answer).deliver_until(upserts(3))
    assert (
        delivery.problem
        == "a slow sink did not acknowledge everything before the time for lineage was over."
    )


def test_one_accepted_batch_makes_the_delivery_accepted() -> None:
    record = DeliveryRecord(upserts(3))
    first, second, third = record.pending()
    record.confirm([first], stored=True)
    record.confirm([second], stored=False)
    record.confirm([third], stored=True)
    assert record.delivery() == Delivery(delivered=3, stored=False)


def test_the_first_problem_is_kept_until_nothing_is_pending() -> None:
    record = DeliveryRecord(upserts(1))
    record.stop("first")
    record.stop("second")
    assert record.delivery().problem == "first"
    record.confirm(record.pending(), stored=True)
    assert record.delivery().problem is None

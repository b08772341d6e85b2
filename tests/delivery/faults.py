"""Faults of real servers, and what a delivery must do in each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline, Delivery, Sink
from tests.patience import not_outlasting, within

BUDGET = 3.0
"""Seconds that a delivery has during a fault."""

T = TypeVar("T")


@dataclass(frozen=True)
class Fault(Generic[T]):
    """Fault of a server, and the message for the user.

    :param what: e.g. ``broker down``.
    :param begin: makes it happen, until the context is left.
    :param says: the message for the user.
    """

    what: str
    begin: Callable[[T], AbstractContextManager[object]]
    says: str

    def __str__(self) -> str:
        return self.what


def survive(fault: Fault[T], target: T, sink: Sink, proposals: Sequence[Proposal]) -> None:
    """Deliver during the fault: nothing arrives, within the budget, and one sentence says why; then
    after it.
    """
    with fault.begin(target):

        def deliver(seconds: float) -> Delivery:
            with not_outlasting(seconds):
                return sink.deliver(proposals, Deadline.after(seconds))

        delivery = within(
            deliver,
            lambda delivery: fault.says in str(delivery.problem),
            budgets=(BUDGET, 5 * BUDGET),
        )
        assert (delivery.delivered, delivery.rejected) == (0, ())
        assert delivery.pending == tuple(proposals)
        assert fault.says in str(delivery.problem)
        assert str(delivery.problem).startswith(sink.describe())
    assert sink.deliver(delivery.pending, Deadline.after(60)).delivered == len(proposals)

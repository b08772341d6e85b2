"""Poison items and outages."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind, PoisonFilter
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, NumberedItem
from tests.delivery.samples import upserts

FAILED = Failure(FailureKind.FAILED, "HTTP 500: boom")
AWAY = Failure(FailureKind.UNAVAILABLE, "HTTP 503: away")
REFUSED = Failure(FailureKind.REJECTED, "HTTP 400: no")


@pytest.fixture
def record() -> DeliveryRecord:
    return DeliveryRecord(upserts(10))


Answers = dict[int, list[bool | Failure]]


class Server:
    """Answers to items that are sent again, by their numbers.

    :ivar asked: numbers of these items.
    """

    def __init__(self, answers: Answers | None = None) -> None:
        self._answers = answers or {}
        self.asked: list[int] = []

    def resend(self, item: NumberedItem) -> bool | Failure:
        self.asked.append(item[0])
        return self._answers[item[0]].pop(0)


def test_so_many_failures_without_a_success_are_an_outage(record: DeliveryRecord) -> None:
    poison = PoisonFilter(record, "it", Server().resend)
    goes_on = [poison.add(item, FAILED) for item in record.pending()[: PoisonFilter.MOST_SUSPECTS]]
    assert goes_on == [True] * (PoisonFilter.MOST_SUSPECTS - 1) + [False]
    assert poison.last == FAILED
    assert len(record.pending()) == 10


def test_a_later_success_rejects_what_fails_once_more(record: DeliveryRecord) -> None:
    # The server was away for the second item and is away for the third; it refuses the fourth for another reason.
    server = Server({0: [FAILED], 1: [True], 2: [AWAY], 3: [REFUSED]})
    poison = PoisonFilter(record, "it", server.resend)
    *suspects, taken = record.pending()[:5]
    for suspect in suspects:
        assert poison.add(suspect, FAILED)
    poison.judge(taken=taken)
    assert server.asked == [0, 1, 2, 3]
    delivery = record.delivery()
    assert [(rejection.item, rejection.reason) for rejection in delivery.rejected] == [
        (suspects[0][1], "it failed on it alone, not on others: HTTP 500: boom"),
        (suspects[3][1], "HTTP 400: no"),
    ]
    assert (delivery.delivered, poison.last) == (1, AWAY)


@pytest.mark.parametrize("takes", [True, AWAY])
def test_the_last_success_is_repeated(record: DeliveryRecord, takes: bool | Failure) -> None:
    server = Server({0: [takes], 1: [FAILED]})
    poison = PoisonFilter(record, "it", server.resend)
    first, second = record.pending()[:2]
    poison.judge(taken=first)
    assert poison.add(second, FAILED) is (takes is True)
    assert server.asked == ([0, 1] if takes is True else [0])
    assert [rejection.item for rejection in record.delivery().rejected] == ([second[1]] if takes is True else [])
    assert poison.last == (None if takes is True else FAILED)


def test_a_server_that_fails_for_a_moment_rejects_nothing(record: DeliveryRecord) -> None:
    # It took an item before and takes it again afterwards; between the two it failed on all.
    server = Server({0: [True], 1: [True]})
    poison = PoisonFilter(record, "it", server.resend)
    first, second = record.pending()[:2]
    poison.judge(taken=first)
    assert poison.add(second, FAILED)
    delivery = record.delivery()
    assert (delivery.rejected, delivery.delivered, poison.last) == ((), 1, None)

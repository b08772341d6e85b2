"""Poison items and outages."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind, PoisonFilter
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, NumberedProposal
from tests.delivery.samples import upserts

FAILED = Failure(FailureKind.FAILED, "HTTP 500: boom")


@pytest.fixture
def record() -> DeliveryRecord:
    return DeliveryRecord(upserts(10))


def never(item: NumberedProposal) -> bool:
    raise AssertionError(f"{item} was sent again")


def test_so_many_failures_without_a_success_are_an_outage(record: DeliveryRecord) -> None:
    poison = PoisonFilter[Proposal](record, "it")
    goes_on = [poison.add(item, FAILED, never) for item in record.pending(Proposal)[: PoisonFilter.MOST_SUSPECTS]]
    assert goes_on == [True] * (PoisonFilter.MOST_SUSPECTS - 1) + [False]
    assert poison.last == FAILED
    assert len(record.pending()) == 10


def test_a_later_success_rejects_all_suspects(record: DeliveryRecord) -> None:
    poison = PoisonFilter[Proposal](record, "it")
    first, second, third = record.pending(Proposal)[:3]
    assert poison.add(first, FAILED, never)
    assert poison.add(second, FAILED, never)
    poison.reject(taken=third)
    assert [rejection.item for rejection in record.delivery().rejected] == [first[1], second[1]]
    assert record.delivery().rejected[0].reason == "it failed on it alone, not on others: HTTP 500: boom"
    assert poison.last is None


@pytest.mark.parametrize("takes", [True, False])
def test_the_last_success_is_repeated(record: DeliveryRecord, takes: bool) -> None:
    poison, asked = PoisonFilter[Proposal](record, "it"), list[NumberedProposal]()
    first, second = record.pending(Proposal)[:2]
    poison.reject(taken=first)

    def still_takes(item: NumberedProposal) -> bool:
        asked.append(item)
        return takes

    assert poison.add(second, FAILED, still_takes) is takes
    assert asked == [first]
    assert [rejection.item for rejection in record.delivery().rejected] == ([second[1]] if takes else [])
    assert poison.last == (None if takes else FAILED)

"""Whose fault a failure is."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.delivery.failure import MOST_SUSPECTS, Failure, FailureKind, Suspects
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Numbered
from tests.delivery.samples import upserts

FAILED = Failure(FailureKind.FAILED, "HTTP 500: boom")


@pytest.fixture
def record() -> DeliveryRecord:
    return DeliveryRecord(upserts(10))


def never(item: Numbered) -> bool:
    raise AssertionError(f"{item} was sent again")


def test_without_a_witness_so_many_in_a_row_are_the_destinations_fault(record: DeliveryRecord) -> None:
    suspects = Suspects(record, "it")
    told = [suspects.add(item, FAILED, never) for item in record.pending()[:MOST_SUSPECTS]]
    assert told == [True] * (MOST_SUSPECTS - 1) + [False]
    assert suspects.last == FAILED
    assert len(record.pending()) == 10


def test_a_later_witness_convicts_all_before_it(record: DeliveryRecord) -> None:
    suspects = Suspects(record, "it")
    first, second, third = record.pending()[:3]
    assert suspects.add(first, FAILED, never)
    assert suspects.add(second, FAILED, never)
    suspects.convict(witness=third)
    assert [one.proposal for one in record.delivery().rejected] == [first[1], second[1]]
    assert record.delivery().rejected[0].reason == "it failed on it alone, not on others: HTTP 500: boom"
    assert suspects.last is None


@pytest.mark.parametrize("takes", [True, False])
def test_an_earlier_witness_is_asked_once_more(record: DeliveryRecord, takes: bool) -> None:
    suspects, asked = Suspects(record, "it"), list[Numbered]()
    first, second = record.pending()[:2]
    suspects.convict(witness=first)

    def still_takes(item: Numbered) -> bool:
        asked.append(item)
        return takes

    assert suspects.add(second, FAILED, still_takes) is takes
    assert asked == [first]
    assert [one.proposal for one in record.delivery().rejected] == ([second[1]] if takes else [])
    assert suspects.last == (None if takes else FAILED)

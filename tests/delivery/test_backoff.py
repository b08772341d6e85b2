from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.delivery.failure import Backoff


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (6, 8.0), (100_000, 8.0)])
def test_the_backoff_doubles_up_to_its_limit(attempt: int, seconds: float) -> None:
    longest = Backoff(first=0.5, longest=8.0, jitter=lambda: 1.0)
    shortest = Backoff(first=0.5, longest=8.0, jitter=lambda: 0.0)
    assert longest.delay(attempt) == seconds
    assert shortest.delay(attempt) == seconds / 2


def test_waits_are_random() -> None:
    assert len({Backoff().delay(3) for _ in range(10)}) > 1

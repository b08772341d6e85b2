from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.backfill.delivery import Rate


class Clock:
    """A clock that goes on only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def test_no_more_pass_than_the_rate_allows() -> None:
    clock = Clock()
    rate = Rate(50, clock, clock.sleep)
    passed = []
    for _ in range(20):
        rate.take(25)
        passed.append(clock.now - 100.0)
    assert passed == pytest.approx([number / 2 for number in range(20)])


def test_time_without_proposals_is_not_saved_up() -> None:
    clock = Clock()
    rate = Rate(10, clock, clock.sleep)
    clock.sleep(1000)
    for expected in (0, 1, 2):
        rate.take(10)
        assert clock.now == pytest.approx(1100 + expected)


def test_without_a_rate_nothing_waits() -> None:
    clock = Clock()
    rate = Rate(None, clock, clock.sleep)
    rate.take(10**9)
    assert (clock.now, rate.burst) == (100.0, None)


@pytest.mark.parametrize(("per_second", "burst"), [(0.5, 1), (7.9, 7), (500, 500)])
def test_at_once_pass_those_of_a_second(per_second: float, burst: int) -> None:
    assert Rate(per_second).burst == burst


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="want more than 0"):
        Rate(0)

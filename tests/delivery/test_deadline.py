from __future__ import annotations

import dataclasses

import pytest

from airflow_provider_spark_datahub.delivery import Deadline


def test_a_deadline_counts_down_to_zero() -> None:
    now = [100.0]
    deadline = Deadline.after(30, clock=lambda: now[0])
    assert (deadline.remaining(), deadline.expired) == (30.0, False)
    now[0] = 129.5
    assert (deadline.remaining(), deadline.expired) == (0.5, False)
    now[0] = 130.0
    assert (deadline.remaining(), deadline.expired) == (0.0, True)
    now[0] = 500.0
    assert deadline.remaining() == 0.0


def test_a_deadline_cannot_be_extended() -> None:
    field = "at"
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(Deadline.after(1), field, 2.0)

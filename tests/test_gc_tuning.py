"""The garbage collector is as it was afterwards."""

from __future__ import annotations

import gc

import pytest

from airflow_provider_spark_datahub.gc_tuning import gc_paused, gc_slowed


def test_a_slowed_collector_collects_rarely() -> None:
    before = gc.get_threshold()
    with gc_slowed():
        assert gc.isenabled()
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before


@pytest.mark.parametrize("enabled", [True, False])
def test_a_paused_collector_is_resumed_only_if_it_ran_before(enabled: bool) -> None:
    if not enabled:
        gc.disable()
    try:
        with gc_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        gc.enable()

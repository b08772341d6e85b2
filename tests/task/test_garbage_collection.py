"""The garbage collector is as it was afterwards."""

from __future__ import annotations

import gc

import pytest

from airflow_provider_spark_datahub.foundation.memory import gc_paused


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

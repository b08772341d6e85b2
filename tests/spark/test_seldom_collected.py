"""Steps leave the garbage collector as it was."""

from __future__ import annotations

import gc

from airflow_provider_spark_datahub.backfill.packing import seldom_collected


def test_the_collector_looks_seldom_for_as_long_as_a_step_runs() -> None:
    before = gc.get_threshold()
    with seldom_collected():
        assert gc.isenabled()
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before

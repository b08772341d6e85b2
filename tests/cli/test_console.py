"""Options that commands share."""

from __future__ import annotations

import pytest

from airflow_provider_spark_datahub.cli.console import parse_hours, since_now
from tests.cases import cases


@cases("cli")
def test_hours_and_durations(text: str | None, hours: float) -> None:
    assert parse_hours("--over-after", text) == hours


@pytest.mark.parametrize("text", [None, "2026-01-31", "soon", "999999999d"])
def test_only_a_duration_becomes_a_time(text: str | None) -> None:
    assert since_now(text) == text

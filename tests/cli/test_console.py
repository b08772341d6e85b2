"""Options that commands share."""

from __future__ import annotations

import pytest
import typer

from airflow_provider_spark_datahub.cli.console import parse_hours, since_now
from tests.cases import cases


@cases("cli")
def test_hours_and_durations(text: str | None, hours: float | None) -> None:
    assert parse_hours("--over-after", text) == hours


@pytest.mark.parametrize("text", ["d", "-7d", "7 d", "2026-01-31", "9" * 30 + "d"])
def test_neither_hours_nor_a_duration(text: str) -> None:
    with pytest.raises(typer.Exit) as ended:
        parse_hours("--over-after", text)
    assert ended.value.exit_code == 2


@pytest.mark.parametrize("text", [None, "2026-01-31", "soon", "999999999d"])
def test_only_a_duration_becomes_a_time(text: str | None) -> None:
    assert since_now(text) == text

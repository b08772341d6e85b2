"""Options and progress bars that commands share."""

from __future__ import annotations

import pytest
import typer
from rich.console import Console

from airflow_provider_spark_datahub.cli.console import parse_hours, progress, since_now
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


def test_scripts_see_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Delivering", 3) as step:
        step(3)
    assert capsys.readouterr() == ("", "")


def test_a_person_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    with progress("Delivering", 3) as step:
        step(2)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Delivering" in shown.err
    assert "2/3" in shown.err

from __future__ import annotations

import pytest
from rich.console import Console

from airflow_provider_spark_datahub.cli.console import progress


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

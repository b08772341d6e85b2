from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.configuration import AIRFLOW_HOME

from airflow_provider_spark_datahub.conversion import LineageSettings
from airflow_provider_spark_datahub.delivery.outbox.entries import OutboxLimits
from airflow_provider_spark_datahub.hooks.airflow_context import configuration
from airflow_provider_spark_datahub.task.options import (
    LineageConfiguration,
    LineageOptions,
    OptionError,
)
from tests.cases import cases


@pytest.fixture(autouse=True)
def airflow_configuration() -> None:
    """Replace the package's configuration: the defaults are tested here."""


def resolved(**arguments: Any) -> LineageOptions:
    return configuration().resolve(**arguments)


def configure(monkeypatch: pytest.MonkeyPatch, option: str, value: str) -> None:
    monkeypatch.setenv(f"AIRFLOW__SPARK_DATAHUB__{option.upper()}", value)


def test_every_option_has_its_default() -> None:
    home, options = Path(AIRFLOW_HOME) / "spark_datahub", resolved()
    # Airflow 3.1 does not know the defaults of providers everywhere.
    assert replace(
        options, outbox_limits=options.outbox_limits or OutboxLimits()
    ) == LineageOptions(
        connection="datahub_rest_default",
        settings=LineageSettings(),
        on_failure="warn",
        events_location=home / "events",
        outbox_location=str(home / "outbox"),
        outbox_limits=OutboxLimits(),
        timeout=30.0,
        openlineage_jar="",
    )
    assert configuration().is_enabled(None) is True
    assert configuration().connection_id == "datahub_rest_default"
    assert configuration().outbox_location() == str(home / "outbox")


@cases("task")
def test_argument_beats_configuration_beats_default(
    monkeypatch: pytest.MonkeyPatch,
    argument: str,
    field: str,
    configured: str,
    from_configuration: object,
    given: object,
    from_argument: object,
) -> None:
    configure(monkeypatch, argument, configured)
    for options, expected in (
        (resolved(), from_configuration),
        (resolved(**{argument: given}), from_argument),
    ):
        found = getattr(options, field)
        assert found == (Path(str(expected)) if isinstance(found, Path) else expected)


def test_class_archives_are_used_if_there_are_any(tmp_path: Path) -> None:
    configured = LineageConfiguration(lambda _: "", tmp_path)
    assert configured.resolve().class_archives is None
    (tmp_path / "classes").mkdir()
    assert configured.resolve().class_archives == tmp_path / "classes"


def test_home_folder_in_a_location() -> None:
    assert resolved(events_location="~/events").events_location == Path.home() / "events"


@pytest.mark.parametrize(
    ("lineage", "expected"),
    [
        (None, LineageSettings(env="DEV", tags=("a", "b"))),
        ({}, LineageSettings(env="DEV", tags=("a", "b"))),
        ({"env": "QA"}, LineageSettings(env="QA", tags=("a", "b"))),
        ('{"env": "QA", "tags": ["c"]}', LineageSettings(env="QA", tags=("c",))),
        (LineageSettings(orchestrator="x"), LineageSettings(orchestrator="x")),
    ],
)
def test_converter_options_are_laid_over_the_configured_ones(
    monkeypatch: pytest.MonkeyPatch, lineage: object, expected: LineageSettings
) -> None:
    configure(monkeypatch, "lineage", '{"env": "DEV", "tags": "a,b"}')
    assert resolved(lineage=lineage).settings == expected


@cases("task")
def test_wrong_arguments_are_named_and_left_out(arguments: dict[str, Any], message: str) -> None:
    options = resolved(**arguments)
    (problem,) = options.problems
    assert re.search(message, problem)
    assert replace(options, problems=()) == resolved()


def test_a_wrong_converter_setting_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "lineage", '{"platform_instanc": "eu", "owners": "ada"}')
    options = resolved(lineage={"tag": "a", "env": "DEV", "domains": 7})
    assert options.settings == LineageSettings(env="DEV", owners=("ada",))
    starts = (
        "unknown lineage setting 'platform_instanc'; did you",
        "unknown lineage setting 'tag'; did you mean 'tags'",
        "domains is 7",
    )
    assert all(
        problem.startswith(start) for problem, start in zip(options.problems, starts, strict=True)
    )


@cases("task")
def test_wrong_configuration_is_named(
    monkeypatch: pytest.MonkeyPatch, option: str, value: str, message: str
) -> None:
    configure(monkeypatch, option, value)
    (problem,) = resolved().problems
    assert re.search(message, problem)


def test_an_option_whose_command_airflow_does_not_run_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, "datahub_conn_id_cmd", "echo datahub")
    assert resolved().connection == "datahub_rest_default"
    assert "unknown option 'datahub_conn_id_cmd'; did you mean 'datahub_conn_id'?" in " ".join(
        resolved().problems
    )


@cases("task")
def test_the_argument_enabled_overrides_the_configuration(
    monkeypatch: pytest.MonkeyPatch, argument: object, expected: bool
) -> None:
    configure(monkeypatch, "enabled", str(not expected))
    assert configuration().is_enabled(argument) is expected
    assert configuration().is_enabled(None) is not expected


@pytest.mark.parametrize("argument", ["maybe", "", 2])
def test_a_wrong_switch_is_named_and_switches_nothing_off(argument: object) -> None:
    assert configuration().is_enabled(argument)
    assert resolved(enabled=argument).problems[:1] in (
        (f"enabled is {argument!r}, want true or false",),
        (),
    )


def test_limits_of_the_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "outbox_max_bytes", "1e6")
    assert configuration().outbox_limits() == OutboxLimits(1_000_000)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1 GB"])
def test_a_limit_must_be_a_number_above_zero(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    configure(monkeypatch, "outbox_max_bytes", value)
    wrong = f"outbox_max_bytes is '{value}', want a number above 0"
    with pytest.raises(OptionError, match=wrong):
        configuration().outbox_limits()
    (problem,) = resolved().problems
    assert wrong in problem

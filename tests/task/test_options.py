from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.configuration import AIRFLOW_HOME

from airflow_provider_spark_datahub.conversion import LineageSettings, SettingsError
from airflow_provider_spark_datahub.delivery.outbox.entries import OutboxLimits
from airflow_provider_spark_datahub.hooks.airflow_context import configuration
from airflow_provider_spark_datahub.task.options import LineageConfiguration, LineageOptions, OptionError


@pytest.fixture(autouse=True)
def airflow_configuration() -> None:
    """Replace the package's configuration: the defaults are tested here."""


def resolved(**arguments: Any) -> LineageOptions:
    return configuration().resolve(**arguments)


def configure(monkeypatch: pytest.MonkeyPatch, option: str, value: str) -> None:
    monkeypatch.setenv(f"AIRFLOW__SPARK_DATAHUB__{option.upper()}", value)


def test_every_option_has_its_default() -> None:
    home = Path(AIRFLOW_HOME) / "spark_datahub"
    assert resolved() == LineageOptions(
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


@pytest.mark.parametrize(
    ("argument", "field", "configured", "from_configuration", "given", "from_argument"),
    [
        ("datahub_conn_id", "connection", "configured", "configured", "given", "given"),
        ("lineage_on_failure", "on_failure", "fail", "fail", "retry", "retry"),
        ("on_orphan", "on_orphan", "kill", "kill", "warn", "warn"),
        ("connect_events", "connect_events", "/conf/c", Path("/conf/c"), "/given/c", Path("/given/c")),
        ("events_location", "events_location", "/conf/e", Path("/conf/e"), "file:///given/e", Path("/given/e")),
        ("outbox_location", "outbox_location", "file:///conf/o", "/conf/o", "s3://lake/o", "s3://lake/o"),
        ("lineage_timeout", "timeout", "7.5", 7.5, "12", 12.0),
        ("lineage_timeout", "timeout", "7.5", 7.5, 3, 3.0),
        ("emit_periodically", "emit_periodically", "60", 60.0, "1.5", 1.5),
        ("emit_periodically", "emit_periodically", "60", 60.0, 0, None),
        ("openlineage_jar", "openlineage_jar", "provided", "provided", "/given.jar", "/given.jar"),
    ],
)
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
    assert getattr(resolved(), field) == from_configuration
    assert getattr(resolved(**{argument: given}), field) == from_argument


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


def test_the_limit_of_texts_in_the_environment_is_below_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGESTION_MAX_SERIALIZED_STRING_LENGTH", "5000")
    assert resolved().settings.max_string_length == 5_000
    configure(monkeypatch, "lineage", '{"max_string_length": 6000}')
    assert resolved().settings.max_string_length == 6_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_orphan": "stop"}, "on_orphan is 'stop', want one of warn, kill"),
        ({"lineage_on_failure": "ignore"}, "lineage_on_failure is 'ignore', want one of warn, retry, fail"),
        ({"lineage_timeout": 0}, "lineage_timeout is 0, want seconds"),
        ({"lineage_timeout": "-1"}, "lineage_timeout is '-1', want seconds"),
        ({"lineage_timeout": "nan"}, "lineage_timeout is 'nan', want seconds"),
        ({"lineage_timeout": "inf"}, "lineage_timeout is 'inf', want seconds"),
        ({"lineage_timeout": 86400}, "lineage_timeout is 86400, want seconds"),
        ({"lineage_timeout": "soon"}, "lineage_timeout is 'soon', want seconds"),
        ({"lineage_timeout": []}, r"lineage_timeout is \[\], want seconds"),
        ({"emit_periodically": 0.5}, "emit_periodically is 0.5, want seconds, from 1 to less than a day, or 0"),
        ({"emit_periodically": -1}, "emit_periodically is -1, want seconds"),
        ({"emit_periodically": "nan"}, "emit_periodically is 'nan', want seconds"),
        ({"emit_periodically": 86400}, "emit_periodically is 86400, want seconds"),
        ({"emit_periodically": "often"}, "emit_periodically is 'often', want seconds"),
        ({"emit_periodically": []}, r"emit_periodically is \[\], want seconds"),
        ({"lineage": "env=DEV"}, "lineage is not valid JSON: "),
        ({"lineage": "[1]"}, r"lineage is \[1\], want an object"),
        ({"lineage": 5}, "lineage is 5, want an object"),
        ({"outbox_place": "/o"}, "unknown option 'outbox_place'; did you mean 'outbox_location'?"),
        ({"outbox_max_bytes": 1}, "unknown option 'outbox_max_bytes'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        resolved(**arguments)


def test_wrong_converter_options_are_named() -> None:
    with pytest.raises(SettingsError, match="unknown lineage setting 'tag'; did you mean 'tags'"):
        resolved(lineage={"tag": "a"})


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("lineage_on_failure", "never", "lineage_on_failure is 'never'"),
        ("lineage_timeout", "long", "lineage_timeout is 'long'"),
        ("lineage", "{", r"\[spark_datahub\] lineage is not valid JSON"),
    ],
)
def test_wrong_configuration_is_named(monkeypatch: pytest.MonkeyPatch, option: str, value: str, message: str) -> None:
    configure(monkeypatch, option, value)
    with pytest.raises(OptionError, match=message):
        resolved()


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (True, True),
        (False, False),
        ("true", True),
        (" No ", False),
        ("1", True),
        ("0", False),
        ("False", False),
        ("off", False),
        ("on", True),
    ],
)
def test_the_argument_enabled_overrides_the_configuration(
    monkeypatch: pytest.MonkeyPatch, argument: object, expected: bool
) -> None:
    configure(monkeypatch, "enabled", str(not expected))
    assert configuration().is_enabled(argument) is expected
    assert configuration().is_enabled(None) is not expected


@pytest.mark.parametrize("argument", ["maybe", "", 2])
def test_a_wrong_switch_is_named(argument: object) -> None:
    with pytest.raises(OptionError, match=f"enabled is {argument!r}, want true or false"):
        configuration().is_enabled(argument)


def test_limits_of_the_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "outbox_max_bytes", "1e6")
    assert configuration().outbox_limits() == OutboxLimits(1_000_000)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1 GB"])
def test_a_limit_must_be_a_number_above_zero(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    configure(monkeypatch, "outbox_max_bytes", value)
    with pytest.raises(OptionError, match=f"outbox_max_bytes is '{value}', want a number above 0"):
        resolved()

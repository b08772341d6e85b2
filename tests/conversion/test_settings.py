"""The converter's settings from plain values, under our names and those of the Java listener."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from datahub.metadata.schema_classes import FabricTypeClass

from airflow_provider_spark_datahub.conversion import LineageSettings, SettingsError
from airflow_provider_spark_datahub.conversion.settings import ENVIRONMENTS, PathSpec
from tests.cases import cases, tables
from tests.conversion.builders import Json


def read(*layers: Any) -> LineageSettings:
    return LineageSettings.from_mapping(*layers)


def with_values(values: Json) -> LineageSettings:
    """Return the settings with these plain values."""
    typed: Json = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    namespaces = {
        name: PathSpec("", **place) for name, place in values.get("namespaces", {}).items()
    }
    specs = path_specs(values.get("path_specs", ()))
    return LineageSettings(**typed | {"path_specs": specs, "namespaces": namespaces})


def path_specs(specs: Any) -> tuple[PathSpec, ...]:
    return tuple(
        PathSpec(**spec | {"path_spec_list": tuple(spec.get("path_spec_list", ()))})
        for spec in specs
    )


@cases("settings", "settings_from_text")
def test_every_setting_can_be_read_from_text_and_again(
    setting: str, text: str, expected: Any
) -> None:
    found, wanted = read({setting: text}), with_values({setting: expected})
    assert found == wanted != LineageSettings()
    assert read({setting: getattr(found, setting)}) == wanted


def test_each_setting_has_a_case() -> None:
    settable = [setting.name for setting in fields(LineageSettings) if setting.metadata]
    _, *rows = tables("settings")["settings_from_text"]
    assert {row[0] for row in rows} == {*settable}
    assert read(dict.fromkeys(settable)) == LineageSettings(), "no value means the default"


def test_defaults_are_the_java_listeners() -> None:
    defaults = LineageSettings()
    assert (defaults.env, defaults.catalog_platforms) == ("PROD", {})
    assert (defaults.coalesce_jobs, defaults.use_patch, defaults.capture_column_level_lineage) == (
        True,
        False,
        True,
    )
    assert (defaults.datasets, defaults.dataset_details) == ("written", ())  # Deviation 27
    # Deviation 11.
    assert defaults.default_schemas == {"postgres": "public", "mssql": "dbo"}


def test_environments_are_those_of_datahub() -> None:
    assert set(ENVIRONMENTS) == {name for name in vars(FabricTypeClass) if name.isupper()}


@cases("settings")
def test_errors_name_the_mistake(options: Any, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read(options)
    assert message in str(raised.value)


@cases("settings")
def test_path_specs_are_read(options: Json, expected: list[Json]) -> None:
    assert read(options).path_specs == path_specs(expected)


@cases("settings")
def test_booleans_have_many_spellings(text: str, expected: bool) -> None:
    assert read({"coalesce_jobs": text}).coalesce_jobs is expected


@cases("settings")
def test_the_flow_of_an_application_is_known_from_settings(
    pipeline_name: str | None, expected: str
) -> None:
    assert LineageSettings(pipeline_name=pipeline_name).flow_id("shop") == expected
    suffixed = LineageSettings(pipeline_name=pipeline_name, suffixed_name="shop")
    assert suffixed.flow_id("shop-x1y2z3a4") == expected
    if pipeline_name is None:
        others = (
            "shop-x1y2z3a4b",
            "shop-Europe-x1y2z3a4",
            "shop-ABCDEFGH",
            "bank-x1y2z3a4",
            "shop-",
            "shop",
        )
        assert [suffixed.flow_id(name) for name in others] == list(others)
    unnamed = LineageSettings(pipeline_name=pipeline_name, unnamed_as="shop")
    names = (
        "pyspark-shell",
        "SparkSQL::10.0.0.1",
        "Spark shell",
        "cli.py",
        "cli_py",
        "None",
        "none",
    )
    assert {unnamed.flow_id(name) for name in names} == {expected}


@cases("settings")
def test_later_layers_override_earlier_ones(layers: list[Json], expected: Json) -> None:
    assert read(*layers) == with_values(expected)


# -- Names that the Java listener has for settings


def nested(dotted: str, value: object) -> Json:
    first, dot, rest = dotted.partition(".")
    return {first: nested(rest, value) if dot else value}


@cases("settings")
def test_the_listeners_names_are_understood(name: str, text: str, expected: Json) -> None:
    for options in (
        {f"spark.datahub.{name}": text},
        {name: text},
        nested(f"spark.datahub.{name}", text),
    ):
        assert read(options) == with_values(expected)
        assert LineageSettings.notes(options) == []


@cases("settings")
def test_the_listeners_two_settings_are_the_setting_datasets(
    layers: list[Json], datasets: str
) -> None:
    assert read(*layers).datasets == datasets


def test_the_alias_of_hive_is_below_the_platforms_by_catalogue() -> None:
    found = read(
        {"catalog_platforms": {"delta": "delta-lake"}},
        {"metadata.dataset.hivePlatformAlias": "glue"},
    )
    assert found.catalog_platforms == {"*": "glue", "delta": "delta-lake"}


@cases("settings")
@pytest.mark.parametrize("prefix", ["spark.datahub.", ""])
def test_settings_without_effect_have_a_note(name: str, prefix: str, part_of_the_note: str) -> None:
    options = {prefix + name: r"s3cr\\t"}
    assert read(options) == LineageSettings()
    (note,) = LineageSettings.notes(options)
    assert note.startswith(f"{prefix}{name} ")
    assert part_of_the_note in note
    assert "s3cr" not in note


def test_the_instance_that_the_listener_ignores_has_a_note() -> None:
    assert read({"spark.datahub.platformInstance": "eu"}) == LineageSettings()
    (note,) = LineageSettings.notes({"spark.datahub.platformInstance": "eu"})
    assert "set metadata.pipeline.platformInstance" in note


def test_missing_values_have_no_note() -> None:
    options = {"spark.datahub.rest.token": None, "spark.datahub.platform.s3.env": None}
    assert read(options) == LineageSettings()
    assert LineageSettings.notes(options) == []


def test_notes_of_all_layers_appear_once() -> None:
    found = LineageSettings.notes(
        {"streaming_job": True}, {"streaming_job": False, "emitter": "rest"}
    )
    assert [note.split()[0] for note in found] == ["streaming_job", "emitter"]


@cases("settings")
def test_the_name_of_the_flow_is_translated(
    options: dict[str, str], flow: str, instance: str | None
) -> None:
    found = read({f"spark.datahub.{name}": text for name, text in options.items()})
    assert (found.flow_id("a,b"), found.platform_instance) == (flow, instance)


def test_the_listeners_list_of_aliases_has_no_effect() -> None:
    options = {"platform.s3.lake.env": "QA", "platform.s3.path_alias_list": "lake"}
    assert read(options).path_specs == (PathSpec("s3", env="QA", alias="lake"),)
    (note,) = LineageSettings.notes(options)
    assert note.startswith("platform.s3.path_alias_list has no effect")


@cases("settings")
def test_backslashes_of_patterns_are_translated(
    name: str, text: str, pattern: str, has_note: bool
) -> None:
    assert read({name: text}).file_partition_regexp == pattern
    assert bool(LineageSettings.notes({name: text})) is has_note


@cases("settings")
def test_two_spellings_of_one_setting_may_agree(options: Json) -> None:
    assert read(options) != LineageSettings()


@cases("settings")
def test_two_spellings_of_one_setting_must_not_disagree(first: Json, second: Json) -> None:
    with pytest.raises(SettingsError) as raised:
        read(first | second)
    message = f"{next(iter(first))} and {next(iter(second))} are two spellings of one setting and disagree"
    assert str(raised.value).startswith(message)


def test_two_spellings_of_path_specs_must_not_disagree() -> None:
    with pytest.raises(SettingsError, match=r"^path_specs and platform are two spellings"):
        read({"path_specs": {"s3": "s3://b/{table}"}, "spark.datahub.platform.s3.env": "QA"})

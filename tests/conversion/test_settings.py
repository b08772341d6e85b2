"""The converter's settings from plain values."""

from __future__ import annotations

from typing import Any

import pytest
from datahub.metadata.schema_classes import FabricTypeClass

from airflow_provider_spark_datahub.conversion.setting_names import SettingsError
from airflow_provider_spark_datahub.conversion.settings import (
    ENVIRONMENTS,
    LineageSettings,
    PathSpec,
)

JOB_URN = "urn:li:dataJob:(urn:li:dataFlow:(airflow,dag,prod),task)"

FROM_TEXT: dict[str, tuple[str, Any]] = {
    "max_string_length": ("5000", 5_000),
    "capture_evidence": ("true", True),
    "capture_streaming": ("true", True),
    "capture_lost_executions": ("true", True),
    "capture_from_event_log": ("true", True),
    "capture_columns_from_sql": ("true", True),
    "capture_operations": ("true", True),
    "dataset_details": ("owners,tags", ("owners", "tags")),
    "capture_test_results": ("true", True),
    "orchestrator": (" spark ", "spark"),
    "pipeline_name": ("shop", "shop"),
    "platform_instance": ("eu", "eu"),
    "owners": ("jane, urn:li:corpGroup:data ,", ("jane", "urn:li:corpGroup:data")),
    "tags": ("daily,spark", ("daily", "spark")),
    "domains": ("urn:li:domain:sales", ("urn:li:domain:sales",)),
    "coalesce_jobs": ("false", False),
    "use_patch": ("TRUE", True),
    "parent_job_urn": (JOB_URN, JOB_URN),
    "enhanced_merge_into_extraction": ("yes", True),
    "capture_spark_plan": ("1", True),
    "env": ("dev", "DEV"),
    "dataset_platform_instance": ("lake", "lake"),
    "catalog_platforms": ('{"delta": "delta-lake"}', {"delta": "delta-lake"}),
    "disable_symlink_resolution": ("true", True),
    "lower_case_dataset_urns": ("true", True),
    "default_schemas": ('{"redshift": "dev"}', {"redshift": "dev"}),
    "path_specs": ('{"s3": ["s3://b/{table}"]}', (PathSpec("s3", ("s3://b/{table}",)),)),
    "file_partition_regexp": ("/dt=.*", "/dt=.*"),
    "datasets": ("schemas", "schemas"),
    "capture_column_level_lineage": ("no", False),
}


@pytest.mark.parametrize("option", sorted(LineageSettings.settable()))
def test_every_setting_can_be_read_from_text(option: str) -> None:
    text, expected = FROM_TEXT[option]
    assert getattr(LineageSettings.from_mapping({option: text}), option) == expected
    assert expected != getattr(LineageSettings(), option)


@pytest.mark.parametrize("option", FROM_TEXT)
def test_values_that_were_read_can_be_read_again(option: str) -> None:
    expected = FROM_TEXT[option][1]
    assert getattr(LineageSettings.from_mapping({option: expected}), option) == expected


def test_no_value_means_the_default() -> None:
    assert LineageSettings.from_mapping(dict.fromkeys(FROM_TEXT)) == LineageSettings()


def test_defaults_are_the_java_listeners() -> None:
    defaults = LineageSettings()
    assert (defaults.env, defaults.catalog_platforms) == ("PROD", {})
    assert (defaults.coalesce_jobs, defaults.use_patch, defaults.capture_column_level_lineage) == (True, False, True)
    assert (defaults.datasets, defaults.dataset_details) == ("none", ())
    # Deviation 11.
    assert defaults.default_schemas == {"postgres": "public", "mssql": "dbo"}


def test_environments_are_those_of_datahub() -> None:
    names = {name for name in vars(FabricTypeClass) if name.isupper()}
    assert set(ENVIRONMENTS) == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_patches": True}, "unknown lineage setting 'use_patches'; did you mean 'use_patch'?"),
        ({"platforminstance": "x"}, "did you mean 'platform_instance'?"),
        ({7: 1}, "the name of a lineage setting must be text, not 7"),
        ({"zzz": 1}, "known are capture_column_level_lineage, "),
        ({"env": "PRODUCTION"}, "env is 'PRODUCTION', want one of DEV, TEST"),
        ({"env": "PRODUCTION"}, "; did you mean 'PROD'?"),
        ({"env": ""}, "env is '', want one of"),
        ({"use_patch": "maybe"}, "use_patch is 'maybe', want true or false"),
        ({"use_patch": 1}, "use_patch is 1, want true or false"),
        ({"max_string_length": 99}, "max_string_length is 99, want a whole number of characters, 100 at least"),
        ({"datasets": "all"}, "datasets is 'all', want one of none, keys, schemas"),
        ({"datasets": "keys", "materializeDataset": False}, "datasets and materializeDataset are two spellings"),
        ({"dataset_details": "owner"}, "dataset_details is 'owner', want some of documentation, owners, tags"),
        ({"unnamed_as": "shop"}, "unknown lineage setting 'unnamed_as'"),
        ({"pipeline_name": 7}, "pipeline_name is 7, want text"),
        ({"tags": [1]}, "tags is [1], want a list of texts"),
        ({"catalog_platforms": {"a": 1}}, "catalog_platforms is {'a': 1}, want an object of texts"),
        ({"catalog_platforms": "a=b"}, "catalog_platforms is 'a=b', want JSON"),
        ({"parent_job_urn": "task"}, "parent_job_urn is 'task', want the URN of a DataJob"),
        ({"file_partition_regexp": "("}, "file_partition_regexp is '(', want a regular expression"),
        ({"path_specs": ["x"]}, "path_specs is ['x'], want an object"),
        ({"path_specs": {"s3": 1}}, "path_specs.s3 is 1, want {path_spec_list"),
        (
            {"path_specs": {"s3": {"a": {"path_spec": []}}}},
            "unknown setting path_specs.s3.a.path_spec; did you mean 'path_spec_list'?",
        ),
        ({"path_specs": {"s3": {"env": "DEV", "zz": 1}}}, "unknown setting path_specs.s3.zz; known are env, "),
        (
            {"path_specs": {"s3": {"platform_instance": "a", "platformInstance": "b"}}},
            "path_specs.s3.platformInstance contradicts path_specs.s3's other spelling of platform_instance",
        ),
        ({"path_specs": {"s3": {"a": {"env": "X"}}}}, "path_specs.s3.a.env is 'X', want one of"),
        ({"path_specs": {"s3": "s3://b/t"}}, "path_specs.s3: the path spec 's3://b/t' has no folder {table}"),
    ],
)
def test_errors_name_the_mistake(options: Any, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        LineageSettings.from_mapping(options)
    assert message in str(raised.value)


PATTERN = "s3://b/{table}"


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ({"s3": PATTERN}, [PathSpec("s3", (PATTERN,))]),
        ({"s3": {"path_spec_list": [PATTERN], "env": "dev"}}, [PathSpec("s3", (PATTERN,), env="DEV")]),
        ({"s3": {"path_spec_list": PATTERN, "env": None}}, [PathSpec("s3", (PATTERN,))]),
        (
            {"s3": {"raw": {"platform_instance": "eu"}, "out": [PATTERN]}},
            [PathSpec("s3", platform_instance="eu", alias="raw"), PathSpec("s3", (PATTERN,), alias="out")],
        ),
        (
            {"s3": [{"env": "QA"}, {"path_spec_list": [PATTERN]}]},
            [PathSpec("s3", env="QA"), PathSpec("s3", (PATTERN,))],
        ),
        ({"s3": PATTERN, "hive": {"env": "QA"}}, [PathSpec("s3", (PATTERN,)), PathSpec("hive", env="QA")]),
    ],
)
def test_path_specs_are_read(spelled: Any, expected: list[PathSpec]) -> None:
    assert LineageSettings.from_mapping({"path_specs": spelled}).path_specs == tuple(expected)


@pytest.mark.parametrize(("text", "expected"), [("on", True), ("Off", False), ("no", False), ("1", True)])
def test_booleans_have_many_spellings(text: str, expected: bool) -> None:
    assert LineageSettings.from_mapping({"coalesce_jobs": text}).coalesce_jobs is expected


@pytest.mark.parametrize(
    ("pipeline_name", "expected"),
    [(None, "shop"), ("mine", "mine"), ("eu.{application}", "eu.shop"), ("{a} {{x}}", "{a} {{x}}")],
)
def test_the_flow_of_an_application_is_known_from_settings(pipeline_name: str | None, expected: str) -> None:
    assert LineageSettings(pipeline_name=pipeline_name).flow_id("shop") == expected
    suffixed = LineageSettings(pipeline_name=pipeline_name, suffixed_name="shop")
    assert suffixed.flow_id("shop-x1y2z3a4") == expected
    if pipeline_name is None:
        others = ("shop-x1y2z3a4b", "shop-Europe-x1y2z3a4", "shop-ABCDEFGH", "bank-x1y2z3a4", "shop-", "shop")
        assert [suffixed.flow_id(name) for name in others] == list(others)
    unnamed = LineageSettings(pipeline_name=pipeline_name, unnamed_as="shop")
    names = ("pyspark-shell", "SparkSQL::10.0.0.1", "Spark shell", "cli.py", "cli_py")
    assert {unnamed.flow_id(name) for name in names} == {expected}


SHARED_INSTANCE = {"spark.datahub.metadata.pipeline.platformInstance": "eu"}


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([{"use_patch": True, "env": "DEV"}, {"use_patch": False}], {"env": "DEV"}),
        ([{"use_patch": True}, {"use_patch": None}], {}),
        ([{"spark.datahub.patch.enabled": "true"}, {"usePatch": False}], {}),
        ([{"path_specs": {"s3": PATTERN}}, {"platform.hive.env": "QA"}], {"path_specs": (PathSpec("hive", env="QA"),)}),
        # The instance of all tasks, and the flow name of one.
        ([SHARED_INSTANCE, {"flow_name": "shop"}], {"pipeline_name": "eu.shop", "platform_instance": "eu"}),
        ([{"pipeline_name": "all"}, {"flow_name": "shop"}], {"pipeline_name": "shop"}),
        ([{"flow_name": "all"}, {"pipeline_name": "shop"}], {"pipeline_name": "shop"}),
        ([{"databricks.cluster": "c"}, {"pipeline_name": "shop"}], {"pipeline_name": "shop"}),
        ([SHARED_INSTANCE, {"pipeline_name": "shop"}], {"pipeline_name": "shop", "platform_instance": "eu"}),
        ([SHARED_INSTANCE, {"platform_instance": "us"}], {"platform_instance": "us"}),
        ([SHARED_INSTANCE, {"platform_instance": None}], {}),
        (
            [{"platform_instance": "us"}, SHARED_INSTANCE],
            {"pipeline_name": "eu.{application}", "platform_instance": "eu"},
        ),
    ],
)
def test_later_layers_override_earlier_ones(layers: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert LineageSettings.from_mapping(*layers) == LineageSettings(**expected)


def test_the_environment_sets_the_limit_as_for_gms() -> None:
    given = LineageSettings.environment_layer({"INGESTION_MAX_SERIALIZED_STRING_LENGTH": "20000000", "HOME": "/"})
    assert LineageSettings.from_mapping(given).max_string_length == 20_000_000
    assert LineageSettings.from_mapping(given, {"max_string_length": 500}).max_string_length == 500


@pytest.mark.parametrize("environment", [{}, {"INGESTION_MAX_SERIALIZED_STRING_LENGTH": " "}])
def test_without_a_limit_in_the_environment_the_default_counts(environment: dict[str, str]) -> None:
    assert LineageSettings.from_mapping(LineageSettings.environment_layer(environment)) == LineageSettings()


def test_a_wrong_limit_in_the_environment_is_an_error() -> None:
    with pytest.raises(SettingsError, match="INGESTION_MAX_SERIALIZED_STRING_LENGTH is 'much', want a whole number"):
        LineageSettings.environment_layer({"INGESTION_MAX_SERIALIZED_STRING_LENGTH": "much"})

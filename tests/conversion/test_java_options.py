"""Settings under the names of DataHub's Java listener, of its converter and of GMS."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.setting_names import SettingsError
from airflow_provider_spark_datahub.conversion.settings import LineageSettings, PathSpec

JOB_URN = "urn:li:dataJob:(urn:li:dataFlow:(airflow,dag,prod),task)"
PATTERN = "s3://b/{table}"

# Name without its prefix, text as in spark-defaults.conf, and our settings.
LISTENER: list[tuple[str, str, dict[str, Any]]] = [
    ("coalesce_jobs", "false", {"coalesce_jobs": False}),
    ("patch.enabled", "true", {"use_patch": True}),
    ("disableSymlinkResolution", "true", {"disable_symlink_resolution": True}),
    ("captureColumnLevelLineage", "false", {"capture_column_level_lineage": False}),
    ("capture_spark_plan", "true", {"capture_spark_plan": True}),
    ("flow_name", "shop", {"pipeline_name": "shop"}),
    ("databricks.cluster", "c,1", {"pipeline_name": "c1_{application}"}),
    ("metadata.pipeline.platformInstance", "eu", {"platform_instance": "eu", "pipeline_name": "eu.{application}"}),
    ("metadata.dataset.env", "dev", {"env": "DEV"}),
    ("metadata.dataset.platformInstance", "lake", {"dataset_platform_instance": "lake"}),
    ("metadata.dataset.hivePlatformAlias", "glue", {"catalog_platforms": {"*": "glue"}}),
    ("metadata.dataset.lowerCaseUrns", "true", {"lower_case_dataset_urns": True}),
    ("metadata.dataset.materialize", "true", {"datasets": "keys"}),
    ("metadata.dataset.include_schema_metadata", "true", {}),
    ("metadata.dataset.experimental_include_schema_metadata", "true", {}),
    ("metadata.dataset.enableEnhancedMergeIntoExtraction", "true", {"enhanced_merge_into_extraction": True}),
    ("platform.s3.path_spec_list", f"{PATTERN},s3://c/*/{{table}}", {
        "path_specs": (PathSpec("s3", (PATTERN, "s3://c/*/{table}")),)}),
    ("platform.redshift.env", "PROD", {"path_specs": (PathSpec("redshift", env="PROD"),)}),
    ("platform.redshift.platformInstance", "eu", {"path_specs": (PathSpec("redshift", platform_instance="eu"),)}),
    ("file_partition_regexp", "/dt=.*", {"file_partition_regexp": "/dt=.*"}),
    ("parent.datajob_urn", JOB_URN, {"parent_job_urn": JOB_URN}),
    ("tags", "a,b", {"tags": ("a", "b")}),
    ("domains", "urn:li:domain:x", {"domains": ("urn:li:domain:x",)}),
]  # fmt: skip
CONVERTER: list[tuple[str, Any, dict[str, Any]]] = [
    ("pipelineName", "shop", {"pipeline_name": "shop"}),
    ("orchestrator", "glue", {"orchestrator": "glue"}),
    ("fabricType", "QA", {"env": "QA"}),
    ("commonDatasetEnv", "QA", {"env": "QA"}),
    ("platformInstance", "eu", {"platform_instance": "eu"}),
    ("commonDatasetPlatformInstance", "lake", {"dataset_platform_instance": "lake"}),
    ("pathSpecs", {"s3": [{"pathSpecList": [PATTERN], "platformInstance": "eu"}]}, {
        "path_specs": (PathSpec("s3", (PATTERN,), platform_instance="eu"),)}),
    ("filePartitionRegexpPattern", "/dt=.*", {"file_partition_regexp": "/dt=.*"}),
    ("materializeDataset", True, {"datasets": "keys"}),
    ("includeSchemaMetadata", True, {}),
    ("captureColumnLevelLineage", False, {"capture_column_level_lineage": False}),
    ("parentJobUrn", JOB_URN, {"parent_job_urn": JOB_URN}),
    ("usePatch", True, {"use_patch": True}),
    ("hivePlatformAlias", "glue", {"catalog_platforms": {"*": "glue"}}),
    ("disableSymlinkResolution", True, {"disable_symlink_resolution": True}),
    ("lowerCaseDatasetUrns", True, {"lower_case_dataset_urns": True}),
    ("enhancedMergeIntoExtraction", True, {"enhanced_merge_into_extraction": True}),
]  # fmt: skip
WITHOUT_EFFECT = {
    "log.mcps": "log level",
    "emitter": "its type, datahub-rest, datahub-kafka, datahub-file or datahub-object-store",
    "rest.server": "belongs in the Airflow connection: its host",
    "rest.token": "its password",
    "rest.disable_ssl_verification": "disable_ssl_verification in its extra",
    "rest.disable_chunked_encoding": "requests are not chunked",
    "rest.max_retries": "retry_max_times in its extra",
    "rest.retry_interval": "has no effect",
    "rest.retry_interval_in_sec": "has no effect",
    "file.filename": "the host of a datahub-file connection",
    "kafka.bootstrap": "datahub-kafka connection",
    "kafka.schema_registry_url": "datahub-kafka connection",
    "kafka.schema_registry_config.basic.auth": "datahub-kafka connection",
    "kafka.producer_config.client.id": "datahub-kafka connection",
    "kafka.mcp_topic": "datahub-kafka connection",
    **{f"s3.{part}": "datahub-object-store connection" for part in (
        "bucket", "prefix", "region", "profile", "endpoint", "access_key", "secret_key", "filename")},
    "stage_metadata_coalescing": "emit_periodically while it runs",
    "legacyLineageCleanup.enabled": "not implemented",
    "streaming_job": "lineage is delivered when the task ends",
    "streaming_heartbeat": "as in the Java listener",
    "metadata.remove_partition_pattern": "set file_partition_regexp",
    "metadata.include_scheme": "as in the Java listener",
    "platform": "set orchestrator",
}  # fmt: skip


def settings(options: Any) -> LineageSettings:
    return LineageSettings.from_mapping(options)


def nested(dotted: str, value: object) -> dict[str, Any]:
    first, dot, rest = dotted.partition(".")
    return {first: nested(rest, value) if dot else value}


@pytest.mark.parametrize(("name", "text", "expected"), LISTENER)
def test_the_listeners_names_are_understood(name: str, text: str, expected: dict[str, Any]) -> None:
    for options in ({f"spark.datahub.{name}": text}, {name: text}, nested(f"spark.datahub.{name}", text)):
        assert settings(options) == LineageSettings(**expected)
        assert LineageSettings.notes(options) == []


@pytest.mark.parametrize(("name", "value", "expected"), CONVERTER)
def test_the_converters_names_are_understood(name: str, value: object, expected: dict[str, Any]) -> None:
    assert settings({name: value}) == LineageSettings(**expected)


@pytest.mark.parametrize(
    ("layers", "datasets"),
    [
        ([{"materializeDataset": True, "includeSchemaMetadata": True}], "schemas"),
        (
            [{"metadata": {"dataset": {"materialize": "true", "experimental_include_schema_metadata": "true"}}}],
            "schemas",
        ),
        ([{"materializeDataset": True}, {"includeSchemaMetadata": True}], "schemas"),
        ([{"datasets": "keys"}, {"includeSchemaMetadata": True}], "schemas"),
        ([{"datasets": "schemas"}, {"materializeDataset": False}], "none"),
        ([{"materializeDataset": True, "includeSchemaMetadata": True}, {"datasets": "keys"}], "keys"),
    ],
)
def test_the_listeners_two_settings_are_the_setting_datasets(layers: list[dict[str, Any]], datasets: str) -> None:
    assert LineageSettings.from_mapping(*layers).datasets == datasets


def test_the_alias_of_hive_is_below_the_platforms_by_catalogue() -> None:
    layers = {"catalog_platforms": {"delta": "delta-lake"}}, {"hivePlatformAlias": "glue"}
    assert LineageSettings.from_mapping(*layers).catalog_platforms == {"*": "glue", "delta": "delta-lake"}


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
@pytest.mark.parametrize("prefix", ["spark.datahub.", ""])
def test_settings_without_effect_have_a_note(name: str, prefix: str) -> None:
    options = {prefix + name: r"s3cr\\t"}
    assert settings(options) == LineageSettings()
    (note,) = LineageSettings.notes(options)
    assert note.startswith(f"{prefix}{name} ")
    assert WITHOUT_EFFECT[name] in note
    assert "s3cr" not in note


@pytest.mark.parametrize("name", ["isSpark", "isStreaming", "removeLegacyLineage", "urnAliases"])
def test_converter_fields_without_effect_have_a_note(name: str) -> None:
    assert settings({name: {"a": 1}}) == LineageSettings()
    (note,) = LineageSettings.notes({name: {"a": 1}})
    assert note.startswith(f"{name} ")


def test_missing_values_have_no_note() -> None:
    options = {"spark.datahub.rest.token": None, "spark.datahub.platform.s3.env": None, "isSpark": None}
    assert settings(options) == LineageSettings()
    assert LineageSettings.notes(options) == []


def test_notes_of_all_layers_appear_once() -> None:
    found = LineageSettings.notes({"streaming_job": True}, {"streaming_job": False, "emitter": "rest"})
    assert [note.split()[0] for note in found] == ["streaming_job", "emitter"]


# As SparkConfigParser.getPipelineName composes it.
@pytest.mark.parametrize(
    ("options", "flow", "instance"),
    [
        ({}, "a,b", None),
        ({"flow_name": "shop"}, "shop", None),
        ({"flow_name": "shop", "metadata.pipeline.platformInstance": "eu"}, "eu.shop", "eu"),
        ({"metadata.pipeline.platformInstance": "eu"}, "eu.a,b", "eu"),
        ({"databricks.cluster": "c", "flow_name": "s,h"}, "c_sh", None),
        ({"databricks.cluster": "c", "flow_name": "s", "metadata.pipeline.platformInstance": "eu"}, "c_s", "eu"),
    ],
)
def test_the_name_of_the_flow_is_translated(options: dict[str, str], flow: str, instance: str | None) -> None:
    found = settings({f"spark.datahub.{name}": text for name, text in options.items()})
    assert (found.flow_id("a,b"), found.platform_instance) == (flow, instance)


LAKE = {"platform.s3.lake.path_spec_list": PATTERN}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LAKE, [PathSpec("s3", (PATTERN,), alias="lake")]),
        ({**LAKE, "platform.s3.lake.env": "QA"}, [PathSpec("s3", (PATTERN,), env="QA", alias="lake")]),
        (
            {"platform.s3.a.b.platform_instance": "eu", "platform.hive.env": "QA"},
            [PathSpec("s3", platform_instance="eu", alias="a.b"), PathSpec("hive", env="QA")],
        ),
        # An alias has what its platform has, and its own before that.
        (
            {**LAKE, "platform.s3.lake.env": "QA", "platform.s3.env": "DEV", "platform.s3.platformInstance": "eu"},
            [
                PathSpec("s3", (PATTERN,), env="QA", platform_instance="eu", alias="lake"),
                PathSpec("s3", env="DEV", platform_instance="eu"),
            ],
        ),
        (
            {"platform.s3.platformInstance": "eu", "platform.s3.x.platform_instance": "us"},
            [PathSpec("s3", platform_instance="eu"), PathSpec("s3", platform_instance="us", alias="x")],
        ),
    ],
)
def test_path_specs_are_translated(options: dict[str, str], expected: list[PathSpec]) -> None:
    assert settings(options).path_specs == tuple(expected)


def test_path_specs_that_the_listener_ignores_have_a_note() -> None:
    options = {
        **LAKE,
        "platform.s3.lake.env": "QA",
        "spark.datahub.platform.s3.platform_instance": "eu",
        "platform.s3.path_alias_list": "lake",
    }
    assert LineageSettings.notes(options) == [
        "platform.s3.lake.path_spec_list takes effect: the Java listener ignores the alias 'lake'",
        "spark.datahub.platform.s3.platform_instance takes effect: the Java listener reads platformInstance only",
        "platform.s3.path_alias_list has no effect: every alias that has settings of its own counts",
    ]


@pytest.mark.parametrize(
    ("name", "text", "pattern", "has_note"),
    [
        ("spark.datahub.file_partition_regexp", r"year=\\d+", r"year=\d+", True),
        # No escape of the listener's configuration language: it refuses the text.
        ("spark.datahub.file_partition_regexp", r"year=\d+", r"year=\d+", False),
        ("file_partition_regexp", r"a\\d+", r"a\\d+", False),
    ],
)
def test_backslashes_of_patterns_are_translated(name: str, text: str, pattern: str, has_note: bool) -> None:
    assert settings({name: text}).file_partition_regexp == pattern
    assert bool(LineageSettings.notes({name: text})) is has_note


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"platform-instance": "eu"}, {"platform_instance": "eu"}),
        ({"commonDatasetPlatformInstance": "lake"}, {"dataset_platform_instance": "lake"}),
        ({"env": "Dev"}, {"env": "DEV", "platform_instance": "dev"}),
        ({"env": "DEV", "common-dataset-env": "QA"}, {"env": "QA", "platform_instance": "dev"}),
        ({"env": "DEV", "platformInstance": "eu"}, {"env": "DEV", "platform_instance": "eu"}),
        ({"pipelineName": "shop", "platform": "spark", "env": None}, {}),
    ],
)
def test_the_names_of_gms_settings_are_understood(options: dict[str, Any], expected: dict[str, Any]) -> None:
    flat = {f"datahub.openlineage.{name}": text for name, text in options.items()}
    for spelled in (flat, {"datahub": {"openlineage": options}}):
        assert settings(spelled) == LineageSettings(**expected)
        assert len(LineageSettings.notes(spelled)) == len(options.keys() & {"pipelineName", "platform"})


@pytest.mark.parametrize(
    "options",
    [
        {"use_patch": True, "spark.datahub.patch.enabled": "true", "patch": {"enabled": "yes"}},
        {"env": "dev", "fabricType": "DEV", "datahub.openlineage.env": "DEV", "platform_instance": "x"},
        {"use_patch": None, "usePatch": True},
        {"flow_name": "a", "pipelineName": "a"},
        {"metadata.pipeline.platformInstance": "eu", "platform_instance": "eu"},
        {"platform.s3.env": "DEV", "spark.datahub.platform.s3.env": "DEV"},
    ],
)
def test_two_spellings_of_one_setting_may_agree(options: dict[str, Any]) -> None:
    assert settings(options) != LineageSettings()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"use_patch": True}, {"spark.datahub.patch.enabled": "false"}),
        ({"spark.datahub.metadata.dataset.env": "DEV"}, {"metadata.dataset.env": "QA"}),
        ({"env": "DEV"}, {"datahub.openlineage.env": "QA"}),
        ({"pipeline_name": "a"}, {"flow_name": "b"}),
        ({"pipelineName": "a"}, {"databricks.cluster": "b"}),
        ({"platform_instance": "a"}, {"metadata.pipeline.platformInstance": "b"}),
        ({"platform.s3.env": "DEV"}, {"spark.datahub.platform.s3.env": "QA"}),
    ],
)
def test_two_spellings_of_one_setting_must_not_disagree(first: dict[str, Any], second: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as raised:
        settings(first | second)
    message = f"{next(iter(first))} and {next(iter(second))} are two spellings of one setting and disagree"
    assert str(raised.value).startswith(message)


def test_two_spellings_of_path_specs_must_not_disagree() -> None:
    with pytest.raises(SettingsError, match=r"^path_specs and spark\.datahub\.platform are two spellings"):
        settings({"path_specs": {"s3": PATTERN}, "spark.datahub.platform.s3.env": "QA"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"spark.datahub.patch.enable": 1},
            "'spark.datahub.patch.enable'; did you mean 'spark.datahub.patch.enabled'?",
        ),
        ({"spark.datahub.dataset.env": "x"}, "did you mean 'spark.datahub.metadata.dataset.env'?"),
        ({"spark.datahub.rest.sever": "x"}, "did you mean 'spark.datahub.rest.server'?"),
        ({"spark.datahub.use_patch": True}, "did you mean 'use_patch'?"),
        ({"spark.datahub.usePatch": True}, "did you mean 'use_patch'?"),
        ({"metadata": {"dataset": {"enb": "x"}}}, "'metadata.dataset.enb'; did you mean 'metadata.dataset.env'?"),
        ({"usePach": True}, "did you mean 'usePatch'?"),
        ({"datahub.openlineage.environ": "x"}, "did you mean 'datahub.openlineage.env'?"),
        ({"datahub.openlineage.zzz": "x"}, "known are capture_column_level_lineage, "),
        ({"platform.s3.path_spec": "x"}, "did you mean 'platform.s3.path_spec_list'?"),
        ({"spark.datahub.platform.s3.x.zz": "x"}, "did you mean 'spark.datahub.platform.s3.x.path_spec_list'?"),
        ({"platform": {"s3": "s3://b/{table}"}}, "'platform.s3'; did you mean 'platform.s3.path_spec_list'?"),
        ({"foo": {}}, "unknown lineage setting 'foo'"),
        ({"metadata": {1: "x"}}, "the lineage setting metadata has the key 1, which must be text"),
        ({"spark.extraListeners": "x"}, "put it in the task's 'conf'"),
        ({"spark": {"openlineage": {"namespace": "x"}}}, "spark.openlineage.namespace is a Spark property"),
        ({"spark.datahub.metadata.dataset.env": "PRODUCTION"}, "spark.datahub.metadata.dataset.env is 'PRODUCTION', "),
        ({"coalesce_jobs": {"a": 1}}, "coalesce_jobs is {'a': 1}, want true or false"),
        ({"flow_name": 7}, "flow_name is 7, want text"),
        ({"datahub.openlineage.env": 7}, "datahub.openlineage.env is 7, want text"),
        ({"spark.datahub.platform.s3.lake.env": "X"}, "spark.datahub.platform.s3.lake.env is 'X', want one of"),
        ({"platform.s3.platformInstance": 7}, "platform.s3.platformInstance is 7, want text"),
        ({"platform.s3.path_spec_list": "s3://b/t"}, "platform.s3: the path spec 's3://b/t' has no folder {table}"),
    ],
)
def test_errors_name_the_mistake(options: Any, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        settings(options)
    assert message in str(raised.value)

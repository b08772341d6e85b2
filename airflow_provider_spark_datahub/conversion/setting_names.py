"""Names that DataHub's Java listener, its Java converter and GMS have for the converter's settings.

:func:`translate` accepts settings under any of these names and returns them under ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from airflow_provider_spark_datahub.foundation.text import nearest

_LISTENER_PREFIX = "spark.datahub."
_GMS_PREFIX = "datahub.openlineage."

APPLICATION = "{application}"
"""Placeholder for the application's own name in ``pipeline_name``."""

# Parts of a flow's name. The first two can name it without the others.
FLOW_NAME = "flow_name"
DATABRICKS_CLUSTER = "databricks.cluster"
PIPELINE_INSTANCE = "metadata.pipeline.platformInstance"
FLOW_PARTS = (FLOW_NAME, DATABRICKS_CLUSTER, PIPELINE_INSTANCE)
# Parts of catalog_platforms and of datasets.
HIVE_ALIAS = "metadata.dataset.hivePlatformAlias"
MATERIALIZE = "metadata.dataset.materialize"
INCLUDE_SCHEMA = "metadata.dataset.include_schema_metadata"


def _in_snake_case(*names: str) -> dict[str, str]:
    """Return our settings by their names elsewhere, if ours are the same in snake case."""
    return {name: re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name) for name in names}


# Spark properties of the Java listener without their prefix → our settings or parts of them. Path specs have
# names of their own.
_LISTENER_NAMES: Mapping[str, str] = {
    **{part: part for part in (*FLOW_PARTS, HIVE_ALIAS, MATERIALIZE, INCLUDE_SCHEMA)},
    **_in_snake_case("captureColumnLevelLineage", "capture_spark_plan", "coalesce_jobs", "disableSymlinkResolution"),
    **_in_snake_case("domains", "file_partition_regexp", "tags"),
    # The listener's key, and as its change (datahub#17594) announced it.
    **dict.fromkeys(("columnLineage.includeIndirect", "column_lineage.include_indirect"), "capture_indirect_columns"),
    "metadata.dataset.captureColumnLevelLineage": "capture_column_level_lineage",
    "metadata.dataset.enableEnhancedMergeIntoExtraction": "enhanced_merge_into_extraction",
    "metadata.dataset.env": "env",
    "metadata.dataset.experimental_include_schema_metadata": INCLUDE_SCHEMA,
    "metadata.dataset.lowerCaseUrns": "lower_case_dataset_urns",
    "metadata.dataset.platformInstance": "dataset_platform_instance",
    "metadata.table.hive_platform_alias": HIVE_ALIAS,
    "parent.datajob_urn": "parent_job_urn",
    "patch.enabled": "use_patch",
}

# Old names of the listener's properties: it prefers the others.
_OLD_NAMES = frozenset(
    {
        "metadata.dataset.captureColumnLevelLineage",
        "metadata.dataset.experimental_include_schema_metadata",
        "metadata.table.hive_platform_alias",
    }
)

# Properties of GMS's OpenLineage endpoint without their prefix → our settings. ``env`` has rules of its own.
_GMS_NAMES: Mapping[str, str] = {
    **_in_snake_case("captureColumnLevelLineage", "disableSymlinkResolution", "domains", "enhancedMergeIntoExtraction"),
    **_in_snake_case("lowerCaseDatasetUrns", "orchestrator", "pathSpecs", "platformInstance", "usePatch"),
    "commonDatasetEnv": "env",
    "commonDatasetPlatformInstance": "dataset_platform_instance",
    "connections": "namespaces",
    "filePartitionRegexpPattern": "file_partition_regexp",
    "hivePlatformAlias": HIVE_ALIAS,
    "includeIndirectColumnLineage": "capture_indirect_columns",
    "includeSchemaMetadata": INCLUDE_SCHEMA,
    "materializeDataset": MATERIALIZE,
}

# Fields of the Java converter's ``DatahubOpenlineageConfig`` → our settings.
_CONVERTER_NAMES: Mapping[str, str] = {
    **_GMS_NAMES,
    **_in_snake_case("parentJobUrn", "pipelineName"),
    "connectionInstanceMap": "namespaces",
    "fabricType": "env",
}

_NO_CLEANUP = "not implemented: edges that old listeners wrote onto datasets stay as they are"
_OF_THE_CONNECTION = "belongs in the Airflow connection: "
_KAFKA_PARTS = ("bootstrap", "mcp_topic", "producer_config", "schema_registry_config", "schema_registry_url")
_KAFKA = "has no effect here: delivery by Kafka is a datahub-kafka connection"
_S3_PARTS = ("access_key", "bucket", "endpoint", "filename", "prefix", "profile", "region", "secret_key")
_S3 = "has no effect here: delivery to S3 is a datahub-object-store connection"
_IN_THE_LOG = "has no effect any more: the default capture reads Spark's event log"
_RETRY_INTERVAL = "has no effect: the time between retries cannot be set"
_ENDS_KNOWN = (
    "has no effect: lineage is delivered when the task ends, however its Spark application ended, and with the "
    "operator's emit_periodically while it runs"
)

_ONELAKE_PARTS = ("Enabled", "ConvertUrnsToLowercase", "PlatformInstance", "ItemIds")
_FABRIC = "has no effect: tables of Microsoft Fabric have the names of other tables and paths"

# Spark properties that are accepted without effect, and why. Their values may be secret and are never shown.
_LISTENER_NOTES: Mapping[str, str] = {
    "emitter": _OF_THE_CONNECTION + "its type, datahub-rest, datahub-kafka, datahub-file or datahub-object-store",
    "file.filename": _OF_THE_CONNECTION + "the host of a datahub-file connection",
    **dict.fromkeys((f"kafka.{part}" for part in _KAFKA_PARTS), _KAFKA),
    "legacyLineageCleanup.enabled": _NO_CLEANUP,
    "log.mcps": "has no effect: set Airflow's log level to DEBUG to log every proposal that is sent",
    **{f"metadata.dataset.fabricOneLake.{part[0].lower()}{part[1:]}": _FABRIC for part in _ONELAKE_PARTS},
    "metadata.fabricNotebookFlowNames": _FABRIC,
    "metadata.include_scheme": "has no effect, as in the Java listener: names of paths have no scheme",
    "metadata.remove_partition_pattern": "has no effect, as in the Java listener: set file_partition_regexp",
    "platform": "has no effect, as in the Java listener: set orchestrator for the flow's platform",
    "platformInstance": "has no effect, as in the Java listener: set metadata.pipeline.platformInstance",
    "rest.disable_chunked_encoding": "has no effect: requests are not chunked",
    "rest.disable_ssl_verification": _OF_THE_CONNECTION + "disable_ssl_verification in its extra",
    "rest.max_retries": _OF_THE_CONNECTION + "retry_max_times in its extra",
    **dict.fromkeys(("rest.retry_interval", "rest.retry_interval_in_sec"), _RETRY_INTERVAL),
    "rest.server": _OF_THE_CONNECTION + "its host",
    "rest.token": _OF_THE_CONNECTION + "its password",
    **dict.fromkeys((f"s3.{part}" for part in _S3_PARTS), _S3),
    "stage_metadata_coalescing": _ENDS_KNOWN,
    "streaming_heartbeat": "has no effect, as in the Java listener",
    "streaming_job": _ENDS_KNOWN,
}
_GMS_NOTES: Mapping[str, str] = {
    "pipelineName": "has no effect, as in GMS: set pipeline_name",
    "platform": _LISTENER_NOTES["platform"],
    "maxBatchSize": "has no effect: the sinks know how much DataHub accepts at once",
    "removeLegacyLineage": _NO_CLEANUP,
    **dict.fromkeys((f"fabricOnelake{part}" for part in _ONELAKE_PARTS), _FABRIC),
}
_CONVERTER_NOTES: Mapping[str, str] = {
    **dict.fromkeys(("capture_from_event_log", "capture_lost_executions", "capture_streaming"), _IN_THE_LOG),
    "capture_columns_from_sql": "has no effect any more: statements are read if sqlglot is installed",
    "capture_operations": "has no effect any more: operations are always written",
    **dict.fromkeys((f"fabricOneLake{part}" for part in _ONELAKE_PARTS), _FABRIC),
    "fabricNotebookFlowNames": _FABRIC,
    "isSpark": "has no effect: the events show it",
    "isStreaming": "has no effect, as in the Java converter",
    "removeLegacyLineage": _NO_CLEANUP,
    "urnAliases": "has no effect: the symlinks in the events are used",
}

# Names and notes by the prefix of a setting. Without any, it may be the converter's or the listener's.
_NAMES: Mapping[str, Mapping[str, str]] = {
    _GMS_PREFIX: _GMS_NAMES,
    _LISTENER_PREFIX: _LISTENER_NAMES,
    "": {**_LISTENER_NAMES, **_CONVERTER_NAMES},
}
_NOTES: Mapping[str, Mapping[str, str]] = {
    _GMS_PREFIX: _GMS_NOTES,
    _LISTENER_PREFIX: _LISTENER_NOTES,
    "": {**_LISTENER_NOTES, **_CONVERTER_NOTES},
}

_CONNECTIONS = "metadata.dataset.connections."
_OPEN_ENDED = ("kafka.producer_config.", "kafka.schema_registry_config.")
_SPEC_KEYS = ("env", "path_alias_list", "path_spec_list", "platformInstance", "platform_instance")
_INSTANCE_KEYS = {"platformInstance", "platform_instance"}


class SettingsError(ValueError):
    """Setting that does not exist or has a wrong value; the message names it and says what to write instead."""

    @classmethod
    def contradiction(cls, first: str, second: str) -> SettingsError:
        """Return the error for two spellings of one setting that have different values."""
        return cls(f"{first} and {second} are two spellings of one setting and disagree; keep one of them")


class _GivenSetting(NamedTuple):
    """Value of a setting under our name or one of :data:`FLOW_PARTS`.

    :param spelling: the name as the user wrote it.
    """

    name: str
    spelling: str
    value: object


def translate(settings: Mapping[str, Any], own: Collection[str]) -> tuple[list[_GivenSetting], list[str]]:
    """Translate settings in any spelling, flat or nested, to our names. Values stay as they are.

    :param own: our names of settings.
    :returns: the settings, and a sentence on each that was accepted but does not do what its name says.
    :raises SettingsError: if a name is unknown; the message suggests the nearest one.
    """
    translator = _Translator(own)
    for name, value in settings.items():
        for spelling, leaf in translator.leaves(name, value):
            translator.add(spelling, leaf)
    return translator.finish()


class _Translator:
    """Translation of one layer of settings."""

    def __init__(self, own: Collection[str]) -> None:
        self._own = own
        self._given: list[_GivenSetting] = []
        self._notes: list[str] = []
        self._gms_env: _GivenSetting | None = None
        self._specs_spelling = ""
        self._namespaces: dict[str, dict[str, tuple[str, object]]] = {}
        # platform → alias (empty: the platform itself) → part of the spec → how it was spelled, its value
        self._specs: dict[str, dict[str, dict[str, tuple[str, object]]]] = {}

    def leaves(self, name: object, value: object) -> Iterator[tuple[str, object]]:
        """Yield dotted names and values. An object that is the value of a setting stays whole."""
        if not isinstance(name, str):
            raise SettingsError(f"the name of a lineage setting must be text, not {name!r}")
        if isinstance(value, Mapping) and value and not self._is_setting(name):
            for key, below in value.items():
                if not isinstance(key, str):
                    raise SettingsError(f"the lineage setting {name} has the key {key!r}, which must be text")
                yield from self.leaves(f"{name}.{key}", below)
        else:
            yield name, value

    def _is_setting(self, spelling: str) -> bool:
        prefix, name = _split(spelling)
        # "platform" with a text is a setting without effect; with an object, it holds the path specs.
        return spelling in self._own or (name != "platform" and (name in _NAMES[prefix] or name in _NOTES[prefix]))

    def add(self, spelling: str, value: object) -> None:
        prefix, name = _split(spelling)
        if prefix == _LISTENER_PREFIX:
            value = self._unescaped(spelling, name, value)
        group = next((group.rstrip(".") for group in _OPEN_ENDED if name.startswith(group)), name)
        if spelling in self._own:
            self._give(spelling, spelling, value)
        elif name in _NAMES[prefix]:
            self._give(_NAMES[prefix][name], spelling, value)
        elif group in _NOTES[prefix]:
            self._note(spelling, _NOTES[prefix][group], value)
        elif prefix == _GMS_PREFIX and name == "env":
            self._gms_env = _GivenSetting("env", spelling, value) if value is not None else None
        elif prefix != _GMS_PREFIX and name.startswith("platform."):
            self._add_path_spec(spelling, name, value)
        elif prefix != _GMS_PREFIX and name.startswith(_CONNECTIONS):
            self._add_namespace(spelling, name, value)
        else:
            raise self._unknown(spelling, prefix, name)

    def _add_path_spec(self, spelling: str, name: str, value: object) -> None:
        if name.count(".") < 2:
            raise _unknown_setting(spelling, f"{spelling}.path_spec_list", self._own)
        _, platform, *middle, key = name.split(".")
        alias = ".".join(middle)
        if key not in _SPEC_KEYS:
            close = nearest(key, _SPEC_KEYS) or "path_spec_list"
            raise _unknown_setting(spelling, spelling.removesuffix(key) + close, self._own)
        if value is None:
            return
        if key == "path_alias_list":
            self._note(spelling, "has no effect: every alias that has settings of its own counts", value)
            return
        aliases = self._specs.setdefault(platform, {})
        if alias and alias not in aliases:
            self._note(spelling, f"takes effect: the Java listener ignores the alias {alias!r}", value)
        elif key == "platform_instance" and not alias:
            self._note(spelling, "takes effect: the Java listener reads platformInstance only", value)
        self._specs_spelling = self._specs_spelling or spelling.removesuffix(name.removeprefix("platform"))
        _keep(aliases.setdefault(alias, {}), key, spelling, value)

    def _add_namespace(self, spelling: str, name: str, value: object) -> None:
        namespace, _, key = name.removeprefix(_CONNECTIONS).rpartition(".")
        if value is not None:
            _keep(self._namespaces.setdefault(namespace.strip('"'), {}), key, spelling, value)

    def finish(self) -> tuple[list[_GivenSetting], list[str]]:
        old = [setting for setting in self._given if _split(setting.spelling)[1] in _OLD_NAMES]
        for setting in old:
            if any(other.name == setting.name and other not in old for other in self._given):
                self._given.remove(setting)
                self._note(setting.spelling, "has no effect beside its new name", setting.value)
        if self._specs:
            specs = {platform: _inherited(aliases) for platform, aliases in self._specs.items()}
            self._give("path_specs", self._specs_spelling, specs)
        if self._namespaces:
            named = {namespace: _values(parts) for namespace, parts in self._namespaces.items()}
            self._give("namespaces", _CONNECTIONS.removesuffix("."), named)
        if self._gms_env is not None:
            self._finish_gms_env(self._gms_env)
        return self._given, self._notes

    def _finish_gms_env(self, env: _GivenSetting) -> None:
        """Name the flow's cluster after the environment if nothing else does, as GMS does."""
        known = [setting for setting in self._given if setting.value is not None]
        given = {setting.name for setting in known}
        if not any(setting.name == "env" and setting.spelling.startswith(_GMS_PREFIX) for setting in known):
            self._give("env", env.spelling, env.value)
        if not given & {"platform_instance", PIPELINE_INSTANCE}:
            cluster = env.value.lower() if isinstance(env.value, str) else env.value
            self._give("platform_instance", env.spelling, cluster)

    def _give(self, name: str, spelling: str, value: object) -> None:
        self._given.append(_GivenSetting(name, spelling, value))

    def _note(self, spelling: str, note: str, value: object) -> None:
        if value is not None:
            self._notes.append(f"{spelling} {note}")

    def _unescaped(self, spelling: str, name: str, value: object) -> object:
        r"""Return the value as the listener reads it: a quoted text, in which ``year=\\d+`` means ``year=\d+``."""
        # Values of other settings may be secret: no note may show them.
        has_effect = name in _LISTENER_NAMES or name.startswith(("platform.", _CONNECTIONS))
        if not has_effect or not isinstance(value, str) or "\\" not in value:
            return value
        try:
            text = json.loads(f'"{value}"')
        except ValueError:
            # The listener refuses such a text, so it never had another meaning.
            return value
        self._note(spelling, f"is read as {text!r}: a backslash is an escape in the Java listener's properties", value)
        return text

    def _unknown(self, spelling: str, prefix: str, name: str) -> SettingsError:
        if not prefix and name.startswith("spark."):
            return SettingsError(f"{spelling} is a Spark property, not a lineage setting: put it in the task's 'conf'")
        elsewhere = [*_NAMES[prefix], *_NOTES[prefix], *(["env"] if prefix == _GMS_PREFIX else [])]
        # Only the listener's names have dots.
        own = [] if prefix == _GMS_PREFIX or "." in name else self._own
        close = nearest(name, dict.fromkeys([*own, *elsewhere]))
        if close in elsewhere:
            close = f"{prefix}{close}"
        return _unknown_setting(spelling, close, self._own)


def _split(spelling: str) -> tuple[str, str]:
    """Return the prefix of a setting's name, and the rest of it."""
    prefix = next(prefix for prefix in _NAMES if spelling.startswith(prefix))
    name = spelling.removeprefix(prefix)
    # Spring reads common-dataset-env as commonDatasetEnv.
    return prefix, re.sub("-(.)", lambda found: found[1].upper(), name) if prefix == _GMS_PREFIX else name


def _unknown_setting(spelling: str, close: str | None, own: Collection[str]) -> SettingsError:
    hint = f"did you mean {close!r}?" if close else f"known are {', '.join(sorted(own))}"
    return SettingsError(f"unknown lineage setting {spelling!r}; {hint}")


def _values(parts: Mapping[str, tuple[str, object]]) -> dict[str, object]:
    return {key: value for key, (_, value) in parts.items()}


def _keep(parts: dict[str, tuple[str, object]], key: str, spelling: str, value: object) -> None:
    first, given = parts.setdefault(key, (spelling, value))
    if given != value:
        raise SettingsError.contradiction(first, spelling)


def _inherited(aliases: Mapping[str, Mapping[str, tuple[str, object]]]) -> dict[str, dict[str, object]]:
    """Return a platform's specs by alias. An alias without an env or instance has the platform's."""
    level = {key: value for key, (_, value) in aliases.get("", {}).items() if key != "path_spec_list"}
    specs: dict[str, dict[str, object]] = {}
    for alias, described in aliases.items():
        spec = _values(described)
        hidden = _INSTANCE_KEYS if spec.keys() & _INSTANCE_KEYS else set()
        specs[alias] = {key: value for key, value in level.items() if key not in hidden} | spec
    return specs

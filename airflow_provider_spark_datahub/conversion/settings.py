"""The names that DataHub's Java listener, its converter and GMS have for the converter's options.

The converter's options: one typed, validated model (conversion rules; names as there).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from airflow_provider_spark_datahub.conversion import paths, setting_values as readers
from airflow_provider_spark_datahub.conversion.setting_values import ENVIRONMENTS, SettingsError, nearest

LISTENER_PREFIX = "spark.datahub."
GMS_PREFIX = "datahub.openlineage."

APPLICATION = "{application}"
"""Stands for the application's own name in ``pipeline_name``."""

# Together they name the flow; only the first two do so by themselves.
FLOW_NAME = "flow_name"
DATABRICKS_CLUSTER = "databricks.cluster"
PIPELINE_INSTANCE = "metadata.pipeline.platformInstance"
FLOW_PARTS = (FLOW_NAME, DATABRICKS_CLUSTER, PIPELINE_INSTANCE)

LISTENER_OPTIONS: Mapping[str, str] = {
    **{part: part for part in FLOW_PARTS},
    "captureColumnLevelLineage": "capture_column_level_lineage",
    "capture_spark_plan": "capture_spark_plan",
    "coalesce_jobs": "coalesce_jobs",
    "disableSymlinkResolution": "disable_symlink_resolution",
    "domains": "domains",
    "file_partition_regexp": "file_partition_regexp",
    "log.mcps": "log_mcps",
    "metadata.dataset.enableEnhancedMergeIntoExtraction": "enhanced_merge_into_extraction",
    "metadata.dataset.env": "env",
    "metadata.dataset.experimental_include_schema_metadata": "include_schema_metadata",
    "metadata.dataset.hivePlatformAlias": "hive_platform_alias",
    "metadata.dataset.include_schema_metadata": "include_schema_metadata",
    "metadata.dataset.lowerCaseUrns": "lower_case_dataset_urns",
    "metadata.dataset.materialize": "materialize_dataset",
    "metadata.dataset.platformInstance": "dataset_platform_instance",
    "parent.datajob_urn": "parent_job_urn",
    "patch.enabled": "use_patch",
    "tags": "tags",
}
"""Spark options without ``spark.datahub.`` → ours, or one of :data:`FLOW_PARTS`. Path specs are read apart."""

GMS_OPTIONS: Mapping[str, str] = {
    "captureColumnLevelLineage": "capture_column_level_lineage",
    "commonDatasetEnv": "env",
    "commonDatasetPlatformInstance": "dataset_platform_instance",
    "filePartitionRegexpPattern": "file_partition_regexp",
    "includeSchemaMetadata": "include_schema_metadata",
    "materializeDataset": "materialize_dataset",
    "orchestrator": "orchestrator",
    "platformInstance": "platform_instance",
    "usePatch": "use_patch",
}
"""Properties of GMS's OpenLineage endpoint, without ``datahub.openlineage.`` → ours. ``env`` is read apart."""

CONVERTER_OPTIONS: Mapping[str, str] = {
    **GMS_OPTIONS,
    "disableSymlinkResolution": "disable_symlink_resolution",
    "enhancedMergeIntoExtraction": "enhanced_merge_into_extraction",
    "fabricType": "env",
    "hivePlatformAlias": "hive_platform_alias",
    "lowerCaseDatasetUrns": "lower_case_dataset_urns",
    "parentJobUrn": "parent_job_urn",
    "pathSpecs": "path_specs",
    "pipelineName": "pipeline_name",
}
"""Fields of the Java converter's ``DatahubOpenlineageConfig`` → ours."""

_NO_CLEANUP = "not implemented: edges that old listeners wrote onto datasets stay as they are"
_OF_THE_CONNECTION = "belongs into the Airflow connection: "
_KAFKA = "has no effect here: delivery by Kafka is a datahub-kafka connection"
_S3 = "has no effect here: delivery to S3 is a datahub-object-store connection"
_ENDS_KNOWN = (
    "has no effect: lineage is delivered when the task ends, however its Spark application ended, and with the "
    "operator's emit_periodically while it runs"
)

LISTENER_NOTES: Mapping[str, str] = {
    "emitter": _OF_THE_CONNECTION + "its type, datahub-rest, datahub-kafka, datahub-file or datahub-object-store",
    "file.filename": _OF_THE_CONNECTION + "the host of a datahub-file connection",
    **dict.fromkeys(
        (
            "kafka.bootstrap", "kafka.mcp_topic", "kafka.producer_config",
            "kafka.schema_registry_config", "kafka.schema_registry_url",
        ), _KAFKA,
    ),
    "legacyLineageCleanup.enabled": _NO_CLEANUP,
    "metadata.include_scheme": "has no effect, as in the Java listener: names of paths have no scheme",
    "metadata.remove_partition_pattern": "has no effect, as in the Java listener: set file_partition_regexp",
    "platform": "has no effect, as in the Java listener: set orchestrator for the flow's platform",
    "rest.disable_chunked_encoding": "has no effect: requests are not chunked",
    "rest.disable_ssl_verification": _OF_THE_CONNECTION + "disable_ssl_verification in its extra",
    "rest.max_retries": _OF_THE_CONNECTION + "retry_max_times in its extra",
    "rest.retry_interval": "has no effect: the time between retries is not an option",
    "rest.retry_interval_in_sec": "has no effect: the time between retries is not an option",
    "rest.server": _OF_THE_CONNECTION + "its host",
    "rest.token": _OF_THE_CONNECTION + "its password",
    **dict.fromkeys(
        (
            "s3.access_key", "s3.bucket", "s3.endpoint", "s3.filename",
            "s3.prefix", "s3.profile", "s3.region", "s3.secret_key",
        ), _S3,
    ),
    "stage_metadata_coalescing": _ENDS_KNOWN,
    "streaming_heartbeat": "has no effect, as in the Java listener",
    "streaming_job": _ENDS_KNOWN,
}  # fmt: skip
"""Spark options that are accepted without effect, and why. Their values may be secret and are never shown."""

GMS_NOTES: Mapping[str, str] = {
    "pipelineName": "has no effect, as in GMS: set pipeline_name",
    "platform": LISTENER_NOTES["platform"],
}
CONVERTER_NOTES: Mapping[str, str] = {
    "isSpark": "has no effect: the events tell",
    "isStreaming": "has no effect, as in the Java converter",
    "removeLegacyLineage": _NO_CLEANUP,
    "urnAliases": "has no effect: the events' symlinks tell",
}

_OPEN_ENDED = ("kafka.producer_config.", "kafka.schema_registry_config.")
_SPEC_KEYS = ("env", "path_alias_list", "path_spec_list", "platformInstance", "platform_instance")
_INSTANCE_KEYS = {"platformInstance", "platform_instance"}


@dataclass(frozen=True, slots=True)
class GivenOption:
    """An option's value under our name (or one of :data:`FLOW_PARTS`), and how the user spelled the option."""

    name: str
    spelling: str
    value: object


@dataclass(slots=True)
class Translation:
    """Options under our names, and a sentence on each that was accepted but does not do what its name says."""

    options: list[GivenOption] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def translate(options: Mapping[str, Any], own: Collection[str]) -> Translation:
    """Options in any spelling, flat or nested, under our names. Values are taken as they are.

    :param own: our names of options.
    :raises SettingsError: for a name that nobody has, naming the nearest one.
    """
    translator = _Translator(own)
    for name, value in options.items():
        for spelling, leaf in translator.leaves(name, value):
            translator.add(spelling, leaf)
    return translator.finish()


def pipeline_name(parts: Mapping[str, Any]) -> str | None:
    """The flow's name as the Java listener composes it, or ``None`` where it is the application's own.

    :param parts: values of :data:`FLOW_PARTS`.
    """
    name = parts.get(FLOW_NAME) or APPLICATION
    if parts.get(DATABRICKS_CLUSTER):
        return f"{parts[DATABRICKS_CLUSTER]}_{name}".replace(",", "")
    if parts.get(PIPELINE_INSTANCE):
        return f"{parts[PIPELINE_INSTANCE]}.{name}"
    return parts.get(FLOW_NAME)


class _Translator:
    def __init__(self, own: Collection[str]) -> None:
        self._own = own
        self._found = Translation()
        self._gms_env: GivenOption | None = None
        self._has_gms_dataset_env = False
        self._specs_spelling = ""
        # platform → alias (empty: the platform itself) → part of the spec → how it was spelled, its value
        self._specs: dict[str, dict[str, dict[str, tuple[str, object]]]] = {}

    def leaves(self, name: object, value: object) -> Iterator[tuple[str, object]]:
        """Dotted names and values; an object that is the value of an option stays whole."""
        if not isinstance(name, str):
            raise SettingsError(f"the lineage option {name!r} has a name that is no text")
        if isinstance(value, Mapping) and value and not self._is_option(name):
            for key, below in value.items():
                if not isinstance(key, str):
                    raise SettingsError(f"the lineage option {name} has the key {key!r}, which is no text")
                yield from self.leaves(f"{name}.{key}", below)
        else:
            yield name, value

    def _is_option(self, name: str) -> bool:
        # "platform" with text is an option without effect, with an object it holds the path specs.
        bare = name.removeprefix(LISTENER_PREFIX)
        is_known = bare in LISTENER_OPTIONS or bare in LISTENER_NOTES
        is_known = is_known or name in self._own or name in CONVERTER_OPTIONS or name in CONVERTER_NOTES
        return is_known and bare != "platform"

    def add(self, spelling: str, value: object) -> None:
        if spelling in self._own:
            self._give(spelling, spelling, value)
        elif spelling.startswith(GMS_PREFIX):
            self._add_gms(spelling, value)
        elif spelling.startswith(LISTENER_PREFIX):
            self._add_listener(spelling, spelling.removeprefix(LISTENER_PREFIX), self._unescaped(spelling, value))
        elif spelling in CONVERTER_OPTIONS:
            self._give(CONVERTER_OPTIONS[spelling], spelling, value)
        elif spelling in CONVERTER_NOTES:
            self._note(spelling, CONVERTER_NOTES[spelling], value)
        else:
            self._add_listener(spelling, spelling, value)

    def _add_listener(self, spelling: str, name: str, value: object) -> None:
        group = next((prefix for prefix in _OPEN_ENDED if name.startswith(prefix)), "")
        if name in LISTENER_OPTIONS:
            self._give(LISTENER_OPTIONS[name], spelling, value)
        elif group or name in LISTENER_NOTES:
            self._note(spelling, LISTENER_NOTES[group.rstrip(".") or name], value)
        elif name.startswith("platform."):
            self._add_path_spec(spelling, name, value)
        else:
            raise self._unknown(spelling, name)

    def _add_gms(self, spelling: str, value: object) -> None:
        # Spring reads common-dataset-env as commonDatasetEnv.
        dashed = spelling.removeprefix(GMS_PREFIX)
        name = re.sub("-(.)", lambda found: found.group(1).upper(), dashed)
        if name in GMS_OPTIONS:
            self._give(GMS_OPTIONS[name], spelling, value)
            self._has_gms_dataset_env |= name == "commonDatasetEnv" and value is not None
        elif name in GMS_NOTES:
            self._note(spelling, GMS_NOTES[name], value)
        elif name == "env":
            self._gms_env = GivenOption("env", spelling, value) if value is not None else None
        else:
            close = nearest(name, [*GMS_OPTIONS, *GMS_NOTES, "env"])
            raise _unknown_option(spelling, GMS_PREFIX + close if close else None, self._own)

    def _add_path_spec(self, spelling: str, name: str, value: object) -> None:
        if name.count(".") < 2:
            raise _unknown_option(spelling, f"{spelling}.path_spec_list", self._own)
        _, platform, *middle, key = name.split(".")
        alias = ".".join(middle)
        if key not in _SPEC_KEYS:
            close = nearest(key, _SPEC_KEYS) or "path_spec_list"
            raise _unknown_option(spelling, spelling.removesuffix(key) + close, self._own)
        if value is None:
            return
        if key == "path_alias_list":
            self._note(spelling, "has no effect: every alias that has options of its own counts", value)
            return
        aliases = self._specs.setdefault(platform, {})
        if alias and alias not in aliases:
            self._note(
                spelling,
                f"takes effect: the Java listener ignores the alias {alias!r}",
                value,
            )
        elif key == "platform_instance" and not alias:
            self._note(spelling, "takes effect: the Java listener reads platformInstance only", value)
        self._specs_spelling = self._specs_spelling or spelling.removesuffix(name.removeprefix("platform"))
        spec = aliases.setdefault(alias, {})
        first, given = spec.setdefault(key, (spelling, value))
        if given != value:
            raise contradiction(first, spelling)

    def finish(self) -> Translation:
        if self._specs:
            specs = {platform: _inherited(aliases) for platform, aliases in self._specs.items()}
            self._give("path_specs", self._specs_spelling, specs)
        if self._gms_env is not None:
            self._finish_gms_env(self._gms_env)
        return self._found

    def _finish_gms_env(self, env: GivenOption) -> None:
        """GMS names the flow's cluster after the environment, where nothing else does."""
        given = {option.name for option in self._found.options if option.value is not None}
        if not self._has_gms_dataset_env:
            self._give("env", env.spelling, env.value)
        if not given & {"platform_instance", PIPELINE_INSTANCE}:
            cluster = env.value.lower() if isinstance(env.value, str) else env.value
            self._give("platform_instance", env.spelling, cluster)

    def _give(self, name: str, spelling: str, value: object) -> None:
        self._found.options.append(GivenOption(name, spelling, value))

    def _note(self, spelling: str, note: str, value: object) -> None:
        if value is not None:
            self._found.notes.append(f"{spelling} {note}")

    def _unescaped(self, spelling: str, value: object) -> object:
        r"""The value as the listener sees it: it reads ``year=\\d+`` as a quoted text, which is ``year=\d+``."""
        name = spelling.removeprefix(LISTENER_PREFIX)
        # Of the other options some are secret: nothing may be told of their values.
        has_effect = name in LISTENER_OPTIONS or name.startswith("platform.")
        if not has_effect or not isinstance(value, str) or "\\" not in value:
            return value
        try:
            text = json.loads(f'"{value}"')
        except ValueError:
            # The listener itself refuses such a text: it never had another meaning than the one that it shows.
            return value
        self._note(spelling, f"is read as {text!r}: in the Java listener's options a backslash is an escape", value)
        return text

    def _unknown(self, spelling: str, name: str) -> SettingsError:
        if spelling == name and name.startswith("spark."):
            return SettingsError(f"{spelling} is an option of Spark, not of lineage: it belongs into the task's 'conf'")
        of_listener = [*LISTENER_OPTIONS, *LISTENER_NOTES]
        others = [*self._own] if spelling != name else [*self._own, *CONVERTER_OPTIONS, *CONVERTER_NOTES]
        close = nearest(name, dict.fromkeys([*others, *of_listener]))
        if close and spelling != name and close in of_listener:
            close = LISTENER_PREFIX + close
        return _unknown_option(spelling, close, self._own)


def contradiction(first: str, second: str) -> SettingsError:
    """Two spellings of one option, with different values."""
    return SettingsError(f"{first} and {second} are two spellings of one option and disagree; keep one of them")


def _unknown_option(spelling: str, close: str | None, own: Collection[str]) -> SettingsError:
    hint = f"did you mean {close!r}?" if close else f"known are {', '.join(sorted(own))}"
    return SettingsError(f"unknown lineage option {spelling!r}; {hint}")


def _inherited(aliases: Mapping[str, Mapping[str, tuple[str, object]]]) -> dict[str, dict[str, object]]:
    """The specs of a platform by alias; an alias has the platform's env and instance where it has none of its own."""
    level = {key: value for key, (_, value) in aliases.get("", {}).items() if key != "path_spec_list"}
    specs: dict[str, dict[str, object]] = {}
    for alias, described in aliases.items():
        spec = {key: value for key, (_, value) in described.items()}
        hidden = _INSTANCE_KEYS if spec.keys() & _INSTANCE_KEYS else set()
        specs[alias] = {key: value for key, value in level.items() if key not in hidden} | spec
    return specs


__all__ = ["ENVIRONMENTS", "LineageSettings", "SettingsError", "settings_of_environment"]


@dataclass(frozen=True, slots=True)
class LineageSettings:
    """How OpenLineage events become DataHub metadata. Every option has the Java listener's default.

    :param orchestrator: platform of the flow, instead of the event's processing engine.
    :param pipeline_name: name of the flow (and of the coalesced job), instead of the application's; ``{application}``
        in it stands for that one.
    :param platform_instance: instance of the orchestrator; also the flow's cluster.
    :param owners: users or URNs that own the flow.
    :param tags: tags of the flow.
    :param domains: domain URNs of the flow.
    :param coalesce_jobs: one DataJob per application; else one per event.
    :param use_patch: add edges and tags to what the catalogue holds instead of replacing it.
    :param parent_job_urn: a DataJob upstream of every job.
    :param enhanced_merge_into_extraction: name the jobs of Delta's MERGE after their target table.
    :param capture_spark_plan: keep the logical plan as a property of the flow.
    :param env: DataHub environment of datasets.
    :param dataset_platform_instance: platform instance of datasets.
    :param hive_platform_alias: platform of tables that a catalogue other than Glue names.
    :param catalog_platforms: platform of tables by catalogue or storage format, e.g. ``{"iceberg": "iceberg"}``.
    :param disable_symlink_resolution: name tables by their path.
    :param lower_case_dataset_urns: lower-case the names of datasets.
    :param default_schemas: schema of database tables that are named without one, by platform.
    :param path_specs: which folder of a path is the dataset, by platform.
    :param file_partition_regexp: what to cut off the end of a path.
    :param materialize_dataset: write ``datasetKey`` and ``status`` of datasets.
    :param include_schema_metadata: write their schema too; only with ``materialize_dataset``.
    :param capture_column_level_lineage: write column-level lineage.
    :param capture_columns_from_sql: add what statements say of columns that OpenLineage says nothing of: by sqlglot.
    :param capture_streaming: have Spark log its own events beside OpenLineage's, for the sinks of streaming queries and
        for the executions that OpenLineage lost; only with ``coalesce_jobs``.
    :param capture_lost_executions: have Spark log its own events, as ``capture_streaming`` does, and add the edges
        that the plans of such executions name.
    :param streaming_app_id_prefix: put Spark's application id in front of a streaming query's name.
    :param capture_operations: write what each query did to a dataset: kind, rows, bytes; drops and renames too.
    :param capture_dataset_documentation: add the descriptions of datasets, and of the fields in their schemas.
    :param capture_dataset_owners: add the owners of datasets that the producer names.
    :param capture_dataset_tags: add the tags of datasets that the producer names, and of the fields in their schemas.
    :param log_mcps: write every proposal into the task's log when it is sent.
    :param capture_test_results: write what data-quality checks a run made, and which of them failed.
    :param hive_session_timeout: seconds without events after which a Hive session is over.
    :param max_event_bytes: a longer event is not converted; ``None``: any is.
    :param max_string_length: the longest text in an aspect and the longest column lineage of a job, in characters. The
        default is what GMS and the Java listener read (``INGESTION_MAX_SERIALIZED_STRING_LENGTH``).
    :param max_sql_length: the longest SQL statement in column lineage, in characters; ``None``: as other texts.
    :param max_column_edges: the most pairs of columns in the column lineage of a job; ``None``: what
        ``max_string_length`` allows.
    """

    orchestrator: str | None = None
    pipeline_name: str | None = None
    platform_instance: str | None = None
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    coalesce_jobs: bool = True
    use_patch: bool = False
    parent_job_urn: str | None = None
    enhanced_merge_into_extraction: bool = False
    capture_spark_plan: bool = False
    env: str = "PROD"
    dataset_platform_instance: str | None = None
    hive_platform_alias: str = "hive"
    catalog_platforms: Mapping[str, str] = field(default_factory=dict)
    disable_symlink_resolution: bool = False
    lower_case_dataset_urns: bool = False
    default_schemas: Mapping[str, str] = field(default_factory=lambda: {"postgres": "public", "mssql": "dbo"})
    path_specs: tuple[paths.PathSpec, ...] = ()
    file_partition_regexp: str | None = None
    materialize_dataset: bool = False
    include_schema_metadata: bool = False
    capture_column_level_lineage: bool = True
    capture_columns_from_sql: bool = False
    capture_operations: bool = False
    capture_dataset_documentation: bool = False
    capture_dataset_owners: bool = False
    capture_dataset_tags: bool = False
    capture_test_results: bool = False
    log_mcps: bool = False
    hive_session_timeout: int = 3600
    max_event_bytes: int | None = None
    max_string_length: int = 16_000_000
    max_sql_length: int | None = None
    max_column_edges: int | None = None
    capture_streaming: bool = False
    streaming_app_id_prefix: bool = False
    capture_lost_executions: bool = False

    def __hash__(self) -> int:
        """Of what tells most configurations apart: settings are the key of what is remembered under them."""
        return hash((self.env, self.pipeline_name, self.platform_instance))

    @property
    def reads_event_log(self) -> bool:
        """Whether Spark's own event log is asked for."""
        return self.coalesce_jobs and (self.capture_streaming or self.capture_lost_executions)

    @property
    def partition_pattern(self) -> re.Pattern[str] | None:
        """:attr:`file_partition_regexp`, compiled to match at a path's end."""
        return paths.partition_pattern(self.file_partition_regexp) if self.file_partition_regexp else None

    def flow_id(self, application: str) -> str:
        """The name of the flow of an application.

        :param application: the application's own name.
        """
        return (self.pipeline_name or APPLICATION).replace(APPLICATION, application)

    @classmethod
    def from_mapping(cls, *layers: Mapping[str, Any]) -> LineageSettings:
        """Settings from plain values: JSON, YAML, an operator's argument, ``--set`` of the command line.

        Names may be ours, those of the Java listener (with or without ``spark.datahub.``), of its converter and of
        GMS, dotted or nested. Text is accepted for every type: ``"true"`` for a boolean, ``"a,b"`` for a list, JSON
        for an object.

        :param layers: options; those of a later layer come over the same ones of an earlier layer, however spelled.
            ``None`` is the default.
        :raises SettingsError: for an unknown option (naming the nearest one), a wrong value, or two spellings of one
            option in one layer that disagree.
        """
        values: dict[str, Any] = {}
        for layer in layers:
            given = _read(layer)
            for name in given:
                for rival in _RIVALS.get(name, ()):
                    values.pop(rival, None)
            values |= given
        parts = {part: values.pop(part, None) for part in FLOW_PARTS}
        values["pipeline_name"] = values.get("pipeline_name") or pipeline_name(parts)
        values["platform_instance"] = values.get("platform_instance") or parts[PIPELINE_INSTANCE]
        return cls(**{name: value for name, value in values.items() if value is not None})

    @staticmethod
    def notes(*layers: Mapping[str, Any]) -> list[str]:
        """What to tell the user of options that are accepted, but have no effect or another one than elsewhere.

        One sentence for each, which starts with the option as it was spelled and never shows a secret.

        :param layers: as for :meth:`from_mapping`.
        :raises SettingsError: for an unknown option.
        """
        return list(dict.fromkeys(note for layer in layers for note in translate(layer, _OWN_READERS).notes))


def settings_of_environment(environment: Mapping[str, str]) -> dict[str, int]:
    """The options that environment variables of GMS and of the Java listener give, as a layer below all others.

    :param environment: the process's own, which only callers outside of conversion know.
    :raises SettingsError: for a wrong value.
    """
    longest = environment.get(_STRING_LENGTH_VARIABLE, "").strip()
    return {"max_string_length": readers.read_length(_STRING_LENGTH_VARIABLE, longest)} if longest else {}


_STRING_LENGTH_VARIABLE = "INGESTION_MAX_SERIALIZED_STRING_LENGTH"


def _read(options: Mapping[str, Any]) -> dict[str, Any]:
    """Typed values by our names and those of :data:`FLOW_PARTS`; ``None`` for what is to be default."""
    values: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for option in translate(options, _OWN_READERS).options:
        value = None if option.value is None else _READERS[option.name](option.spelling, option.value)
        if values.get(option.name) is None:
            values[option.name], spellings[option.name] = value, option.spelling
        elif value is not None and value != values[option.name]:
            raise contradiction(spellings[option.name], option.spelling)
    _check_rivals(values, spellings)
    return values


def _check_rivals(values: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    composed = {
        "platform_instance": values.get(PIPELINE_INSTANCE),
        "pipeline_name": pipeline_name(values),
    }
    for name, other in composed.items():
        rival = next((rival for rival in _RIVALS[name] if values.get(rival) is not None), None)
        if rival and values.get(name) is not None and values[name] != other:
            raise contradiction(spellings[name], spellings[rival])


# What says the same in another way: where a layer has the one, the other of the layers below it is gone.
_RIVALS: dict[str, tuple[str, ...]] = {
    "pipeline_name": (FLOW_NAME, DATABRICKS_CLUSTER),
    FLOW_NAME: ("pipeline_name",),
    DATABRICKS_CLUSTER: ("pipeline_name",),
    "platform_instance": (PIPELINE_INSTANCE,),
    PIPELINE_INSTANCE: ("platform_instance",),
}
_SPECIAL_READERS: dict[str, readers.Reader] = {
    "env": readers.read_environment,
    "parent_job_urn": readers.read_job_urn,
    "file_partition_regexp": readers.read_regexp,
    "path_specs": readers.read_path_specs,
    "max_event_bytes": readers.read_count,
    "max_string_length": readers.read_length,
    "max_sql_length": readers.read_length,
    "max_column_edges": readers.read_count,
}
_READERS_BY_TYPE: dict[str, readers.Reader] = {
    "str | None": readers.read_text,
    "str": readers.read_text,
    "bool": readers.read_boolean,
    "int": readers.read_seconds,
    "tuple[str, ...]": readers.read_texts,
    "Mapping[str, str]": readers.read_text_map,
}
_OWN_READERS: dict[str, readers.Reader] = {
    option.name: _SPECIAL_READERS.get(option.name) or _READERS_BY_TYPE[str(option.type)]
    for option in fields(LineageSettings)
}
_READERS = _OWN_READERS | dict.fromkeys(FLOW_PARTS, readers.read_text)

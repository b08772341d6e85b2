"""The converter's options: one typed, validated model (conversion rules; names as there)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from airflow_provider_spark_datahub.conversion import java_options, paths
from airflow_provider_spark_datahub.conversion import settings_readers as readers
from airflow_provider_spark_datahub.conversion.settings_readers import ENVIRONMENTS, SettingsError

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
        return (self.pipeline_name or java_options.APPLICATION).replace(java_options.APPLICATION, application)

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
        parts = {part: values.pop(part, None) for part in java_options.FLOW_PARTS}
        values["pipeline_name"] = values.get("pipeline_name") or java_options.pipeline_name(parts)
        values["platform_instance"] = values.get("platform_instance") or parts[java_options.PIPELINE_INSTANCE]
        return cls(**{name: value for name, value in values.items() if value is not None})

    @staticmethod
    def notes(*layers: Mapping[str, Any]) -> list[str]:
        """What to tell the user of options that are accepted, but have no effect or another one than elsewhere.

        One sentence for each, which starts with the option as it was spelled and never shows a secret.

        :param layers: as for :meth:`from_mapping`.
        :raises SettingsError: for an unknown option.
        """
        return list(
            dict.fromkeys(note for layer in layers for note in java_options.translate(layer, _OWN_READERS).notes)
        )


def settings_of_environment(environment: Mapping[str, str]) -> dict[str, int]:
    """The options that environment variables of GMS and of the Java listener give, as a layer below all others.

    :param environment: the process's own, which only callers outside of conversion know.
    :raises SettingsError: for a wrong value.
    """
    longest = environment.get(_STRING_LENGTH_VARIABLE, "").strip()
    return {"max_string_length": readers.read_length(_STRING_LENGTH_VARIABLE, longest)} if longest else {}


_STRING_LENGTH_VARIABLE = "INGESTION_MAX_SERIALIZED_STRING_LENGTH"


def _read(options: Mapping[str, Any]) -> dict[str, Any]:
    """Typed values by our names and those of :data:`java_options.FLOW_PARTS`; ``None`` for what is to be default."""
    values: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for option in java_options.translate(options, _OWN_READERS).options:
        value = None if option.value is None else _READERS[option.name](option.spelling, option.value)
        if values.get(option.name) is None:
            values[option.name], spellings[option.name] = value, option.spelling
        elif value is not None and value != values[option.name]:
            raise java_options.contradiction(spellings[option.name], option.spelling)
    _check_rivals(values, spellings)
    return values


def _check_rivals(values: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    composed = {
        "platform_instance": values.get(java_options.PIPELINE_INSTANCE),
        "pipeline_name": java_options.pipeline_name(values),
    }
    for name, other in composed.items():
        rival = next((rival for rival in _RIVALS[name] if values.get(rival) is not None), None)
        if rival and values.get(name) is not None and values[name] != other:
            raise java_options.contradiction(spellings[name], spellings[rival])


# What says the same in another way: where a layer has the one, the other of the layers below it is gone.
_RIVALS: dict[str, tuple[str, ...]] = {
    "pipeline_name": (java_options.FLOW_NAME, java_options.DATABRICKS_CLUSTER),
    java_options.FLOW_NAME: ("pipeline_name",),
    java_options.DATABRICKS_CLUSTER: ("pipeline_name",),
    "platform_instance": (java_options.PIPELINE_INSTANCE,),
    java_options.PIPELINE_INSTANCE: ("platform_instance",),
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
_READERS = _OWN_READERS | dict.fromkeys(java_options.FLOW_PARTS, readers.read_text)

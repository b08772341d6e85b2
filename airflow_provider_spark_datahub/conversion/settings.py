"""The converter's options: one typed, validated model (conversion rules; names as there)."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from airflow_provider_spark_datahub.conversion import paths

ENVIRONMENTS = (
    "DEV", "TEST", "QA", "UAT", "EI", "PRE", "STG", "NON_PROD", "PROD", "CORP",
    "RVW", "PRD", "TST", "SIT", "SBX", "SANDBOX", "SIM", "DEMO",
)  # fmt: skip
"""DataHub's ``FabricType``."""


class SettingsError(ValueError):
    """An option that does not exist or has a wrong value; the message names it and what to write instead."""


@dataclass(frozen=True, slots=True)
class LineageSettings:
    """How OpenLineage events become DataHub metadata. Every option has the Java listener's default.

    :param orchestrator: platform of the flow, instead of the event's processing engine.
    :param pipeline_name: name of the flow (and of the coalesced job), instead of the application's.
    :param platform_instance: instance of the orchestrator; also the flow's cluster.
    :param owners: users or URNs that own the flow.
    :param tags: tags of the flow.
    :param domains: domain URNs of the flow.
    :param coalesce_jobs: one DataJob per application; else one per query.
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

    @property
    def partition_pattern(self) -> re.Pattern[str] | None:
        """:attr:`file_partition_regexp`, compiled to match at a path's end."""
        return paths.partition_pattern(self.file_partition_regexp) if self.file_partition_regexp else None

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> LineageSettings:
        """Settings from plain values: JSON, YAML, an operator's argument, ``--set`` of the command line.

        Text is accepted for every type: ``"true"`` for a boolean, ``"a,b"`` for a list, JSON for an object.

        :raises SettingsError: for an unknown option (naming the nearest one) or a wrong value.
        """
        values: dict[str, Any] = {}
        for name, value in options.items():
            reader = _READERS.get(name)
            if reader is None:
                raise SettingsError(f"unknown lineage option {name!r}{_nearest(name, _READERS)}")
            if value is not None:
                values[name] = reader(name, value)
        return cls(**values)


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"


def _text(name: str, value: object) -> str | None:
    if not isinstance(value, str):
        raise SettingsError(f"{name} is {value!r}, want text")
    return value.strip() or None


def _boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    raise SettingsError(f"{name} is {value!r}, want true or false")


def _texts(name: str, value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise SettingsError(f"{name} is {value!r}, want a list of texts")
    return tuple(item.strip() for item in items if item.strip())


def _from_json(name: str, value: object) -> object:
    """The object that a text spells as JSON; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise SettingsError(f"{name} is {value!r}, no JSON: {error}") from error


def _text_map(name: str, value: object) -> dict[str, str]:
    value = _from_json(name, value)
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise SettingsError(f"{name} is {value!r}, want an object of texts")
    return dict(value)


def _environment(name: str, value: object) -> str:
    text = (_text(name, value) or "").upper()
    if text not in ENVIRONMENTS:
        raise SettingsError(f"{name} is {value!r}, want one of {', '.join(ENVIRONMENTS)}")
    return text


def _job_urn(name: str, value: object) -> str | None:
    text = _text(name, value)
    if text is not None and not text.startswith("urn:li:dataJob:("):
        raise SettingsError(f"{name} is {value!r}, want the URN of a DataJob (urn:li:dataJob:(…))")
    return text


def _regexp(name: str, value: object) -> str | None:
    text = _text(name, value)
    try:
        paths.partition_pattern(text or "")
    except re.error as error:
        raise SettingsError(f"{name} is {value!r}, no regular expression: {error}") from error
    return text


def _path_specs(name: str, value: object) -> tuple[paths.PathSpec, ...]:
    """``{platform: {alias: spec}}``, ``{platform: [spec, …]}`` or ``{platform: spec}``.

    A spec is ``{"path_spec_list": […], "env": …, "platform_instance": …}``, or its list of patterns alone.
    """
    if isinstance(value, tuple) and all(isinstance(item, paths.PathSpec) for item in value):
        return value
    value = _from_json(name, value)
    if not isinstance(value, Mapping):
        raise SettingsError(f"{name} is {value!r}, want an object: {{platform: {{alias: {{path_spec_list: […]}}}}}}")
    specs: list[paths.PathSpec] = []
    for platform, described in value.items():
        for alias, spec in _aliased(described):
            specs.append(_path_spec(f"{name}.{platform}{'.' if alias else ''}{alias}", platform, alias, spec))
    return tuple(specs)


def _aliased(described: object) -> list[tuple[str, object]]:
    keys = {"path_spec_list", "env", "platform_instance"}
    if isinstance(described, Mapping) and not keys & described.keys():
        return list(described.items())
    if isinstance(described, list) and described and all(isinstance(item, Mapping) for item in described):
        return [("", item) for item in described]
    return [("", described)]


def _path_spec(name: str, platform: str, alias: str, spec: object) -> paths.PathSpec:
    if isinstance(spec, str | list | tuple):
        spec = {"path_spec_list": spec}
    if not isinstance(spec, Mapping):
        raise SettingsError(f"{name} is {spec!r}, want {{path_spec_list: […], env: …, platform_instance: …}}")
    readers: dict[str, Callable[[str, object], Any]] = {
        "path_spec_list": _texts, "env": _environment, "platform_instance": _text
    }  # fmt: skip
    values: dict[str, Any] = {}
    for key, value in spec.items():
        if key not in readers:
            raise SettingsError(f"unknown option {name}.{key}{_nearest(key, readers)}")
        if value is not None:
            values[key] = readers[key](f"{name}.{key}", value)
    for pattern in values.get("path_spec_list", ()):
        if "/{table}" not in pattern:
            raise SettingsError(f"{name}: the path spec {pattern!r} has no folder {{table}}")
    return paths.PathSpec(platform=platform, alias=alias, **values)


_SPECIAL_READERS: dict[str, Callable[[str, object], Any]] = {
    "env": _environment,
    "parent_job_urn": _job_urn,
    "file_partition_regexp": _regexp,
    "path_specs": _path_specs,
}
_READERS_BY_TYPE: dict[str, Callable[[str, object], Any]] = {
    "str | None": _text,
    "str": _text,
    "bool": _boolean,
    "tuple[str, ...]": _texts,
    "Mapping[str, str]": _text_map,
}
_READERS: dict[str, Callable[[str, object], Any]] = {
    option.name: _SPECIAL_READERS.get(option.name) or _READERS_BY_TYPE[str(option.type)]
    for option in fields(LineageSettings)
}

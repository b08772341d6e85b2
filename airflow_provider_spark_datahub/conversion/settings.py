"""Settings of the conversion: one typed model, and the readers that validate each value.

Values may be text, JSON or plain objects. Names may be ours or those in :mod:`.setting_names`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from airflow_provider_spark_datahub.conversion.linear_regexp import LinearPattern, linear_pattern
from airflow_provider_spark_datahub.conversion.setting_names import (
    APPLICATION,
    DATABRICKS_CLUSTER,
    FLOW_NAME,
    FLOW_PARTS,
    HIVE_ALIAS,
    INCLUDE_SCHEMA,
    MATERIALIZE,
    PIPELINE_INSTANCE,
    SettingsError,
    translate,
)
from airflow_provider_spark_datahub.foundation.text import nearest, read_boolean

_RANDOM_SUFFIX = re.compile(r"[a-z0-9]{8}")
# The script that spark-pipelines submits for each pipeline is cli.py.
_UNNAMED = re.compile(r"[Nn]one|pyspark[-_]shell|PySparkShell|Spark shell|SparkSQL::.*|cli[._]py")
# For each value of "datasets", the listener's settings "materialize" and "include_schema_metadata".
_DATASETS = {"none": (False, False), "written": (False, "written"), "keys": (True, False), "schemas": (True, True)}
DETAILS = ("documentation", "owners", "tags")
"""Values of ``dataset_details``."""
OTHER_CATALOGS = "*"
"""Key in ``catalog_platforms`` for catalogues and formats that it does not name."""
ENVIRONMENTS = (
    "DEV", "TEST", "QA", "UAT", "EI", "PRE", "STG", "NON_PROD", "PROD", "CORP",
    "RVW", "PRD", "TST", "SIT", "SBX", "SANDBOX", "CERT",
)  # fmt: skip
"""DataHub's ``FabricType``."""


@dataclass(frozen=True, slots=True)
class PathSpec:
    """Rule that maps the paths of one platform to datasets.

    :param path_spec_list: patterns such as ``s3://bucket/*/{table}``: ``*`` is one folder, ``{table}`` the dataset's.
    :param alias: the user's name of the spec.
    """

    platform: str
    path_spec_list: tuple[str, ...] = ()
    env: str | None = None
    platform_instance: str | None = None
    alias: str = ""


# Reads one value. It gets the setting's name as the user wrote it, for messages.
_Reader = Callable[[str, object], Any]


def _text(name: str, value: object) -> str | None:
    if not isinstance(value, str):
        raise SettingsError(f"{name} is {value!r}, want text")
    return value.strip() or None


def _boolean(name: str, value: object) -> bool:
    known = read_boolean(value)
    if known is None:
        raise SettingsError(f"{name} is {value!r}, want true or false")
    return known


def _length(name: str, value: object) -> int:
    text = str(value).strip()
    # A text that is cut needs room to say so.
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or int(text) < _LEAST_LENGTH:
        raise SettingsError(f"{name} is {value!r}, want a whole number of characters, {_LEAST_LENGTH} at least")
    return int(text)


def _texts(name: str, value: object) -> tuple[str, ...]:
    """Read a list of texts, or one text with commas between them."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise SettingsError(f"{name} is {value!r}, want a list of texts")
    return tuple(item.strip() for item in items if item.strip())


def _text_map(name: str, value: object) -> dict[str, str]:
    value = _from_json(name, value)
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise SettingsError(f"{name} is {value!r}, want an object of texts")
    return dict(value)


def _environment(name: str, value: object) -> str:
    text = (_text(name, value) or "").upper()
    if text not in ENVIRONMENTS:
        close = nearest(text, ENVIRONMENTS)
        hint = f"; did you mean {close!r}?" if close else ""
        raise SettingsError(f"{name} is {value!r}, want one of {', '.join(ENVIRONMENTS)}{hint}")
    return text


def _job_urn(name: str, value: object) -> str | None:
    text = _text(name, value)
    if text is not None and not text.startswith("urn:li:dataJob:("):
        raise SettingsError(f"{name} is {value!r}, want the URN of a DataJob (urn:li:dataJob:(…))")
    return text


def _one_of(*known: str) -> _Reader:
    def read(name: str, value: object) -> str:
        if value not in known:
            raise SettingsError(f"{name} is {value!r}, want one of {', '.join(known)}")
        return str(value)

    return read


def _details(name: str, value: object) -> tuple[str, ...]:
    details = _texts(name, value)
    if not {*details} <= {*DETAILS}:
        raise SettingsError(f"{name} is {value!r}, want some of {', '.join(DETAILS)}")
    return details


def _regexp(name: str, value: object) -> str | None:
    text = _text(name, value)
    try:
        _at_the_end(text or "")
    except ValueError as error:
        raise SettingsError(f"{name} is {value!r}, want a regular expression: {error}") from error
    return text


def _at_the_end(regexp: str) -> LinearPattern:
    return linear_pattern(f"(?:{regexp})$")


def _from_json(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise SettingsError(f"{name} is {value!r}, want JSON: {error}") from error


def _path_specs(name: str, value: object) -> tuple[PathSpec, ...]:
    """Read ``{platform: {alias: spec}}``, ``{platform: [spec, …]}`` or ``{platform: spec}``.

    A spec is ``{"path_spec_list": […], "env": …, "platform_instance": …}``, or its list of patterns alone.
    """
    if isinstance(value, tuple) and all(isinstance(item, PathSpec) for item in value):
        return value
    value = _from_json(name, value)
    if not isinstance(value, Mapping):
        raise SettingsError(f"{name} is {value!r}, want an object: {{platform: {{alias: {{path_spec_list: […]}}}}}}")
    return tuple(
        _path_spec(f"{name}.{platform}{'.' if alias else ''}{alias}", platform, alias, spec)
        for platform, specs in value.items()
        for alias, spec in _by_alias(specs)
    )


_DATASET = re.compile(r"urn:li:dataset:\(urn:li:dataPlatform:(?P<platform>[^,()]+),(?P<name>.+),(?P<env>[A-Z_]+)\)")


def split_dataset_urn(urn: str) -> tuple[str, str, str] | None:
    """Return platform, encoded name and environment of a dataset's URN; ``None`` for any other text."""
    found = _DATASET.fullmatch(urn)
    return (found["platform"], found["name"], found["env"]) if found is not None else None


def _dataset_urns(name: str, value: object) -> dict[str, str]:
    found = _text_map(name, _from_json(name, value))
    if wrong := next((urn for pair in found.items() for urn in pair if split_dataset_urn(urn) is None), None):
        raise SettingsError(f"{name} has {wrong!r}, want URNs of datasets")
    return found


def _namespaces(name: str, value: object) -> dict[str, PathSpec]:
    """Read ``{namespace: {"env": …, "platform_instance": …}}``."""
    value = _from_json(name, value)
    if not isinstance(value, Mapping):
        raise SettingsError(f"{name} is {value!r}, want an object: {{namespace: {{platform_instance: …, env: …}}}}")
    places = {
        namespace: place if isinstance(place, PathSpec) else _path_spec(f"{name}.{namespace}", "", "", place)
        for namespace, place in value.items()
    }
    if wrong := next((namespace for namespace, place in places.items() if place.path_spec_list), None):
        raise SettingsError(f"{name}.{wrong} has path specs, want platform_instance and env: set path_specs")
    return places


# Each part of a path spec as PathSpec names it, and as the Java listener does.
_SPEC_PARTS: dict[str, tuple[str, _Reader]] = {
    "path_spec_list": ("path_spec_list", _texts),
    "pathSpecList": ("path_spec_list", _texts),
    "env": ("env", _environment),
    "platform_instance": ("platform_instance", _text),
    "platformInstance": ("platform_instance", _text),
}


_SPEC_NAMES = frozenset({"alias", "platform"})


def _by_alias(specs: object) -> list[tuple[str, object]]:
    if isinstance(specs, Mapping) and not _SPEC_PARTS.keys() & specs.keys():
        return list(specs.items())
    if isinstance(specs, list) and specs and all(isinstance(spec, Mapping) for spec in specs):
        # The converter's specs name themselves and their platform.
        return [
            (str(spec.get("alias") or ""), {key: spec[key] for key in spec if key not in _SPEC_NAMES}) for spec in specs
        ]
    return [("", specs)]


def _path_spec(name: str, platform: str, alias: str, spec: object) -> PathSpec:
    if isinstance(spec, str | list | tuple):
        spec = {"path_spec_list": spec}
    if not isinstance(spec, Mapping):
        raise SettingsError(f"{name} is {spec!r}, want {{path_spec_list: […], env: …, platform_instance: …}}")
    values: dict[str, Any] = {}
    for key, value in spec.items():
        if key not in _SPEC_PARTS:
            close = nearest(str(key), _SPEC_PARTS)
            hint = f"did you mean {close!r}?" if close else f"known are {', '.join(sorted(_SPEC_PARTS))}"
            raise SettingsError(f"unknown setting {name}.{key}; {hint}")
        if value is not None:
            part, read = _SPEC_PARTS[key]
            typed = read(f"{name}.{key}", value)
            if values.setdefault(part, typed) != typed:
                raise SettingsError(f"{name}.{key} contradicts {name}'s other spelling of {part}; keep one of them")
    for pattern in values.get("path_spec_list", ()):
        if "/{table}" not in pattern:
            raise SettingsError(f"{name}: the path spec {pattern!r} has no folder {{table}}")
    return PathSpec(platform=platform, alias=alias, **values)


_READERS_BY_TYPE: dict[type, _Reader] = {bool: _boolean, dict: _text_map, tuple: _texts, type(None): _text}


def _setting(default: Any, meaning: str, read: _Reader | None = None) -> Any:
    """Declare a setting that users can set.

    :param read: reader of its values; by default the reader of the default's type.
    """
    metadata = {"read": read or _READERS_BY_TYPE[type(default)], "meaning": meaning}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class LineageSettings:
    """Settings of the conversion of OpenLineage events to DataHub metadata. Defaults are those of the Java listener."""

    orchestrator: str | None = _setting(None, "platform of the flow, instead of the event's processing engine")
    pipeline_name: str | None = _setting(
        None, "name of the flow and of the coalesced job; {application} in it stands for the application's own name"
    )
    platform_instance: str | None = _setting(None, "instance of the orchestrator; also the flow's cluster")
    owners: tuple[str, ...] = _setting((), "users or URNs that own the flow")
    tags: tuple[str, ...] = _setting((), "tags of the flow")
    domains: tuple[str, ...] = _setting((), "domain URNs of the flow")
    coalesce_jobs: bool = _setting(True, "one DataJob per application; else one per event")
    spark_job_id: str = _setting(
        "task", "id of a Spark job below Airflow: task, its own; application, the name", _one_of("task", "application")
    )
    use_patch: bool = _setting(False, "add edges and tags to those in DataHub instead of replacing them")
    parent_job_urn: str | None = _setting(None, "a DataJob upstream of every job", _job_urn)
    enhanced_merge_into_extraction: bool = _setting(False, "name the jobs of Delta's MERGE after their target table")
    capture_spark_plan: bool = _setting(False, "keep the logical plan as a property of the flow")
    env: str = _setting("PROD", "DataHub environment of datasets", _environment)
    dataset_platform_instance: str | None = _setting(None, "platform instance of datasets")
    catalog_platforms: Mapping[str, str] = _setting(
        {}, "platform of tables by catalogue or format, of all others by *, else hive; glue for tables in Glue"
    )
    disable_symlink_resolution: bool = _setting(False, "name tables by their path")
    lower_case_dataset_urns: bool = _setting(False, "lower-case the names of datasets")
    default_schemas: Mapping[str, str] = _setting(
        {"postgres": "public", "mssql": "dbo"}, "schema of database tables that are named without one, by platform"
    )
    dataset_urns: Mapping[str, str] = _setting(
        {}, "URNs that datasets get in place of their own, as reconcile writes them", _dataset_urns
    )
    namespaces: Mapping[str, PathSpec] = _setting(
        {}, "platform instance and environment of datasets, by OpenLineage namespace or Glue ARN", _namespaces
    )
    path_specs: tuple[PathSpec, ...] = _setting((), "which folder of a path is the dataset, by platform", _path_specs)
    file_partition_regexp: str | None = _setting(None, "pattern to cut off the end of a path", _regexp)
    datasets: str = _setting(
        "written",
        "written: write schemas of files that the run wrote; keys: datasetKey and status; schemas: of all datasets",
        _one_of(*_DATASETS),
    )
    capture_column_level_lineage: bool = _setting(True, "write column-level lineage")
    capture_indirect_columns: bool = _setting(
        True, "write columns that only filter, join, group or sort as column-level lineage too"
    )
    dataset_details: tuple[str, ...] = _setting(
        (), "add what the producer says of datasets and of the fields in their schemas", _details
    )
    capture_test_results: bool = _setting(False, "write the results of data-quality checks that a run made")
    max_string_length: int = _setting(
        16_000_000, "the longest text in an aspect, and the longest column lineage of a job, in characters", _length
    )
    capture_evidence: bool = _setting(False, "write which queries gave each edge of a coalesced job")
    # Launchers set these two; users cannot.
    suffixed_name: str | None = None
    """Name to which the launcher appends a random suffix: ``<name>-<8 letters or digits>`` is taken for ``<name>``."""
    unnamed_as: str | None = None
    """Name for an application that has none of its own, which Spark calls e.g. ``pyspark-shell``."""

    def __hash__(self) -> int:
        """Hash the settings that usually differ: settings are the key of many caches."""
        return hash((self.env, self.pipeline_name, self.platform_instance))

    @property
    def partition_pattern(self) -> LinearPattern | None:
        """:attr:`file_partition_regexp`, compiled to match at a path's end."""
        return _at_the_end(self.file_partition_regexp) if self.file_partition_regexp else None

    @property
    def upstream_jobs(self) -> tuple[str, ...]:
        """:attr:`parent_job_urn` as the upstream of each job."""
        return (self.parent_job_urn,) if self.parent_job_urn else ()

    @property
    def usable_domains(self) -> list[str]:
        """The domains that are URNs."""
        return [domain for domain in self.domains if domain.startswith("urn:li:domain:")]

    def domain_warnings(self) -> list[str]:
        """Return a warning for each domain that is left out, as it is not the URN of a domain."""
        unusable = (domain for domain in self.domains if domain not in self.usable_domains)
        return [f"domain {domain!r} is not the URN of a domain, and is left out" for domain in unusable]

    def flow_id(self, application: str) -> str:
        """Return the name of the flow of an application with this name."""
        stem, _, suffix = application.rpartition("-")
        if self.suffixed_name and stem == self.suffixed_name and _RANDOM_SUFFIX.fullmatch(suffix):
            application = stem
        if self.unnamed_as and _UNNAMED.fullmatch(application):
            application = self.unnamed_as
        return (self.pipeline_name or APPLICATION).replace(APPLICATION, application)

    @classmethod
    def from_mapping(cls, *layers: Mapping[str, Any]) -> LineageSettings:
        """Read settings from plain values: JSON, YAML, an operator's argument, ``--set`` of the command line.

        Names may be ours, those of the Java listener (with or without ``spark.datahub.``), of its converter and of
        GMS, dotted or nested. Text is accepted for every type: ``"true"`` for a boolean, ``"a,b"`` for a list, JSON
        for an object.

        :param layers: settings; a later layer overrides the same settings of an earlier layer, in any spelling.
            ``None`` is the default.
        :raises SettingsError: if a name is unknown (the message suggests the nearest one), a value is wrong, or two
            spellings of one setting in one layer disagree.
        """
        values: dict[str, Any] = {}
        for layer in layers:
            given = _read(layer)
            for name in given:
                for rival in _RIVALS.get(name, ()):
                    values.pop(rival, None)
            values |= given
        parts = {part: values.pop(part, None) for part in FLOW_PARTS}
        values["pipeline_name"] = values.get("pipeline_name") or _composed_name(parts)
        values["platform_instance"] = values.get("platform_instance") or parts[PIPELINE_INSTANCE]
        if alias := values.pop(HIVE_ALIAS, None):
            values["catalog_platforms"] = {OTHER_CATALOGS: alias, **(values.get("catalog_platforms") or {})}
        with_keys, with_schemas = values.pop(MATERIALIZE, None), values.pop(INCLUDE_SCHEMA, None)
        # The listener writes no schema without the key of its dataset.
        if with_keys:
            values["datasets"] = "schemas" if with_schemas is True else "keys"
        elif with_schemas is False or (with_keys is False and with_schemas != "written"):
            values["datasets"] = "none"
        return cls(**{name: value for name, value in values.items() if value is not None})

    @classmethod
    def usable(cls, *layers: Mapping[str, Any]) -> tuple[LineageSettings, list[dict[str, Any]], list[str]]:
        """Read settings as :meth:`from_mapping` does, but leave out each one that cannot be used.

        :returns: the settings, the layers of those that are used, and a sentence for each one that is left out.
        """
        used: list[dict[str, Any]] = []
        problems = []
        for layer in layers:
            used.append({})
            for name, value in layer.items():
                try:
                    cls.from_mapping(*used[:-1], {**used[-1], name: value})
                except SettingsError as error:
                    problems.append(str(error))
                else:
                    used[-1][name] = value
        return cls.from_mapping(*used), used, problems

    @staticmethod
    def settable() -> dict[str, str]:
        """Return the settings that users can set, with their meanings."""
        return {setting.name: setting.metadata["meaning"] for setting in fields(LineageSettings) if setting.metadata}

    @staticmethod
    def notes(*layers: Mapping[str, Any]) -> list[str]:
        """Return a sentence on each setting that is accepted but has no effect, or another effect than elsewhere.

        Each sentence starts with the setting as the user wrote it and never shows a secret.

        :raises SettingsError: if a name is unknown.
        """
        return list(dict.fromkeys(note for layer in layers for note in translate(layer, _OWN_READERS)[1]))

    @staticmethod
    def environment_layer(environment: Mapping[str, str]) -> dict[str, int]:
        """Return the settings in environment variables of GMS and of the Java listener: the layer below all others.

        :param environment: environment of the process; conversion itself does not read it.
        :raises SettingsError: if a value is wrong.
        """
        longest = environment.get(_STRING_LENGTH_VARIABLE, "").strip()
        return {"max_string_length": _length(_STRING_LENGTH_VARIABLE, longest)} if longest else {}


_LEAST_LENGTH = 100
_STRING_LENGTH_VARIABLE = "INGESTION_MAX_SERIALIZED_STRING_LENGTH"


def _read(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return typed values by our names and those of :data:`FLOW_PARTS`; ``None`` stands for the default."""
    values: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for setting in translate(layer, _OWN_READERS)[0]:
        value = None if setting.value is None else _READERS[setting.name](setting.spelling, setting.value)
        if values.get(setting.name) is None:
            values[setting.name], spellings[setting.name] = value, setting.spelling
        elif value is not None and value != values[setting.name]:
            raise SettingsError.contradiction(spellings[setting.name], setting.spelling)
    _check_rivals(values, spellings)
    if (datasets := values.pop("datasets", None)) is not None:
        for part, is_wanted in zip((MATERIALIZE, INCLUDE_SCHEMA), _DATASETS[datasets], strict=True):
            if values.setdefault(part, is_wanted) != is_wanted:
                raise SettingsError.contradiction(spellings["datasets"], spellings[part])
    return values


def _check_rivals(values: Mapping[str, Any], spellings: Mapping[str, str]) -> None:
    composed = {"platform_instance": values.get(PIPELINE_INSTANCE), "pipeline_name": _composed_name(values)}
    for name, other in composed.items():
        rival = next((rival for rival in _RIVALS[name] if values.get(rival) is not None), None)
        if rival and values.get(name) is not None and values[name] != other:
            raise SettingsError.contradiction(spellings[name], spellings[rival])


def _composed_name(parts: Mapping[str, Any]) -> str | None:
    """Return the flow's name as the Java listener composes it, or ``None`` if it is the application's own.

    :param parts: values of :data:`FLOW_PARTS`.
    """
    name = parts.get(FLOW_NAME) or APPLICATION
    if parts.get(DATABRICKS_CLUSTER):
        return f"{parts[DATABRICKS_CLUSTER]}_{name}".replace(",", "")
    if parts.get(PIPELINE_INSTANCE):
        return f"{parts[PIPELINE_INSTANCE]}.{name}"
    return parts.get(FLOW_NAME)


# Two ways to set the same: if a layer sets one, it removes the other from the layers below.
_RIVALS: dict[str, tuple[str, ...]] = {
    "pipeline_name": (FLOW_NAME, DATABRICKS_CLUSTER),
    FLOW_NAME: ("pipeline_name",),
    DATABRICKS_CLUSTER: ("pipeline_name",),
    "platform_instance": (PIPELINE_INSTANCE,),
    PIPELINE_INSTANCE: ("platform_instance",),
}

_OWN_READERS: dict[str, _Reader] = {
    setting.name: setting.metadata["read"] for setting in fields(LineageSettings) if setting.metadata
}
_READERS = {
    **_OWN_READERS,
    **dict.fromkeys((*FLOW_PARTS, HIVE_ALIAS), _text),
    **dict.fromkeys((MATERIALIZE, INCLUDE_SCHEMA), _boolean),
}

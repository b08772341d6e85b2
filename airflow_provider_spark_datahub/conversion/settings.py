"""Settings of the conversion: one typed model, with the names that DataHub's Java listener has for
them.

Values may be text, JSON or plain objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from airflow_provider_spark_datahub.foundation.text import nearest, read_boolean

_LISTENER_PREFIX = "spark.datahub."
_APPLICATION = "{application}"
"""Placeholder for the application's own name in ``pipeline_name``."""
_RANDOM_SUFFIX = re.compile(r"[a-z0-9]{8}")
# The script that spark-pipelines submits for each pipeline is cli.py.
_UNNAMED = re.compile(r"[Nn]one|pyspark[-_]shell|PySparkShell|Spark shell|SparkSQL::.*|cli[._]py")
# Properties of the listener that are parts of our settings: of pipeline_name (the third alone names
# no flow) and of platform_instance, of catalog_platforms, and of datasets; the last one is for the
# job's listener alone.
_FLOW_NAME = "flow_name"
_DATABRICKS_CLUSTER = "databricks.cluster"
_PIPELINE_INSTANCE = "metadata.pipeline.platformInstance"
_FLOW_PARTS = (_FLOW_NAME, _DATABRICKS_CLUSTER, _PIPELINE_INSTANCE)
_HIVE_ALIAS = "metadata.dataset.hivePlatformAlias"
_MATERIALIZE = "metadata.dataset.materialize"
_INCLUDE_SCHEMA = "metadata.dataset.include_schema_metadata"
_TRIMMERS = "metadata.dataset.openLineageTrimmersEnabled"
# For each value of "datasets", those of the last two.
_DATASETS = {
    "none": (False, False),
    "written": (False, "written"),
    "keys": (True, False),
    "schemas": (True, True),
}
DETAILS = ("documentation", "owners", "tags")
"""Values of ``dataset_details``."""
OTHER_CATALOGS = "*"
"""Key in ``catalog_platforms`` for catalogues and formats that it does not name."""
ENVIRONMENTS = (
    "DEV", "TEST", "QA", "UAT", "EI", "PRE", "STG", "NON_PROD", "PROD", "CORP",
    "RVW", "PRD", "TST", "SIT", "SBX", "SANDBOX", "CERT",
)  # fmt: skip
"""DataHub's ``FabricType``."""


class SettingsError(ValueError):
    """Setting that does not exist or has a wrong value; the message names it and says what to write
    instead.
    """

    @classmethod
    def contradiction(cls, first: str, second: str) -> SettingsError:
        """Return the error for two spellings of one setting that have different values."""
        return cls(
            f"{first} and {second} are two spellings of one setting and disagree; keep one of them"
        )


@dataclass(frozen=True, slots=True)
class PathSpec:
    """Rule that maps the paths of one platform to datasets.

    :param path_spec_list: patterns such as ``s3://bucket/*/{table}``: ``*`` is one folder,
        ``{table}`` the dataset's.
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
    if (
        isinstance(value, bool)
        or not text.isascii()
        or not text.isdigit()
        or int(text) < _LEAST_LENGTH
    ):
        raise SettingsError(
            f"{name} is {value!r}, want a whole number of characters, {_LEAST_LENGTH} at least"
        )
    return int(text)


def _texts(name: str, value: object) -> tuple[str, ...]:
    """Read a list of texts, or one text with commas between them."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise SettingsError(f"{name} is {value!r}, want a list of texts")
    return tuple(item.strip() for item in items if item.strip())


def _text_map(name: str, value: object) -> dict[str, str]:
    texts = dict(_object(name, value, " of texts"))
    if not all(isinstance(part, str) for pair in texts.items() for part in pair):
        raise SettingsError(f"{name} is {value!r}, want an object of texts")
    return texts


def _catalogs(name: str, value: object) -> dict[str, str]:
    return {
        catalog.strip().lower(): platform for catalog, platform in _text_map(name, value).items()
    }


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
        re.compile(text or "")
    except re.error as error:
        raise SettingsError(f"{name} is {value!r}, want a regular expression: {error}") from error
    if text and _REPEATED_GROUP.search(text):
        raise SettingsError(
            f"{name} is {value!r}: it repeats a group, and a match may take exponential time"
        )
    return text


_REPEATED_GROUP = re.compile(r"\)[*+{]")


def _object(name: str, value: object, wanted: str) -> Mapping[Any, Any]:
    """Read an object, or one in JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise SettingsError(f"{name} is {value!r}, want JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise SettingsError(f"{name} is {value!r}, want an object{wanted}")
    return value


def _path_specs(name: str, value: object) -> tuple[PathSpec, ...]:
    """Read ``{platform: {alias: spec}}`` or ``{platform: spec}``.

    A spec is ``{"path_spec_list": […], "env": …, "platform_instance": …}``, or its list of patterns
    alone.
    """
    if isinstance(value, tuple) and all(isinstance(item, PathSpec) for item in value):
        return value
    return tuple(
        _path_spec(f"{name}.{platform}{'.' if alias else ''}{alias}", platform, alias, spec)
        for platform, specs in _object(
            name, value, ": {platform: {alias: {path_spec_list: […]}}}"
        ).items()
        for alias, spec in _by_alias(specs)
    )


_DATASET = re.compile(
    r"urn:li:dataset:\(urn:li:dataPlatform:(?P<platform>[^,()]+),(?P<name>.+),(?P<env>[A-Z_]+)\)"
)


def split_dataset_urn(urn: str) -> tuple[str, str, str] | None:
    """Return platform, encoded name and environment of a dataset's URN; ``None`` for any other
    text.
    """
    found = _DATASET.fullmatch(urn)
    return (found["platform"], found["name"], found["env"]) if found is not None else None


def _dataset_urns(name: str, value: object) -> dict[str, str]:
    found = _text_map(name, value)
    if wrong := next(
        (urn for pair in found.items() for urn in pair if split_dataset_urn(urn) is None), None
    ):
        raise SettingsError(f"{name} has {wrong!r}, want URNs of datasets")
    return found


def _namespaces(name: str, value: object) -> dict[str, PathSpec]:
    """Read ``{namespace: {"env": …, "platform_instance": …}}``."""
    places = {
        namespace: place
        if isinstance(place, PathSpec)
        else _path_spec(f"{name}.{namespace}", "", "", place)
        for namespace, place in _object(
            name, value, ": {namespace: {platform_instance: …, env: …}}"
        ).items()
    }
    if wrong := next(
        (namespace for namespace, place in places.items() if place.path_spec_list), None
    ):
        raise SettingsError(
            f"{name}.{wrong} has path specs, want platform_instance and env: set path_specs"
        )
    return places


_SPEC_PARTS: dict[str, _Reader] = {
    "path_spec_list": _texts,
    "env": _environment,
    "platform_instance": _text,
}


def _by_alias(specs: object) -> list[tuple[str, object]]:
    if isinstance(specs, Mapping) and not _SPEC_PARTS.keys() & specs.keys():
        return list(specs.items())
    return [("", specs)]


def _path_spec(name: str, platform: str, alias: str, spec: object) -> PathSpec:
    if isinstance(spec, str | list | tuple):
        spec = {"path_spec_list": spec}
    if not isinstance(spec, Mapping):
        raise SettingsError(
            f"{name} is {spec!r}, want {{path_spec_list: […], env: …, platform_instance: …}}"
        )
    values: dict[str, Any] = {}
    for key, value in spec.items():
        if key not in _SPEC_PARTS:
            close = nearest(str(key), _SPEC_PARTS)
            hint = (
                f"did you mean {close!r}?"
                if close
                else f"known are {', '.join(sorted(_SPEC_PARTS))}"
            )
            raise SettingsError(f"unknown setting {name}.{key}; {hint}")
        if value is not None:
            values[key] = _SPEC_PARTS[key](f"{name}.{key}", value)
    for pattern in values.get("path_spec_list", ()):
        if "/{table}" not in pattern:
            raise SettingsError(f"{name}: the path spec {pattern!r} has no folder {{table}}")
    return PathSpec(platform=platform, alias=alias, **values)


_READERS_BY_TYPE: dict[type, _Reader] = {
    bool: _boolean,
    dict: _text_map,
    tuple: _texts,
    type(None): _text,
}


def _setting(default: Any, read: _Reader | None = None, *, listener: tuple[str, ...] = ()) -> Any:
    """Declare a setting that users can set.

    :param read: reader of its values; by default the reader of the default's type.
    :param listener: names of the listener's properties for it, without their prefix, if they differ
        from ours.
    """
    metadata = {"read": read or _READERS_BY_TYPE[type(default)], "listener": listener}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class LineageSettings:
    """Settings of the conversion of OpenLineage events to DataHub metadata. Defaults are those of
    the Java listener.
    """

    orchestrator: str | None = _setting(None)
    """Platform of the flow, instead of the event's processing engine."""
    pipeline_name: str | None = _setting(None)
    """Name of the flow and of the coalesced job; {application} in it stands for the
    application's own name.
    """
    platform_instance: str | None = _setting(None)
    """Instance of the orchestrator; also the flow's cluster."""
    owners: tuple[str, ...] = _setting(())
    """Users or URNs that own the flow."""
    tags: tuple[str, ...] = _setting(())
    """Tags of the flow."""
    domains: tuple[str, ...] = _setting(())
    """Domain URNs of the flow."""
    coalesce_jobs: bool = _setting(True)
    """One DataJob per application; else one per event."""
    exact_pairs: bool = _setting(True)
    """A DataJob for each output unless each input reaches each output; else one for all."""
    spark_job_id: str = _setting("task", _one_of("task", "application"))
    """Id of a Spark job below Airflow: task, its own; application, the name."""
    use_patch: bool = _setting(False, listener=("patch.enabled",))
    """Add edges and tags to those in DataHub instead of replacing them."""
    parent_job_urn: str | None = _setting(None, _job_urn, listener=("parent.datajob_urn",))
    """A DataJob upstream of every job."""
    enhanced_merge_into_extraction: bool = _setting(
        False, listener=("metadata.dataset.enableEnhancedMergeIntoExtraction",)
    )
    """Name the jobs of Delta's MERGE after their target table."""
    capture_spark_plan: bool = _setting(False)
    """Keep the logical plan as a property of the flow."""
    env: str = _setting("PROD", _environment, listener=("metadata.dataset.env",))
    """DataHub environment of datasets."""
    dataset_platform_instance: str | None = _setting(
        None, listener=("metadata.dataset.platformInstance",)
    )
    """Platform instance of datasets."""
    catalog_platforms: Mapping[str, str] = _setting({}, _catalogs)
    """Platform of tables by catalogue or format, of all others by *, else hive; glue for tables
    in Glue.
    """
    disable_symlink_resolution: bool = _setting(False, listener=("disableSymlinkResolution",))
    """Name tables by their path."""
    lower_case_dataset_urns: bool = _setting(False, listener=("metadata.dataset.lowerCaseUrns",))
    """Lower-case the names of datasets."""
    default_schemas: Mapping[str, str] = _setting({"postgres": "public", "mssql": "dbo"})
    """Schema of database tables that are named without one, by platform."""
    dataset_urns: Mapping[str, str] = _setting({}, _dataset_urns)
    """URNs that datasets get in place of their own, as reconcile writes them."""
    namespaces: Mapping[str, PathSpec] = _setting({}, _namespaces)
    """Platform instance and environment of datasets, by OpenLineage namespace or Glue ARN."""
    path_specs: tuple[PathSpec, ...] = _setting((), _path_specs)
    """Which folder of a path is the dataset, by platform."""
    file_partition_regexp: str | None = _setting(None, _regexp)
    """Pattern to cut off the end of a path."""
    datasets: str = _setting("written", _one_of(*_DATASETS))
    """``written``: schemas of files that the run wrote; ``keys``: datasetKey and status; ``schemas``:
    of all datasets.
    """
    capture_column_level_lineage: bool = _setting(
        True, listener=("captureColumnLevelLineage", "metadata.dataset.captureColumnLevelLineage")
    )
    """Write column-level lineage."""
    capture_indirect_columns: bool = _setting(
        True,
        # The listener's key, and as its change (datahub#17594) announced it.
        listener=("columnLineage.includeIndirect", "column_lineage.include_indirect"),
    )
    """Write columns that only filter, join, group or sort as column-level lineage too."""
    dataset_details: tuple[str, ...] = _setting((), _details)
    """Add what the producer says of datasets and of the fields in their schemas."""
    max_string_length: int = _setting(16_000_000, _length)
    """The longest text in an aspect, and the longest column lineage of a job, in characters."""
    capture_evidence: bool = _setting(False)
    """Write which queries gave each edge of a coalesced job."""
    openlineage_trimmers: bool | None = None
    """The listener's ``openLineageTrimmersEnabled``; see :attr:`trims_paths`."""
    # Launchers set these two; users cannot.
    suffixed_name: str | None = None
    """Name to which the launcher appends a random suffix: ``<name>-<8 letters or digits>`` is taken
    for ``<name>``.
    """
    unnamed_as: str | None = None
    """Name for an application that has none of its own, which Spark calls e.g. ``pyspark-shell``.
    """

    def __hash__(self) -> int:
        """Hash the settings that usually differ: settings are the key of many caches."""
        return hash((self.env, self.pipeline_name, self.platform_instance))

    @property
    def partition_pattern(self) -> re.Pattern[str] | None:
        """:attr:`file_partition_regexp`, compiled to match at a path's end."""
        return (
            re.compile(f"(?:{self.file_partition_regexp})$") if self.file_partition_regexp else None
        )

    @property
    def trims_paths(self) -> bool:
        """Whether OpenLineage cuts dates and partitions off the ends of paths: patterns of paths
        need whole ones.
        """
        has_patterns = self.file_partition_regexp or any(
            spec.path_spec_list for spec in self.path_specs
        )
        return not has_patterns if self.openlineage_trimmers is None else self.openlineage_trimmers

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
        return [
            f"domain {domain!r} is not the URN of a domain, and is left out" for domain in unusable
        ]

    def flow_id(self, application: str) -> str:
        """Return the name of the flow of an application with this name."""
        stem, _, suffix = application.rpartition("-")
        if self.suffixed_name and stem == self.suffixed_name and _RANDOM_SUFFIX.fullmatch(suffix):
            application = stem
        if self.unnamed_as and _UNNAMED.fullmatch(application):
            application = self.unnamed_as
        return (self.pipeline_name or _APPLICATION).replace(_APPLICATION, application)

    @classmethod
    def from_mapping(cls, *layers: Mapping[str, Any]) -> LineageSettings:
        """Read settings from plain values: JSON, YAML, an operator's argument, ``--set`` of the
        command line.

        Names may be ours or those of the Java listener (with or without ``spark.datahub.``), dotted
        or nested. Text is accepted for every type: ``"true"`` for a boolean, ``"a,b"`` for a list,
        JSON for an object.

        :param layers: settings; a later layer overrides the same settings of an earlier layer, in
            any spelling. ``None`` is the default.
        :raises SettingsError: if a name is unknown (the message suggests the nearest one), a value
            is wrong, or two spellings of one setting in one layer disagree.
        """
        values: dict[str, Any] = {}
        for layer in layers:
            of_layer = _Layer(layer).settings()
            for name in of_layer:
                for rival in _RIVALS.get(name, ()):
                    values.pop(rival, None)
            values |= of_layer
        parts = {part: values.pop(part, None) for part in _FLOW_PARTS}
        values["pipeline_name"] = values.get("pipeline_name") or _composed_name(parts)
        values["platform_instance"] = values.get("platform_instance") or parts[_PIPELINE_INSTANCE]
        if alias := values.pop(_HIVE_ALIAS, None):
            values["catalog_platforms"] = {
                OTHER_CATALOGS: alias,
                **(values.get("catalog_platforms") or {}),
            }
        with_keys, with_schemas = values.pop(_MATERIALIZE, None), values.pop(_INCLUDE_SCHEMA, None)
        # The listener writes no schema without the key of its dataset.
        if with_keys:
            values["datasets"] = "schemas" if with_schemas is True else "keys"
        elif with_schemas is False or (with_keys is False and with_schemas != "written"):
            values["datasets"] = "none"
        values["openlineage_trimmers"] = values.pop(_TRIMMERS, None)
        return cls(**{name: value for name, value in values.items() if value is not None})

    @classmethod
    def usable(
        cls, *layers: Mapping[str, Any]
    ) -> tuple[LineageSettings, list[dict[str, Any]], list[str]]:
        """Read settings as :meth:`from_mapping` does, but leave out each one that cannot be used.

        :returns: the settings, the layers of those that are used, and a sentence for each one that
            is left out.
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
    def notes(*layers: Mapping[str, Any]) -> list[str]:
        """Return a sentence on each setting that is accepted but has no effect, or another effect
        than elsewhere.

        Each sentence starts with the setting as the user wrote it and never shows a secret.

        :raises SettingsError: if a name is unknown.
        """
        return list(dict.fromkeys(note for layer in layers for note in _Layer(layer).notes))


_LEAST_LENGTH = 100


_OF_THE_CONNECTION = "belongs in the Airflow connection: "
# Path specs may be meant by any other part.
_S3_PARTS = (
    "access_key",
    "bucket",
    "endpoint",
    "filename",
    "prefix",
    "profile",
    "region",
    "secret_key",
)
_FABRIC = "has no effect: tables of Microsoft Fabric have the names of other tables and paths"
_ENDS_KNOWN = (
    "has no effect: lineage is delivered when the task ends, however its Spark application ended, and with the "
    "operator's emit_periodically while it runs"
)
# Properties of the listener without effect, and why. Their values may be secret and are never
# shown.
_NOTES: Mapping[str, str] = {
    "emitter": _OF_THE_CONNECTION
    + "its type, datahub-rest, datahub-kafka, datahub-file or datahub-object-store",
    "file.filename": _OF_THE_CONNECTION + "the host of a datahub-file connection",
    "kafka": "has no effect here: delivery by Kafka is a datahub-kafka connection",
    "legacyLineageCleanup.enabled": "not implemented: edges that old listeners wrote onto datasets stay as they are",
    "log.mcps": "has no effect: set Airflow's log level to DEBUG to log every proposal that is sent",
    "metadata.dataset.fabricOneLake": _FABRIC,
    "metadata.fabricNotebookFlowNames": _FABRIC,
    "metadata.include_scheme": "has no effect, as in the Java listener: names of paths have no scheme",
    "metadata.remove_partition_pattern": "has no effect, as in the Java listener: set file_partition_regexp",
    "platform": "has no effect, as in the Java listener: set orchestrator for the flow's platform",
    "platformInstance": "has no effect, as in the Java listener: set metadata.pipeline.platformInstance",
    "rest.disable_chunked_encoding": "has no effect: requests are not chunked",
    "rest.disable_ssl_verification": _OF_THE_CONNECTION + "disable_ssl_verification in its extra",
    "rest.max_retries": _OF_THE_CONNECTION + "retry_max_times in its extra",
    **dict.fromkeys(
        ("rest.retry_interval", "rest.retry_interval_in_sec"),
        "has no effect: the time between retries cannot be set",
    ),
    "rest.server": _OF_THE_CONNECTION + "its host",
    "rest.token": _OF_THE_CONNECTION + "its password",
    **{
        f"s3.{part}": "has no effect here: delivery to S3 is a datahub-object-store connection"
        for part in _S3_PARTS
    },
    "stage_metadata_coalescing": _ENDS_KNOWN,
    "streaming_heartbeat": "has no effect, as in the Java listener",
    "streaming_job": _ENDS_KNOWN,
}
_OPEN_ENDED = ("kafka", "metadata.dataset.fabricOneLake")
_PLATFORM, _CONNECTIONS = "platform.", "metadata.dataset.connections."
# Parts of the listener's path specs and connections, which are those of PathSpec.
_PARTS = {name: name for name in _SPEC_PARTS} | {"platformInstance": "platform_instance"}
_ALIASES = "path_alias_list"

_SETTINGS = {setting.name: setting for setting in fields(LineageSettings) if setting.metadata}
# Our settings and the parts of some, by their names and those of the listener.
_NAMES: dict[str, str] = {
    **{name: name for name in _SETTINGS},
    **{
        other: name for name, setting in _SETTINGS.items() for other in setting.metadata["listener"]
    },
    **{
        part: part for part in (*_FLOW_PARTS, _HIVE_ALIAS, _MATERIALIZE, _INCLUDE_SCHEMA, _TRIMMERS)
    },
    "metadata.dataset.experimental_include_schema_metadata": _INCLUDE_SCHEMA,
    "metadata.table.hive_platform_alias": _HIVE_ALIAS,
}
_READERS: dict[str, _Reader] = {
    **{name: setting.metadata["read"] for name, setting in _SETTINGS.items()},
    **dict.fromkeys((*_FLOW_PARTS, _HIVE_ALIAS), _text),
    **dict.fromkeys((_MATERIALIZE, _INCLUDE_SCHEMA, _TRIMMERS), _boolean),
}


class _Layer:
    """One layer of settings, in any spelling, flat or nested.

    :ivar notes: a sentence on each setting that was accepted but does not do what its name says.
    """

    def __init__(self, layer: Mapping[str, Any]) -> None:
        self.notes: list[str] = []
        self._values: dict[str, Any] = {}
        self._spellings: dict[str, str] = {}
        # Our setting, the platform or namespace, the alias of a path spec and its part → spelling
        # and value.
        self._parts: dict[tuple[str, ...], tuple[str, object]] = {}
        for spelling, value in self._leaves("", layer):
            self._add(spelling, value)
        for name, spelling in (("path_specs", _PLATFORM[:-1]), ("namespaces", _CONNECTIONS[:-1])):
            if nested := self._nested(name):
                self._give(name, spelling, nested)

    def settings(self) -> dict[str, Any]:
        """Return typed values by our names and those of parts; ``None`` stands for the default.

        :raises SettingsError: if two spellings of one setting disagree.
        """
        values = dict(self._values)
        composed = {
            "platform_instance": values.get(_PIPELINE_INSTANCE),
            "pipeline_name": _composed_name(values),
        }
        for name, other in composed.items():
            rival = next((rival for rival in _RIVALS[name] if values.get(rival) is not None), None)
            if rival and values.get(name) is not None and values[name] != other:
                raise SettingsError.contradiction(self._spellings[name], self._spellings[rival])
        if (datasets := values.pop("datasets", None)) is not None:
            for part, is_wanted in zip(
                (_MATERIALIZE, _INCLUDE_SCHEMA), _DATASETS[datasets], strict=True
            ):
                if values.setdefault(part, is_wanted) != is_wanted:
                    raise SettingsError.contradiction(
                        self._spellings["datasets"], self._spellings[part]
                    )
        return values

    def _leaves(self, prefix: str, settings: Mapping[Any, Any]) -> Iterator[tuple[str, object]]:
        """Yield dotted names and values. An object that is the value of a setting stays whole."""
        for key, value in settings.items():
            if not isinstance(key, str):
                raise SettingsError(
                    f"the name of a lineage setting must be text, not {prefix}{key!r}"
                )
            spelling = f"{prefix}{key}"
            name = spelling.removeprefix(_LISTENER_PREFIX)
            # "platform" with a text is a setting without effect; with an object, it holds the path
            # specs.
            is_setting = name in _NAMES or (name in _NOTES and name != _PLATFORM[:-1])
            if isinstance(value, Mapping) and value and not is_setting:
                yield from self._leaves(f"{spelling}.", value)
            else:
                yield spelling, value

    def _add(self, spelling: str, value: object) -> None:
        name = spelling.removeprefix(_LISTENER_PREFIX)
        group = next((group for group in _OPEN_ENDED if name.startswith(f"{group}.")), name)
        if group in _NOTES:
            self._note(spelling, _NOTES[group], value)
            return
        if name != spelling:
            value = self._unescaped(spelling, value)
        if name in _NAMES:
            self._give(_NAMES[name], spelling, value)
        elif name.startswith(_PLATFORM) and name.count(".") > 1:
            _, platform, *alias, part = name.split(".")
            self._add_part(spelling, ("path_specs", platform, ".".join(alias), part), value)
        elif name.startswith(_CONNECTIONS):
            namespace, _, part = name.removeprefix(_CONNECTIONS).rpartition(".")
            self._add_part(spelling, ("namespaces", namespace.strip('"'), "", part), value)
        else:
            raise _unknown(spelling, name)

    def _add_part(self, spelling: str, place: tuple[str, ...], value: object) -> None:
        *before, part = place
        if part == _ALIASES:
            self._note(
                spelling, "has no effect: every alias that has settings of its own counts", value
            )
        elif part not in _PARTS:
            close = nearest(part, _PARTS) or next(iter(_PARTS))
            raise SettingsError(_unknown_setting(spelling, spelling.removesuffix(part) + close))
        elif value is not None:
            first, other = self._parts.setdefault((*before, _PARTS[part]), (spelling, value))
            if other != value:
                raise SettingsError.contradiction(first, spelling)

    def _nested(self, setting: str) -> dict[str, dict[str, Any]]:
        """Return path specs by platform and alias, or the places of namespaces.

        An alias without an environment or an instance has the platform's.
        """
        nested: dict[str, dict[str, Any]] = {}
        for (name, key, alias, part), (_, value) in self._parts.items():
            if name == "namespaces" == setting:
                nested.setdefault(key, {})[part] = value
            elif name == setting:
                nested.setdefault(key, {}).setdefault(alias, {})[part] = value
        if setting == "path_specs":
            for aliases in nested.values():
                of_platform = {
                    part: value
                    for part, value in aliases.get("", {}).items()
                    if part != "path_spec_list"
                }
                aliases |= {alias: of_platform | spec for alias, spec in aliases.items() if alias}
        return nested

    def _give(self, name: str, spelling: str, value: object) -> None:
        typed = None if value is None else _READERS[name](spelling, value)
        if self._values.get(name) is None:
            self._values[name], self._spellings[name] = typed, spelling
        elif typed is not None and typed != self._values[name]:
            raise SettingsError.contradiction(self._spellings[name], spelling)

    def _note(self, spelling: str, note: str, value: object) -> None:
        if value is not None:
            self.notes.append(f"{spelling} {note}")

    def _unescaped(self, spelling: str, value: object) -> object:
        r"""Return the value as the listener reads it: a quoted text, in which ``year=\\d+`` means
        ``year=\d+``.
        """
        if not isinstance(value, str) or "\\" not in value:
            return value
        try:
            text = json.loads(f'"{value}"')
        except ValueError:
            # The listener refuses such a text, so it never had another meaning.
            return value
        self._note(
            spelling,
            f"is read as {text!r}: a backslash is an escape in the Java listener's properties",
            value,
        )
        return text


def _unknown(spelling: str, name: str) -> SettingsError:
    if spelling.startswith("spark.") and name == spelling:
        return SettingsError(
            f"{spelling} is a Spark property, not a lineage setting: put it in the task's 'conf'"
        )
    similar = [other for other in (*_NAMES, *_NOTES) if ("." in other) == ("." in name)]
    close = f"{name}.{next(iter(_PARTS))}" if name.startswith(_PLATFORM) else nearest(name, similar)
    return SettingsError(_unknown_setting(spelling, close and spelling.removesuffix(name) + close))


def _unknown_setting(spelling: str, close: str | None) -> str:
    hint = f"did you mean {close!r}?" if close else f"known are {', '.join(sorted(_SETTINGS))}"
    return f"unknown lineage setting {spelling!r}; {hint}"


def _composed_name(parts: Mapping[str, Any]) -> str | None:
    """Return the flow's name as the Java listener composes it, or ``None`` if it is the
    application's own.

    :param parts: values of :data:`_FLOW_PARTS`.
    """
    name = parts.get(_FLOW_NAME) or _APPLICATION
    if parts.get(_DATABRICKS_CLUSTER):
        return f"{parts[_DATABRICKS_CLUSTER]}_{name}".replace(",", "")
    if parts.get(_PIPELINE_INSTANCE):
        return f"{parts[_PIPELINE_INSTANCE]}.{name}"
    return parts.get(_FLOW_NAME)


# Two ways to set the same: if a layer sets one, it removes the other from the layers below.
_RIVALS: dict[str, tuple[str, ...]] = {
    "pipeline_name": (_FLOW_NAME, _DATABRICKS_CLUSTER),
    _FLOW_NAME: ("pipeline_name",),
    _DATABRICKS_CLUSTER: ("pipeline_name",),
    "platform_instance": (_PIPELINE_INSTANCE,),
    _PIPELINE_INSTANCE: ("platform_instance",),
}

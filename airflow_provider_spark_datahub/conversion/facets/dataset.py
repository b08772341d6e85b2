"""The ``schemaMetadata`` of a dataset from OpenLineage's ``schema`` facet (conversion rules, section 4).

Documentation, owners and tags that a producer's facets give a dataset, as patches that take nothing away.

Results of data-quality checks that a run made, as the ``testResults`` of the run.

What a run did to a dataset by its facets: how much it wrote, and what became of the dataset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import (
    DatasetId,
    EventDataset,
    Facets,
    JsonObject,
    RunEvent,
    as_object,
    as_objects,
    as_text,
)
from airflow_provider_spark_datahub.conversion.limits import unpacked
from airflow_provider_spark_datahub.conversion.proposals import (
    Proposal,
    SharedObject,
    audit_stamp,
    json_text,
    pointer_part,
)
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

# DataHub type class and the type's name in a version 2 field path (which are Avro's names, as acryl-datahub's
# own Hive reader writes them).
_TYPES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("string", "char", "varchar", "uuid"), ("StringType", "string")),
    **dict.fromkeys(("byte", "tinyint", "short", "smallint", "int", "integer"), ("NumberType", "int")),
    **dict.fromkeys(("long", "bigint"), ("NumberType", "long")),
    **dict.fromkeys(("float", "real"), ("NumberType", "float")),
    **dict.fromkeys(("double", "double precision"), ("NumberType", "double")),
    **dict.fromkeys(("decimal", "numeric", "dec", "number"), ("NumberType", "bytes")),
    **dict.fromkeys(("boolean", "bool"), ("BooleanType", "boolean")),
    **dict.fromkeys(("binary", "bytes"), ("BytesType", "bytes")),
    "date": ("DateType", "int"),
    **dict.fromkeys(("timestamp", "timestamp_ntz", "timestamp_ltz", "timestamptz", "datetime"), ("TimeType", "long")),
    **dict.fromkeys(("time", "interval", "calendarinterval"), ("TimeType", "long")),
    "array": ("ArrayType", "array"),
    "map": ("MapType", "map"),
    **dict.fromkeys(("struct", "record", "variant", "geometry", "geography"), ("RecordType", "struct")),
}
_UNKNOWN = ("NullType", "null")
_SHOWN, _PLAIN = ("name", "type", "description"), (str, int, float)
# Of structs in structs; a producer's mistake could be as deep as Python's stack.
_MAX_DEPTH = 50
_NESTED = frozenset({"array", "map", "struct", "record"})
# How producers name the one child of an array, and the value of a map.
_ELEMENT_NAMES = frozenset({"_element", "element", "array_element", "item"})
_VALUE_NAMES = frozenset({"value", "_value"})


class _Shape(msgspec.Struct):
    fields: Raw = Raw(b"null")


_decode_shape = msgspec.json.Decoder(_Shape).decode


def lists_fields(facet: JsonObject | bytes) -> bool:
    """Whether a ``schema`` facet tells a schema at all: one without ``fields`` takes none away that is known."""
    if isinstance(facet, bytes):
        try:
            return bytes(_decode_shape(facet).fields).startswith(b"[")
        except (msgspec.DecodeError, RecursionError):
            return False
    return isinstance(facet.get("fields"), list)


def field_names(facet: JsonObject | bytes | None) -> tuple[str, ...]:
    """The names of a ``schema`` facet's fields, in their order.

    :param facet: decoded, or as packed text.
    """
    told = as_object(unpacked(facet)) if isinstance(facet, bytes) else facet or {}
    return tuple(name for field in as_objects(told.get("fields")) if (name := as_text(field.get("name"))))


def schema_metadata(
    facet: JsonObject | bytes, platform: str, *, with_descriptions: bool = False
) -> dict[str, Any] | None:
    """The aspect, or ``None`` where the facet lists no fields. Not to be changed by the caller.

    :param facet: the ``schema`` dataset facet, decoded or as packed text.
    :param platform: the URN of the dataset's platform.
    :param with_descriptions: of the fields.
    """
    if isinstance(facet, bytes):
        return _metadata_again(facet, platform, with_descriptions)
    return _metadata(facet, platform, with_descriptions)


@lru_cache(maxsize=64)
def _metadata_again(facet: bytes, platform: str, with_descriptions: bool) -> dict[str, Any] | None:
    """The events of a job repeat the schemas of its datasets byte by byte."""
    aspect = _metadata(as_object(unpacked(facet)), platform, with_descriptions)
    return None if aspect is None else SharedObject(aspect)


def _metadata(facet: JsonObject, platform: str, with_descriptions: bool) -> dict[str, Any] | None:
    listed = facet.get("fields")
    if not isinstance(listed, list):
        return None
    fields = [field for field in as_objects(listed) if as_text(field.get("name"))]
    unknown = {"time": 0, "actor": "urn:li:corpuser:unknown"}
    unique: dict[str, dict[str, Any]] = {}
    for listed in fields:
        for described, told in _schema_fields(listed):
            if with_descriptions and (description := as_text(told.get("description")).strip()):
                described["description"] = description
            unique.setdefault(described["fieldPath"], described)
    return {
        "schemaName": "",
        "platform": platform,
        "version": 1,
        "created": unknown,
        "lastModified": unknown,
        "hash": "",
        "platformSchema": {"com.linkedin.schema.MySqlDDL": {"tableSchema": _table_schema(fields)}},
        "fields": list(unique.values()),
    }


def _table_schema(fields: list[JsonObject]) -> str:
    def plain(field: JsonObject, depth: int = 0) -> dict[str, Any]:
        shown = {key: field[key] for key in _SHOWN if isinstance(field.get(key), _PLAIN)}
        if "fields" in field and depth < _MAX_DEPTH:
            children = [plain(child, depth + 1) for child in as_objects(field["fields"])]
            if children:
                shown["fields"] = children
        return shown

    return json_text([plain(field) for field in fields])


def _schema_fields(field: JsonObject) -> Iterator[tuple[dict[str, Any], JsonObject]]:
    """One field with, for a nested type, its descendants under version 2 field paths; each as DataHub's and as told.

    A field without nested ones keeps its plain name as path, which is what column lineage calls it.
    """
    if "fields" in field and _base_type(_native(field)) in _NESTED and any(as_objects(field["fields"])):
        yield from _nested_fields(field, "[version=2.0].[type=struct]")
    else:
        yield _schema_field(as_text(field.get("name")), field), field


def _nested_fields(field: JsonObject, prefix: str, depth: int = 0) -> Iterator[tuple[dict[str, Any], JsonObject]]:
    tokens, inner = _type_tokens(field)
    types = ".".join(f"[type={token}]" for token in tokens)
    path = f"{prefix}.{types}.{as_text(field.get('name'))}"
    yield _schema_field(path, field), field
    if inner is not None and depth < _MAX_DEPTH:
        for child in as_objects(inner.get("fields")):
            if as_text(child.get("name")):
                yield from _nested_fields(child, path, depth + 1)


def _type_tokens(field: JsonObject) -> tuple[list[str], JsonObject | None]:
    """The types from the field down to the first struct or scalar, and the struct whose fields come next."""
    tokens: list[str] = []
    inner = field
    while True:
        base = _base_type(_native(inner))
        tokens.append(_TYPES.get(base, _UNKNOWN)[1])
        if base in ("struct", "record"):
            return tokens, inner
        child = _content(inner) if base in ("array", "map") else None
        if child is None:
            return tokens, None
        inner = child


def _content(field: JsonObject) -> JsonObject | None:
    """What an array holds, or the values of a map."""
    children = list(as_objects(field.get("fields")))
    wanted = _VALUE_NAMES if _base_type(_native(field)) == "map" else _ELEMENT_NAMES
    named = [child for child in children if as_text(child.get("name")) in wanted]
    if named:
        return named[0]
    # Older producers list a struct's fields right below the array that holds it.
    return {"type": "struct", "fields": children} if children else None


def _native(field: JsonObject) -> str:
    return as_text(field.get("type"))


@lru_cache(maxsize=1024)
def _base_type(native: str) -> str:
    """The type's name without parameters, lower case: ``decimal(10,2)`` → ``decimal``."""
    name = native.strip().lower()
    for end in ("(", "<"):
        name = name.partition(end)[0]
    name = name.strip()
    return name if name in _TYPES else name.partition(" ")[0]


def _schema_field(path: str, field: JsonObject) -> dict[str, Any]:
    native = _native(field)
    return {
        "fieldPath": path,
        "nullable": False,
        "type": _type(native, _type_body(field)) if "fields" in field else _plain_type(native),
        "nativeDataType": native,
        "recursive": False,
        "isPartOfKey": False,
    }


def _type(native: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"type": {f"com.linkedin.schema.{_TYPES.get(_base_type(native), _UNKNOWN)[0]}": body}}


@lru_cache(maxsize=1024)
def _plain_type(native: str) -> dict[str, Any]:
    """One object for all columns of a type: a wide table has hundreds of few types."""
    return _type(native, {})


def _type_body(field: JsonObject) -> dict[str, Any]:
    base = _base_type(_native(field))
    content = _content(field) if base in ("array", "map") else None
    if content is None:
        return {}
    name = as_text(content.get("type")) or "null"
    if base == "array":
        return {"nestedType": [name]}
    keys = [child for child in as_objects(field.get("fields")) if as_text(child.get("name")) in ("key", "_key")]
    return {"keyType": as_text(keys[0].get("type")) if keys else "string", "valueType": name}


DOCUMENTATION, OWNERSHIP, TAGS = "documentation", "ownership", "tags"
_OWNER_KEYS = {"owners": ["owner", "type", "typeUrn", "attribution␟source"]}
_TAG_KEYS = {"tags": ["attribution␟source", "tag"]}

# DataHub's OwnershipType without CUSTOM, which needs the URN of a type, and NONE.
_OWNER_TYPES = frozenset(
    {"BUSINESS_OWNER", "CONSUMER", "DATAOWNER", "DATA_STEWARD", "DELEGATE"}
    | {"DEVELOPER", "PRODUCER", "STAKEHOLDER", "TECHNICAL_OWNER"}
)
_ANY_OWNER_TYPE = "TECHNICAL_OWNER"
# What OpenLineage's spec puts in front of an owner's name.
_OWNER_PREFIXES = {
    "user:": "urn:li:corpuser:",
    "team:": "urn:li:corpGroup:",
    "group:": "urn:li:corpGroup:",
}
_OWNER_URNS = ("urn:li:corpuser:", "urn:li:corpGroup:")
# Everything of a version 2 field path that is no name.
_PATH_TYPES = re.compile(r"\[(?:version|type|key)=[^\]]*\]\.")


@dataclass(frozen=True, slots=True)
class DatasetNotes:
    """What people wrote about a dataset.

    :param description: empty where there is none.
    :param owners: URN and type (DataHub's ``OwnershipType``) of each.
    :param tags: URNs of the dataset's tags.
    :param field_tags: URNs of the tags of its fields, by the field's name.
    """

    description: str = ""
    owners: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    field_tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


NO_NOTES = DatasetNotes()


@lru_cache(maxsize=4)
def noted_facets(settings: LineageSettings) -> tuple[str, ...]:
    """The dataset facets that the options ask for."""
    wanted = {
        DOCUMENTATION: settings.capture_dataset_documentation,
        OWNERSHIP: settings.capture_dataset_owners,
        TAGS: settings.capture_dataset_tags,
    }
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)


def read_notes(facets: Mapping[str, JsonObject]) -> DatasetNotes:
    """What the facets say; each mistake in them costs only itself.

    :param facets: those of :func:`noted_facets` that the dataset has, decoded.
    """
    owners = (_owner(owner) for owner in as_objects(facets.get(OWNERSHIP, {}).get("owners")))
    tags: dict[str, dict[str, None]] = {}
    for tag in as_objects(facets.get(TAGS, {}).get("tags")):
        urn = _tag_urn(tag)
        if urn:
            tags.setdefault(as_text(tag.get("field")), {})[urn] = None
    return DatasetNotes(
        description=as_text(facets.get(DOCUMENTATION, {}).get("description")).strip(),
        owners=tuple(dict.fromkeys(owner for owner in owners if owner is not None)),
        tags=tuple(tags.pop("", ())),
        field_tags={name: tuple(found) for name, found in tags.items()},
    )


def _owner(owner: JsonObject) -> tuple[str, str] | None:
    """URN and type; ``None`` where the name is no user's and no group's."""
    name = as_text(owner.get("name")).strip()
    prefix = next((prefix for prefix in _OWNER_PREFIXES if name.startswith(prefix)), "")
    urn = urns.encode(_OWNER_PREFIXES[prefix] + name[len(prefix) :] if prefix else urns.owner_urn(name))
    kind = as_text(owner.get("type")).strip().upper().replace(" ", "_")
    usable = urn.startswith(_OWNER_URNS) and urn not in _OWNER_URNS and not urns.is_too_long(urn)
    return (urn, kind if kind in _OWNER_TYPES else _ANY_OWNER_TYPE) if usable else None


def _tag_urn(tag: JsonObject) -> str:
    """``key``, or ``key:value`` where the value is not the ``true`` that OpenLineage gives a tag without one."""
    key, value = as_text(tag.get("key")).strip(), as_text(tag.get("value")).strip()
    urn = urns.encode(urns.tag_urn(key if value.lower() in ("", "true") else f"{key}:{value}"))
    return "" if not key or urn == "urn:li:tag:" or urns.is_too_long(urn) else urn


def note_proposals(urn: str, notes: DatasetNotes) -> Iterator[Proposal]:
    """The notes as acryl-datahub's ``DatasetPatchBuilder`` spells them, but for those of fields.

    :param urn: the dataset's.
    """
    if notes.description:
        operation = {"op": "add", "path": "/description", "value": notes.description}
        yield Proposal("dataset", urn, "datasetProperties", [operation], "PATCH")
    if notes.owners:
        added = [
            _added(f"/owners/{pointer_part(owner)}/{kind}//", {"owner": owner, "type": kind, "source": _SOURCE})
            for owner, kind in notes.owners
        ]
        yield Proposal("dataset", urn, "ownership", {"arrayPrimaryKeys": _OWNER_KEYS, "patch": added}, "PATCH")
    if notes.tags:
        added = [_added(f"/tags//{pointer_part(tag)}", {"tag": tag}) for tag in notes.tags]
        yield Proposal("dataset", urn, "globalTags", {"arrayPrimaryKeys": _TAG_KEYS, "patch": added}, "PATCH")


_SOURCE = {"type": "SERVICE"}


def _added(path: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def with_field_tags(schema: dict[str, Any], notes: DatasetNotes) -> dict[str, Any]:
    """A ``schemaMetadata`` with the tags of its fields; the given one stays as it is.

    A nested field is named by the names on the way to it, with dots between them.
    """
    if not notes.field_tags:
        return schema

    def tagged(described: dict[str, Any]) -> dict[str, Any]:
        tags = notes.field_tags.get(_PATH_TYPES.sub("", described["fieldPath"]), ())
        return {**described, "globalTags": {"tags": [{"tag": tag} for tag in tags]}} if tags else described

    return {**schema, "fields": [tagged(described) for described in schema["fields"]]}


def learn_notes(
    known: dict[str, tuple[int, JsonObject]], facets: Facets, wanted: tuple[str, ...], index: int
) -> dict[str, tuple[int, JsonObject]]:
    """What is known with the facets that are wanted; of each the last one counts.

    :param known: where each stood among all events, and its content.
    """
    for name in wanted:
        if name in facets and (content := facets[name]):
            known[name] = index, content
    return known


def with_later_notes(
    known: Mapping[str, tuple[int, JsonObject]], told: Mapping[str, tuple[int, JsonObject]]
) -> Mapping[str, tuple[int, JsonObject]]:
    """What two runs tell of a dataset: of each facet the one that stood last among all events."""
    later = {name: one for name, one in told.items() if name not in known or one[0] >= known[name][0]}
    return {**known, **later}


_ASSERTIONS = "dataQualityAssertions"
_PASSED = {"pass": True, "fail": False}


class Check(NamedTuple):
    """What was checked.

    :param dataset: ``None`` where the check is of the run as a whole.
    :param column: empty where the check is of the whole dataset.
    """

    dataset: DatasetId | None
    column: str
    name: str


def checks_of(event: RunEvent) -> dict[Check, bool]:
    """The checks that an event tells of, and whether each was passed; what was skipped is not told.

    From the ``dataQualityAssertions`` facet of datasets (an input facet, which older producers put among the others)
    and the ``test`` run facet.
    """
    found = {check: passed for one in (*event.inputs, *event.outputs) for check, passed in _of_dataset(one)}
    for test in as_objects(event.run_facets["test"].get("tests")):
        name, passed = as_text(test.get("name")).strip(), _PASSED.get(as_text(test.get("status")))
        if name and passed is not None:
            found[Check(None, "", name)] = passed
    return found


def _of_dataset(dataset: EventDataset) -> Iterator[tuple[Check, bool]]:
    facets = dataset.facets[_ASSERTIONS], as_object(as_object(dataset.input_facets).get(_ASSERTIONS))
    for facet in facets:
        for one in as_objects(facet.get("assertions")):
            name = as_text(one.get("name")).strip() or as_text(one.get("assertion")).strip()
            if name and isinstance(one.get("success"), bool):
                yield Check(dataset.id, as_text(one.get("column")).strip(), name), one["success"]


def results_by_test(checks: Iterable[Mapping[Check, bool]], namer: DatasetNamer) -> dict[str, bool]:
    """Whether each test was passed, by its URN, sorted; of one that was made again the last result.

    A test has no entity of its own: its id says what was checked, ``<platform>.<dataset>.<column>.<name>``.
    """
    found: dict[str, bool] = {}
    for one in checks:
        for check, passed in one.items():
            name = namer.name(check.dataset) if check.dataset is not None else None
            if name is not None or check.dataset is None:
                place = (name.platform, name.full_name) if name is not None else ()
                found[urns.test_urn(".".join(part for part in (*place, check.column, check.name) if part))] = passed
    return dict(sorted(found.items()))


def test_results(results: Mapping[str, bool], time_ms: int | None) -> dict[str, Any]:
    """The aspect.

    :param time_ms: when the run ended.
    """
    computed = audit_stamp(time_ms)
    return {
        "failing": [
            {"test": urn, "type": "FAILURE", "lastComputed": computed} for urn, passed in results.items() if not passed
        ],
        "passing": [
            {"test": urn, "type": "SUCCESS", "lastComputed": computed} for urn, passed in results.items() if passed
        ],
    }


# The largest ``long`` of DataHub's aspects.
_MAX_COUNT = 2**63 - 1


class OutputStatistics(NamedTuple):
    """What a run wrote; ``None`` is what the producer did not count.

    :param size: in bytes.
    """

    rows: int | None = None
    size: int | None = None
    files: int | None = None


NOT_COUNTED = OutputStatistics()


def read_statistics(output_facets: object) -> OutputStatistics:
    """The ``outputStatistics`` facet of an output.

    :param output_facets: the output's ``outputFacets``, undecoded where it came as text.
    """
    facet = as_object(as_object(output_facets).get("outputStatistics"))
    return OutputStatistics(_count(facet, "rowCount"), _count(facet, "size"), _count(facet, "fileCount"))


def _count(facet: JsonObject, key: str) -> int | None:
    value = facet.get(key)
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else None


def read_partitions(output_facets: object) -> tuple[str, ...]:
    """The partitions that the run wrote (``subset`` facet of an output), sorted, as ``year=2026/month=1`` or as the
    producer calls them."""
    if not _may_have_subset(output_facets):
        return ()
    facets = as_object(output_facets)
    condition = as_object(as_object(facets.get("subset", facets.get("outputSubset"))).get("outputCondition"))
    if condition.get("type") != "partition":
        return ()
    return tuple(sorted({name for one in as_objects(condition.get("partitions")) if (name := _partition_name(one))}))


def _may_have_subset(output_facets: object) -> bool:
    """Whether it is worth decoding: hardly any producer sends one."""
    return b"ubset" in bytes(output_facets) if type(output_facets) is Raw else isinstance(output_facets, dict)


def _partition_name(partition: JsonObject) -> str:
    dimensions = as_object(partition.get("dimensions"))
    named = "/".join(f"{key}={value}" for key, value in dimensions.items() if isinstance(value, str | int | float))
    return as_text(partition.get("identifier")) or named


def lifecycle_change(facet: JsonObject) -> str:
    """What became of the dataset (``lifecycleStateChange`` facet): ``CREATE``, ``DROP`` … in upper case, or empty."""
    return as_text(facet.get("lifecycleStateChange")).upper()


def previous_name(facet: JsonObject) -> DatasetId | None:
    """What a renamed dataset was called (``lifecycleStateChange`` facet)."""
    previous = as_object(facet.get("previousIdentifier"))
    name = DatasetId(as_text(previous.get("namespace")), as_text(previous.get("name")))
    return name if all(name) else None

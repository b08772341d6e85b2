"""The ``schemaMetadata`` of a dataset from OpenLineage's ``schema`` facet (conversion rules, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from airflow_provider_spark_datahub.conversion.events import JsonObject, as_object, as_objects, as_text
from airflow_provider_spark_datahub.conversion.long_texts import unpacked
from airflow_provider_spark_datahub.conversion.proposals import SharedObject, json_text

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
    for field in fields:
        for described, told in _schema_fields(field):
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

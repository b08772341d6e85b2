"""Facets of datasets: schema, metadata, statistics and lifecycle (conversion rules, section 4).

Metadata is what people wrote about a dataset: documentation, owners and tags.

Tests: ``tests/conversion/test_dataset_facets.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.diagnostics import compressed, decompressed
from airflow_provider_spark_datahub.conversion.events import (
    DatasetId,
    Facets,
    JsonObject,
    as_object,
    as_objects,
    as_text,
    tag_name,
)
from airflow_provider_spark_datahub.conversion.proposals import (
    Proposal,
    added_owners,
    added_tags,
)
from airflow_provider_spark_datahub.conversion.settings import DETAILS, LineageSettings
from airflow_provider_spark_datahub.foundation.text import encoded_json

# DataHub's type class, and the type's name in a version 2 field path. These are Avro's names, as in
# acryl-datahub's own Hive reader.
_TYPES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("string", "char", "varchar", "uuid"), ("StringType", "string")),
    **dict.fromkeys(
        ("byte", "tinyint", "short", "smallint", "int", "integer"), ("NumberType", "int")
    ),
    **dict.fromkeys(("long", "bigint"), ("NumberType", "long")),
    **dict.fromkeys(("float", "real"), ("NumberType", "float")),
    **dict.fromkeys(("double", "double precision"), ("NumberType", "double")),
    **dict.fromkeys(("decimal", "numeric", "dec", "number"), ("NumberType", "bytes")),
    **dict.fromkeys(("boolean", "bool"), ("BooleanType", "boolean")),
    **dict.fromkeys(("binary", "bytes"), ("BytesType", "bytes")),
    "date": ("DateType", "int"),
    **dict.fromkeys(
        ("timestamp", "timestamp_ntz", "timestamp_ltz", "timestamptz", "datetime"),
        ("TimeType", "long"),
    ),
    **dict.fromkeys(("time", "interval", "calendarinterval"), ("TimeType", "long")),
    "array": ("ArrayType", "array"),
    "map": ("MapType", "map"),
    **dict.fromkeys(
        ("struct", "record", "variant", "geometry", "geography"), ("RecordType", "struct")
    ),
}
_UNKNOWN = ("NullType", "null")
_SHOWN, _PLAIN = ("name", "type", "description"), (str, int, float)
# Levels of structs in structs; a producer's mistake could be as deep as Python's stack.
_MAX_DEPTH = 50
_NESTED = frozenset({"array", "map", "struct", "record"})
# Producers' names of the only child of an array, and of the value of a map.
_ELEMENT_NAMES = frozenset({"_element", "element", "array_element", "item"})
_VALUE_NAMES = frozenset({"value", "_value"})


class DatasetFacets(NamedTuple):
    """Facets of a dataset in one event that are kept until the end; empty or ``None`` if the event
    lacks them.

    :param schema: the ``schema`` facet if it lists fields, as compressed text.
    :param lifecycle: ``CREATE``, ``DROP`` …, in upper case; :attr:`previous` is the old name of a
        renamed dataset.
    :param layer: ``iceberg``, ``delta`` …
    """

    schema: bytes | None
    lifecycle: str
    previous: DatasetId | None
    layer: str

    @staticmethod
    def of(facets: Facets) -> DatasetFacets:
        """Read the facets of a dataset."""
        schema = facets.text("schema")
        layer = as_text(facets["storage"].get("storageLayer"))
        fields = as_object(schema).get("fields")
        # An RDD, whose rows are objects of Java, is not a dataset.
        is_dataset = {as_text(field.get("type")) for field in as_objects(fields)} != {"object"}
        if layer == "iceberg" and b'"_' in schema:
            # Iceberg adds them to a scan.
            schema = _without(schema, RESERVED_COLUMNS)
        # A facet without fields does not replace a known schema.
        kept = compressed(schema) if isinstance(fields, list) and is_dataset else None
        change = facets["lifecycleStateChange"]
        previous = as_object(change.get("previousIdentifier"))
        name = DatasetId(as_text(previous.get("namespace")), as_text(previous.get("name")))
        lifecycle = as_text(change.get("lifecycleStateChange")).upper()
        return DatasetFacets(kept, lifecycle, name if all(name) else None, layer)

    @staticmethod
    def partitions(output_facets: Facets) -> tuple[str, ...]:
        """Return the written partitions, sorted: the producer's names of them, or
        ``year=2026/month=1``.
        """
        subset = output_facets["subset" if "subset" in output_facets else "outputSubset"]
        condition = as_object(subset.get("outputCondition"))
        if condition.get("type") != "partition":
            return ()
        names = (
            _partition_name(partition) for partition in as_objects(condition.get("partitions"))
        )
        return tuple(sorted({name for name in names if name}))

    @staticmethod
    def without_change_columns(schema: bytes) -> bytes:
        """Return the ``schema`` facet, a compressed text, without the columns of changes."""
        return compressed(_without(decompressed(schema), CHANGE_COLUMNS))


RESERVED_COLUMNS = frozenset(
    {
        *(
            "_file",
            "_pos",
            "_deleted",
            "_spec_id",
            "_partition",
            "_row_id",
            "_last_updated_sequence_number",
        ),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    }
)
"""Names that no column of an Iceberg table may have (``org.apache.iceberg.MetadataColumns``)."""
CHANGE_COLUMNS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Columns of the changes of a Delta table. No column of a table with a change feed may have these
names.
"""


def _without(schema: bytes, names: frozenset[str]) -> bytes:
    facet = as_object(schema)
    fields = list(as_objects(facet.get("fields")))
    own = [field for field in fields if as_text(field.get("name")) not in names]
    if len(own) == len(fields):
        return schema
    return encoded_json({**facet, "fields": own})


def field_names(facet: bytes | None) -> tuple[str, ...]:
    """Return the names of the fields in a ``schema`` facet, a compressed text, in their order."""
    fields = as_object(decompressed(facet)).get("fields") if facet else ()
    return tuple(name for field in as_objects(fields) if (name := as_text(field.get("name"))))


def schema_metadata(
    facet: bytes, platform: str, *, with_descriptions: bool = False
) -> dict[str, Any]:
    """Return the ``schemaMetadata``.

    :param facet: the ``schema`` facet, which lists fields, as compressed text.
    :param platform: URN of the dataset's platform.
    """
    listed = as_object(decompressed(facet)).get("fields")
    fields = [field for field in as_objects(listed) if as_text(field.get("name"))]
    unknown = {"time": 0, "actor": "urn:li:corpuser:unknown"}
    raw = encoded_json([_plain_field(field) for field in fields]).decode()
    unique: dict[str, dict[str, Any]] = {}
    for top_level in fields:
        for schema_field, source in _schema_fields(top_level):
            if with_descriptions and (description := as_text(source.get("description")).strip()):
                schema_field["description"] = description
            unique.setdefault(schema_field["fieldPath"], schema_field)
    return {
        "schemaName": "",
        "platform": platform,
        "version": 1,
        "created": unknown,
        "lastModified": unknown,
        "hash": "",
        "platformSchema": {"com.linkedin.schema.MySqlDDL": {"tableSchema": raw}},
        "fields": list(unique.values()),
    }


def _plain_field(field: JsonObject, depth: int = 0) -> dict[str, Any]:
    shown = {key: field[key] for key in _SHOWN if isinstance(field.get(key), _PLAIN)}
    if "fields" in field and depth < _MAX_DEPTH:
        children = [_plain_field(child, depth + 1) for child in as_objects(field["fields"])]
        if children:
            shown["fields"] = children
    return shown


def _schema_fields(field: JsonObject) -> Iterator[tuple[dict[str, Any], JsonObject]]:
    """Yield a field and all fields nested in it, with version 2 field paths, each with its source
    in the facet.

    A field of a plain type has its name as path, as column lineage names it.
    """
    if (
        "fields" in field
        and _base_type(_native(field)) in _NESTED
        and any(as_objects(field["fields"]))
    ):
        yield from _nested_fields(field, "[version=2.0].[type=struct]")
    else:
        yield _schema_field(as_text(field.get("name")), field), field


def _nested_fields(
    field: JsonObject, prefix: str, depth: int = 0
) -> Iterator[tuple[dict[str, Any], JsonObject]]:
    tokens, inner = _type_tokens(field)
    types = ".".join(f"[type={token}]" for token in tokens)
    path = f"{prefix}.{types}.{as_text(field.get('name'))}"
    yield _schema_field(path, field), field
    if inner is not None and depth < _MAX_DEPTH:
        for child in as_objects(inner.get("fields")):
            if as_text(child.get("name")):
                yield from _nested_fields(child, path, depth + 1)


def _type_tokens(field: JsonObject) -> tuple[list[str], JsonObject | None]:
    """Return the types from the field down to the first struct or scalar, and that struct or
    ``None``.
    """
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
    """Return the type of an array's elements or of a map's values, as a field."""
    children = list(as_objects(field.get("fields")))
    wanted = _VALUE_NAMES if _base_type(_native(field)) == "map" else _ELEMENT_NAMES
    named = [child for child in children if as_text(child.get("name")) in wanted]
    if named:
        return named[0]
    # Older producers list the fields of an array's struct directly below the array.
    return {"type": "struct", "fields": children} if children else None


def _native(field: JsonObject) -> str:
    return as_text(field.get("type"))


@lru_cache(maxsize=1024)
def _base_type(native: str) -> str:
    """Return the type's name in lower case, without parameters: ``decimal(10,2)`` → ``decimal``."""
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
        "type": {
            "type": {
                f"com.linkedin.schema.{_TYPES.get(_base_type(native), _UNKNOWN)[0]}": _type_body(
                    field
                )
            }
        },
        "nativeDataType": native,
        "recursive": False,
        "isPartOfKey": False,
    }


def _type_body(field: JsonObject) -> dict[str, Any]:
    base = _base_type(_native(field))
    content = _content(field) if "fields" in field and base in ("array", "map") else None
    if content is None:
        return {}
    name = as_text(content.get("type")) or "null"
    if base == "array":
        return {"nestedType": [name]}
    keys = [
        child
        for child in as_objects(field.get("fields"))
        if as_text(child.get("name")) in ("key", "_key")
    ]
    return {"keyType": as_text(keys[0].get("type")) if keys else "string", "valueType": name}


_DOCUMENTATION, _OWNERSHIP, _TAGS = "documentation", "ownership", "tags"

# DataHub's OwnershipType without NONE and without CUSTOM, which needs the URN of a type.
_OWNER_TYPES = frozenset(
    {"BUSINESS_OWNER", "CONSUMER", "DATAOWNER", "DATA_STEWARD", "DELEGATE"}
    | {"DEVELOPER", "PRODUCER", "STAKEHOLDER", "TECHNICAL_OWNER"}
)
_ANY_OWNER_TYPE = "TECHNICAL_OWNER"
_OWNER_URNS = ("urn:li:corpuser:", "urn:li:corpGroup:")
# The parts of a version 2 field path that are not names.
_PATH_TYPES = re.compile(r"\[(?:version|type|key)=[^\[\]]*\]\.")


# Values of facets by name, each with the index of its event.
_IndexedFacets = Mapping[str, tuple[int, JsonObject]]


@dataclass(frozen=True, slots=True)
class DatasetMetadata:
    """Documentation, owners and tags of a dataset.

    :param owners: URN and type (DataHub's ``OwnershipType``) of each.
    :param field_tags: URNs of the tags of its fields, by the field's name.
    """

    description: str = ""
    owners: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    field_tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def facets(settings: LineageSettings) -> tuple[str, ...]:
        """Return the names of the dataset facets that the settings ask for."""
        facets = zip(DETAILS, (_DOCUMENTATION, _OWNERSHIP, _TAGS), strict=True)
        return tuple(facet for detail, facet in facets if detail in settings.dataset_details)

    @staticmethod
    def collect(
        facets: Facets, wanted: tuple[str, ...], index: int
    ) -> dict[str, tuple[int, JsonObject]]:
        """Return the wanted facets of an event that have content."""
        return {name: (index, content) for name in wanted if (content := facets[name])}

    @staticmethod
    def merge(first: _IndexedFacets, second: _IndexedFacets) -> _IndexedFacets:
        """Merge the collected facets of two runs; of each name, the facet of the later event
        counts.
        """
        newer = {
            name: facet
            for name, facet in second.items()
            if name not in first or facet[0] >= first[name][0]
        }
        return {**first, **newer}

    @classmethod
    def read(cls, facets: Mapping[str, JsonObject]) -> DatasetMetadata:
        """Read the facets of a dataset; a mistake in them costs only its own part."""
        owners = (_owner(owner) for owner in as_objects(facets.get(_OWNERSHIP, {}).get("owners")))
        tags: dict[str, dict[str, None]] = {}
        for tag in as_objects(facets.get(_TAGS, {}).get("tags")):
            urn = _tag_urn(tag)
            if urn:
                tags.setdefault(as_text(tag.get("field")), {})[urn] = None
        return cls(
            description=as_text(facets.get(_DOCUMENTATION, {}).get("description")).strip(),
            owners=tuple(dict.fromkeys(owner for owner in owners if owner is not None)),
            tags=tuple(tags.pop("", ())),
            field_tags={name: tuple(tag_urns) for name, tag_urns in tags.items()},
        )

    def proposals(self, urn: str) -> Iterator[Proposal]:
        """Yield patches that add the metadata, without tags of fields, as acryl-datahub's
        ``DatasetPatchBuilder``.
        """
        if self.description:
            operation = {"op": "add", "path": "/description", "value": self.description}
            yield Proposal("dataset", urn, "datasetProperties", [operation], "PATCH")
        yield from added_owners("dataset", urn, self.owners)
        yield from added_tags("dataset", urn, self.tags)

    def tag_fields(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of a ``schemaMetadata`` with the tags of its fields, named by their paths
        of names.
        """
        if not self.field_tags:
            return schema

        def tagged(schema_field: dict[str, Any]) -> dict[str, Any]:
            tags = self.field_tags.get(_PATH_TYPES.sub("", schema_field["fieldPath"]), ())
            return (
                {**schema_field, "globalTags": {"tags": [{"tag": tag} for tag in tags]}}
                if tags
                else schema_field
            )

        return {**schema, "fields": [tagged(schema_field) for schema_field in schema["fields"]]}


NO_METADATA = DatasetMetadata()


def _owner(owner: JsonObject) -> tuple[str, str] | None:
    """Return an owner's URN and type; ``None`` if the name is neither a user's nor a group's."""
    urn = urns.encode(urns.owner_urn(as_text(owner.get("name")).strip()))
    kind = as_text(owner.get("type")).strip().upper().replace(" ", "_")
    usable = urn.startswith(_OWNER_URNS) and urn not in _OWNER_URNS and not urns.is_too_long(urn)
    return (urn, kind if kind in _OWNER_TYPES else _ANY_OWNER_TYPE) if usable else None


def _tag_urn(tag: JsonObject) -> str:
    name = tag_name(tag)
    urn = urns.encode(urns.tag_urn(name))
    return "" if not name or urn == "urn:li:tag:" or urns.is_too_long(urn) else urn


# The largest ``long`` of DataHub's aspects.
_MAX_COUNT = 2**63 - 1


class OutputStatistics(NamedTuple):
    """Amount of data that a run wrote, or read; ``None`` if the producer did not count it.

    :param size: in bytes.
    """

    rows: int | None = None
    size: int | None = None
    files: int | None = None

    @classmethod
    def read(cls, facets: Facets, name: str = "outputStatistics") -> OutputStatistics:
        """Read the ``outputStatistics`` facet of an output, or the ``inputStatistics`` facet of an
        input.
        """
        facet = facets[name]
        return cls(_count(facet, "rowCount"), _count(facet, "size"), _count(facet, "fileCount"))

    def plus(self, other: OutputStatistics) -> OutputStatistics:
        """Return the sums. What only one of them counts is its count."""
        return self._joined(other, sum)

    def most(self, other: OutputStatistics) -> OutputStatistics:
        """Return the larger counts."""
        return self._joined(other, max)

    def _joined(
        self, other: OutputStatistics, join: Callable[[Iterable[int]], int]
    ) -> OutputStatistics:
        counts: list[int | None] = []
        for pair in zip(self, other, strict=True):
            known = [count for count in pair if count is not None]
            counts.append(join(known) if known else None)
        return OutputStatistics(*counts)


NOT_COUNTED = OutputStatistics()


def _count(facet: JsonObject, key: str) -> int | None:
    value = facet.get(key)
    return value if type(value) is int and 0 <= value <= _MAX_COUNT else None


def _partition_name(partition: JsonObject) -> str:
    dimensions = as_object(partition.get("dimensions"))
    named = "/".join(
        f"{key}={value}"
        for key, value in dimensions.items()
        if isinstance(value, str | int | float)
    )
    return as_text(partition.get("identifier")) or named

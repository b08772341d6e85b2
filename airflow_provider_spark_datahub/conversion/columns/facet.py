"""The ``lineage`` facet of datasets and jobs, which follows ``columnLineage`` in OpenLineage's spec, as that facet.

Column-level lineage as producers tell it (conversion rules, section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, structs

from airflow_provider_spark_datahub.conversion.events import (
    NOT_DECODABLE,
    DatasetId,
    EventDataset,
    Facets,
    JsonObject,
    as_object,
    as_objects,
    as_text,
    dataset_id,
)
from airflow_provider_spark_datahub.conversion.facets.dataset import field_names
from airflow_provider_spark_datahub.conversion.limits import packed, unpacked
from airflow_provider_spark_datahub.conversion.redaction import redact_text

LINEAGE = "lineage"


def as_column_lineage(facet: JsonObject) -> dict[str, Any]:
    """The ``columnLineage`` facet that would have told the same. Jobs among the inputs are no datasets."""
    fields = {
        name: {"inputFields": _dataset_inputs(as_object(field))}
        for name, field in as_object(facet.get("fields")).items()
    }
    return {"fields": fields, "dataset": _dataset_inputs(facet)}


def facets_of_output(job_facets: Facets, output: EventDataset) -> Facets:
    """The facets of an output with what the job's ``lineage`` facet tells of it."""
    for entry in as_objects(job_facets[LINEAGE].get("entries")):
        if DatasetId(as_text(entry.get("namespace")), as_text(entry.get("name"))) == output.id:
            return Facets({LINEAGE: entry, "schema": output.facets["schema"]})
    return Facets()


def _dataset_inputs(entry: JsonObject) -> list[JsonObject]:
    return [one for one in as_objects(entry.get("inputs")) if one.get("type", "DATASET") == "DATASET"]


class ColumnId(NamedTuple):
    """A column as OpenLineage names it."""

    dataset: DatasetId
    field: str


class ColumnEdge(msgspec.Struct, frozen=True):
    """Output columns and the input columns that they come from.

    :param downstreams: columns of the output; several where the inputs act on the whole dataset.
    :param upstreams: the input columns, without repetition.
    :param transform: ``TYPE:SUBTYPE`` of the transformations, joined by commas.
    :param confidence: as in the Java listener, for what OpenLineage tells.
    """

    downstreams: tuple[str, ...]
    upstreams: tuple[ColumnId, ...]
    transform: str
    confidence: float = 0.5


class _Texts(NamedTuple):
    """The facets of an output that tell its column lineage, decoded or as packed text."""

    lineage: JsonObject | bytes
    schema: JsonObject | bytes


class _Told(NamedTuple):
    edges: tuple[ColumnEdge, ...]
    inputs: tuple[DatasetId, ...]


class DatasetColumns:
    """The column lineage of one output of one query: kept as text, and read when it is asked for.

    Compared by identity, which costs nothing: of equal texts :meth:`Fold.add` keeps one.

    :param sql: the query's statement, or empty.
    """

    __slots__ = ("_texts", "_told", "sql")

    def __init__(self, texts: _Texts, sql: str) -> None:
        self._texts = texts
        self._told: _Told | None = None
        self.sql = redact_text(sql.strip())

    @property
    def key(self) -> tuple[bytes, bytes, str] | None:
        """Equal to that of another one that tells the same; ``None`` where it did not come as text."""
        lineage, schema = self._texts
        return (lineage, schema, self.sql) if isinstance(lineage, bytes) and isinstance(schema, bytes) else None

    @property
    def edges(self) -> tuple[ColumnEdge, ...]:
        """Output columns with the input columns that they come from."""
        return self._read().edges

    @property
    def inputs(self) -> tuple[DatasetId, ...]:
        """Every dataset that it names, those of no edge included."""
        return self._read().inputs

    @classmethod
    def of(cls, edges: Sequence[ColumnEdge], sql: str) -> DatasetColumns:
        """Column lineage that no facet tells."""
        return cls(_Texts({}, {}), sql).with_edges(edges)

    def with_edges(self, edges: Sequence[ColumnEdge]) -> DatasetColumns:
        """The same with further edges."""
        inputs = (*self.inputs, *(column.dataset for edge in edges for column in edge.upstreams))
        return self._telling((*self.edges, *edges), inputs, self.sql)

    def renamed(self, named: Callable[[DatasetId], DatasetId]) -> DatasetColumns:
        """The same with other names of the datasets that it names."""
        edges = (
            structs.replace(edge, upstreams=tuple(ColumnId(named(one.dataset), one.field) for one in edge.upstreams))
            for edge in self.edges
        )
        return self._telling(edges, map(named, self.inputs), self.sql)

    def without_sql(self) -> DatasetColumns:
        """The same without its statement."""
        return self._telling(self.edges, self.inputs, "")

    def _telling(self, edges: Iterable[ColumnEdge], inputs: Iterable[DatasetId], sql: str) -> DatasetColumns:
        other = DatasetColumns(self._texts, sql)
        other._told = _Told(tuple(edges), tuple(dict.fromkeys(inputs)))
        return other

    def _read(self) -> _Told:
        if self._told is None:
            self._told = _read(*map(_readable, self._texts))
        return self._told


def read_columns(facets: Facets, sql: str) -> DatasetColumns | None:
    """The column lineage of an output dataset, or ``None`` where its facets tell none."""
    if "columnLineage" in facets:
        texts = facets.once(_texts)
    elif LINEAGE in facets:
        texts = facets.once(_texts_of_lineage)
    else:
        return None
    if texts is None:
        return None
    lineage, schema = texts
    if isinstance(lineage, bytes) and isinstance(schema, bytes):
        return _columns_again(lineage, schema, sql)
    return DatasetColumns(texts, sql)


def _texts_of_lineage(facets: Facets) -> _Texts | None:
    told, schema = as_column_lineage(facets[LINEAGE]), facets["schema"]
    return _Texts(told, schema) if any(_read(told, schema)) else None


@lru_cache(maxsize=16)
def _columns_again(lineage: bytes, schema: bytes, sql: str) -> DatasetColumns:
    """The events of a query repeat its column lineage byte by byte, which may be hundreds of kilobytes."""
    return DatasetColumns(_Texts(lineage, schema), sql)


def _texts(facets: Facets) -> _Texts | None:
    lineage, schema = facets.kept("columnLineage"), facets.kept("schema") if "schema" in facets else b""
    if not _names_columns(lineage) and not any(_read(lineage, schema)):
        return None
    if isinstance(lineage, bytes) and isinstance(schema, bytes):
        return _Texts(packed(lineage), packed(schema))
    return _Texts(lineage, schema)


def _readable(facet: JsonObject | bytes) -> JsonObject | bytes:
    return unpacked(facet) if isinstance(facet, bytes) else facet


class _Shape(msgspec.Struct, gc=False):
    fields: dict[str, Raw] = {}


_decode_shape = msgspec.json.Decoder(_Shape).decode


def _names_columns(lineage: JsonObject | bytes) -> bool:
    """Whether the facet names output columns, as far as can be told without decoding it."""
    if not isinstance(lineage, bytes) or not lineage.isascii() or b"\\u" in lineage:
        return False
    try:
        return any(_decode_shape(lineage).fields)
    except (msgspec.MsgspecError, RecursionError):
        return False


class _Transformation(msgspec.Struct, gc=False):
    type: str | None = None
    subtype: str | None = None


class _Input(msgspec.Struct, gc=False):
    namespace: str = ""
    name: str = ""
    field: str = ""
    transformations: list[_Transformation] = []

    @property
    def dataset(self) -> DatasetId:
        return dataset_id(self.namespace, self.name)


class _Field(msgspec.Struct, gc=False, rename="camel"):
    input_fields: list[_Input] = []


class _Facet(msgspec.Struct, gc=False):
    """The ``columnLineage`` facet."""

    fields: dict[str, _Field] = {}
    dataset: list[_Input] = []


_decode_facet = msgspec.json.Decoder(_Facet).decode


def _decoded(lineage: JsonObject | bytes) -> _Facet:
    if isinstance(lineage, bytes):
        try:
            return _decode_facet(lineage)
        except NOT_DECODABLE:
            # A null or a number where the spec says otherwise costs only itself.
            pass
    facet = as_object(lineage)
    fields = as_object(facet.get("fields")).items()
    return _Facet(
        {name: _Field(_tolerant_inputs(as_object(field).get("inputFields"))) for name, field in fields},
        _tolerant_inputs(facet.get("dataset")),
    )


def _tolerant_inputs(items: object) -> list[_Input]:
    return [
        _Input(
            as_text(item.get("namespace")),
            as_text(item.get("name")),
            as_text(item.get("field")),
            _tolerant_transformations(item),
        )
        for item in as_objects(items)
    ]


def _tolerant_transformations(item: JsonObject) -> list[_Transformation]:
    listed = as_objects(item.get("transformations"))
    return [_Transformation(*(str(one.get(key) or "") for key in ("type", "subtype"))) for one in listed]


def _read(lineage: JsonObject | bytes, schema: JsonObject | bytes) -> _Told:
    facet = _decoded(lineage)
    edges = [ColumnEdge((name,), *_inputs(field.input_fields)) for name, field in facet.fields.items() if name]
    if facet.dataset:
        columns = dict.fromkeys([*facet.fields, *field_names(schema)])
        edges += _dataset_edges(facet.dataset, tuple(column for column in columns if column))
    inputs = dict.fromkeys([column.dataset for edge in edges for column in edge.upstreams])
    inputs |= dict.fromkeys(item.dataset for item in facet.dataset if all(item.dataset))
    return _Told(tuple(edges), tuple(inputs))


def _dataset_edges(items: Iterable[_Input], columns: tuple[str, ...]) -> Iterator[ColumnEdge]:
    """Inputs that act on all rows (``columnLineage.dataset``: filters, joins, sort keys).

    One edge per transformation, to all columns at once: what is kept of a query stays linear in the facet's length.
    OpenLineage also lists columns there that only go into another expression (a partition key's, say): with nothing
    but ``DIRECT`` transformations, they are no input of *every* column.
    """
    by_transform: dict[str, list[_Input]] = {}
    for item in items:
        kept = [one for one in item.transformations if one.type != "DIRECT"]
        if kept or not item.transformations:
            by_transform.setdefault(_transform(kept), []).append(item)
    for transform, several in by_transform.items():
        upstreams, _ = _inputs(several)
        if upstreams and columns:
            yield ColumnEdge(columns, upstreams, transform)


def _inputs(items: list[_Input]) -> tuple[tuple[ColumnId, ...], str]:
    columns = dict.fromkeys([ColumnId(item.dataset, item.field) for item in items if item.field])
    return tuple(columns), _transform([one for item in items for one in item.transformations])


def _transform(transformations: Iterable[_Transformation]) -> str:
    texts = {f"{one.type or 'null'}:{one.subtype or 'null'}" for one in transformations}
    return ",".join(sorted(texts, key=lambda text: (text.lower(), text)) if len(texts) > 1 else texts)

"""Column lineage from the facets ``columnLineage`` and ``lineage`` (conversion rules, section 4.1).

``lineage``, of datasets and of jobs, is the successor of ``columnLineage`` in OpenLineage's spec.

Tests: ``tests/conversion/test_columns.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, structs

from airflow_provider_spark_datahub.conversion.diagnostics import compressed, decompressed
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
    encoded_json,
)
from airflow_provider_spark_datahub.conversion.facets.dataset import field_names
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.redaction import redact_text

_LINEAGE = "lineage"


PARSED_PLAN = "DIRECT:PARSED_PLAN"
"""Transformation of columns that only Spark's physical plans show, not OpenLineage's events."""


class ColumnId(NamedTuple):
    """OpenLineage's name of a column."""

    dataset: DatasetId
    field: str


class ColumnEdge(msgspec.Struct, frozen=True, gc=False):
    """Output columns and the input columns that they come from.

    :param downstreams: columns of the output; several if the inputs act on all rows.
    :param transform: ``TYPE:SUBTYPE`` of the transformations, joined by commas.
    """

    downstreams: tuple[str, ...]
    upstreams: tuple[ColumnId, ...]
    transform: str
    confidence: float = 0.5


class _Texts(NamedTuple):
    """Facets of an output with its column lineage, as compressed texts."""

    lineage: bytes
    schema: bytes


MAX_READ_PAIRS = 250_000
"""Most column pairs that are read from one facet: more do not fit into an aspect of 16,000,000 characters."""


class _Content(NamedTuple):
    edges: tuple[ColumnEdge, ...]
    inputs: tuple[DatasetId, ...]
    left_out: int = 0


class DatasetColumns:
    """Column lineage of one output of one query, kept as text until it is needed.

    It is compared by identity; :meth:`Fold.add` keeps one object for equal texts.
    """

    def __init__(self, texts: _Texts, sql: str, *, with_indirect: bool = True) -> None:
        self._texts, self._with_indirect = texts, with_indirect
        self.sql = redact_text(sql.strip())

    @cached_property
    def _content(self) -> _Content:
        return _read(*map(decompressed, self._texts), with_indirect=self._with_indirect)

    @property
    def key(self) -> tuple[bytes, bytes, str]:
        """Key that is equal for equal column lineage of facets."""
        return (*self._texts, self.sql)

    @property
    def edges(self) -> tuple[ColumnEdge, ...]:
        """Output columns with the input columns that they come from."""
        return self._content.edges

    @property
    def inputs(self) -> tuple[DatasetId, ...]:
        """All datasets that the column lineage names, including those without an edge."""
        return self._content.inputs

    @cached_property
    def direct(self) -> frozenset[str]:
        """The output columns that have a direct transformation."""
        return frozenset(column for edge in self.direct_edges() for column in edge.downstreams)

    def direct_edges(self) -> Iterator[ColumnEdge]:
        """Yield the edges that have a direct transformation."""
        return (edge for edge in self.edges if edge.upstreams and _is_direct(edge))

    @property
    def left_out(self) -> int:
        """Number of column pairs that were not read, because a facet has more than :data:`MAX_READ_PAIRS`."""
        return self._content.left_out

    @classmethod
    def read(
        cls, output: EventDataset, job_facets: Facets, sql: str, *, with_indirect: bool = True
    ) -> DatasetColumns | None:
        """Read the column lineage of an output from its facets, else from the job's; ``None`` if there is none.

        :param with_indirect: keep inputs that give no value: they only filter, join, group or sort.
        """
        facets, texts = output.facets, None
        if "columnLineage" in facets:
            texts = facets.once(_texts)
        elif _LINEAGE in facets:
            texts = facets.once(_texts_of_lineage)
        if texts is None and _LINEAGE in job_facets:
            texts = _texts_of_lineage(_facets_of_output(job_facets, output))
        if texts is None:
            return None
        cached = _cached_columns if len(texts.lineage) <= _SHORT_BYTES else _cached_long_columns
        return cached(texts, sql, with_indirect)

    @classmethod
    def of(cls, edges: Sequence[ColumnEdge], sql: str) -> DatasetColumns:
        """Return column lineage that comes from no facet."""
        return cls(_Texts(b"", b""), sql).with_edges(edges)

    def with_edges(self, edges: Sequence[ColumnEdge]) -> DatasetColumns:
        """Return a copy with more edges."""
        inputs = (*self.inputs, *(column.dataset for edge in edges for column in edge.upstreams))
        return self._copy((*self.edges, *edges), inputs, self.sql)

    def without(self, columns: frozenset[str]) -> DatasetColumns:
        """Return a copy without direct edges of these output columns, in lower case."""
        edges = (
            edge
            for edge in self.edges
            if not _is_direct(edge) or columns.isdisjoint(column.lower() for column in edge.downstreams)
        )
        return self._copy(edges, self.inputs, self.sql)

    def renamed(self, named: Callable[[DatasetId], DatasetId]) -> DatasetColumns:
        """Return a copy with other names of its datasets."""
        edges = (
            structs.replace(edge, upstreams=tuple(ColumnId(named(dataset), field) for dataset, field in edge.upstreams))
            for edge in self.edges
        )
        return self._copy(edges, map(named, self.inputs), self.sql)

    def within(self, known: Mapping[DatasetId, frozenset[str]]) -> DatasetColumns:
        """Return the column lineage without columns that their datasets do not have; this object if there are none.

        :param known: columns of datasets in lower case. The columns of other datasets stay.
        """
        # The usual case: all inputs are columns of their datasets.
        if all(names <= known.get(dataset, names) for dataset, names in self._names_of_inputs.items()):
            return self

        def exists(column: ColumnId) -> bool:
            names = known.get(column.dataset)
            name = column.field.lower()
            return names is None or name in names or name.partition(".")[0] in names

        if all(edge.transform == PARSED_PLAN or all(map(exists, edge.upstreams)) for edge in self.edges):
            return self
        edges = (
            edge
            if edge.transform == PARSED_PLAN
            else structs.replace(edge, upstreams=tuple(filter(exists, edge.upstreams)))
            for edge in self.edges
        )
        return self._copy((edge for edge in edges if edge.upstreams), self.inputs, self.sql)

    @cached_property
    def _names_of_inputs(self) -> dict[DatasetId, set[str]]:
        names: dict[DatasetId, set[str]] = {}
        for edge in in_time(self.edges):
            for dataset, field in edge.upstreams:
                names.setdefault(dataset, set()).add(field.lower())
        return names

    def without_sql(self) -> DatasetColumns:
        """Return a copy without the statement."""
        return self._copy(self.edges, self.inputs, "")

    def _copy(self, edges: Iterable[ColumnEdge], inputs: Iterable[DatasetId], sql: str) -> DatasetColumns:
        other = DatasetColumns(self._texts, sql)
        other._content = _Content(tuple(edges), tuple(dict.fromkeys(inputs)), self.left_out)
        return other


def _is_direct(edge: ColumnEdge) -> bool:
    return any(part.startswith("DIRECT") for part in edge.transform.split(","))


def _facets_of_output(job_facets: Facets, output: EventDataset) -> Facets:
    """Return the entry of an output in the job's ``lineage`` facet as if it were a facet of the output."""
    for entry in as_objects(job_facets[_LINEAGE].get("entries")):
        if DatasetId(as_text(entry.get("namespace")), as_text(entry.get("name"))) == output.id:
            return Facets.of({_LINEAGE: entry, "schema": output.facets["schema"]})
    return Facets()


def _texts_of_lineage(facets: Facets) -> _Texts | None:
    return _compressed(encoded_json(_as_column_lineage(facets[_LINEAGE])), facets.text("schema"))


def _as_column_lineage(facet: JsonObject) -> dict[str, Any]:
    """Return the ``columnLineage`` facet that is equal to a ``lineage`` facet."""
    fields = {
        name: {"inputFields": _dataset_inputs(as_object(field))}
        for name, field in as_object(facet.get("fields")).items()
    }
    return {"fields": fields, "dataset": _dataset_inputs(facet)}


def _dataset_inputs(entry: JsonObject) -> list[JsonObject]:
    """Return the inputs that are datasets, not jobs."""
    return [item for item in as_objects(entry.get("inputs")) if item.get("type", "DATASET") == "DATASET"]


@lru_cache(maxsize=16)
def _cached_long_columns(texts: _Texts, sql: str, with_indirect: bool) -> DatasetColumns:
    """Share one object: the events of a query repeat its column lineage, which may be hundreds of kilobytes."""
    return DatasetColumns(texts, sql, with_indirect=with_indirect)


# Short column lineage is cached for longer, since the job's next run repeats it.
_SHORT_BYTES = 4 * 1024
_cached_columns = lru_cache(maxsize=256)(_cached_long_columns.__wrapped__)


def _texts(facets: Facets) -> _Texts | None:
    return _compressed(facets.text("columnLineage"), facets.text("schema"))


def _compressed(lineage: bytes, schema: bytes) -> _Texts | None:
    """Return the texts to keep; ``None`` if they name neither columns nor inputs."""
    if not _names_columns(lineage) and not any(_read(lineage, schema)):
        return None
    return _Texts(compressed(lineage), compressed(schema))


class _Shape(msgspec.Struct, gc=False):
    fields: dict[str, Raw] = {}


_decode_shape = msgspec.json.Decoder(_Shape).decode


def _names_columns(lineage: bytes) -> bool:
    """Return whether the facet certainly names output columns; this does not decode it."""
    if not lineage.isascii() or b"\\u" in lineage:
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

    @property
    def is_indirect(self) -> bool:
        return bool(self.transformations) and all(part.type == "INDIRECT" for part in self.transformations)


class _Field(msgspec.Struct, gc=False, rename="camel"):
    input_fields: list[_Input] = []


class _WireField(msgspec.Struct, gc=False, rename="camel"):
    input_fields: list[Raw] = []


class _WireFacet(msgspec.Struct, gc=False):
    fields: Mapping[str, Raw] = {}
    dataset: list[_Input] = []


class _Facet(NamedTuple):
    """The part of a column lineage facet that is read.

    :param fields: inputs by output column.
    :param left_out: inputs that are not read.
    """

    fields: dict[str, list[_Input]]
    dataset: list[_Input]
    left_out: int


_decode_facet = msgspec.json.Decoder(_WireFacet).decode
_decode_field = msgspec.json.Decoder(_Field).decode
_decode_wire_field = msgspec.json.Decoder(_WireField).decode


def _decoded(lineage: bytes) -> _Facet:
    try:
        facet = _decode_facet(lineage)
    except NOT_DECODABLE:
        # A null or a wrong type must cost only the value itself.
        decoded = as_object(lineage)
        facet = _WireFacet(Facets.of(decoded.get("fields")).facets, _tolerant_inputs(decoded.get("dataset")))
    fields: dict[str, list[_Input]] = {}
    pairs = left_out = 0
    for name, text in in_time(facet.fields.items()):
        # Most facets are far below the limit, so that their columns need not be counted.
        if pairs + len(text) // _SHORTEST_INPUT > MAX_READ_PAIRS and (
            pairs + (more := len(_inputs_of(text, _decode_wire_field))) > MAX_READ_PAIRS
        ):
            left_out += more
        else:
            fields[name] = _inputs_of(text, _decode_field)
            pairs += len(fields[name])
    return _Facet(fields, facet.dataset, left_out)


_SHORTEST_INPUT = len("{},")


def _inputs_of(text: Raw, decode: Callable[[Raw], _Field | _WireField]) -> list[Any]:
    try:
        return decode(text).input_fields
    except NOT_DECODABLE:
        return _tolerant_inputs(as_object(text).get("inputFields"))


def _tolerant_inputs(items: object) -> list[_Input]:
    return [
        _Input(
            as_text(item.get("namespace")),
            as_text(item.get("name")),
            as_text(item.get("field")),
            [
                _Transformation(*(str(listed.get(key) or "") for key in ("type", "subtype")))
                for listed in as_objects(item.get("transformations"))
            ],
        )
        for item in as_objects(items)
    ]


def _read(lineage: bytes, schema: bytes, *, with_indirect: bool = True) -> _Content:
    facet = _decoded(lineage)
    edges = [ColumnEdge((name,), *_inputs(items)) for name, items in in_time(facet.fields.items()) if name]
    if not with_indirect:
        # As in the Java listener, the other inputs keep the text of all transformations.
        of_values = {name: [item for item in items if not item.is_indirect] for name, items in facet.fields.items()}
        edges = [structs.replace(edge, upstreams=_inputs(of_values[edge.downstreams[0]])[0]) for edge in edges]
        edges = [edge for edge in edges if edge.upstreams]
    elif facet.dataset:
        columns = dict.fromkeys([*facet.fields, *field_names(schema)])
        edges += _dataset_edges(facet.dataset, tuple(column for column in columns if column))
    inputs = dict.fromkeys([column.dataset for edge in edges for column in edge.upstreams])
    inputs |= dict.fromkeys(item.dataset for item in facet.dataset if all(item.dataset))
    return _Content(tuple(edges), tuple(inputs), facet.left_out)


def _dataset_edges(items: Iterable[_Input], columns: tuple[str, ...]) -> Iterator[ColumnEdge]:
    """Yield an edge to all columns for each transformation of inputs that act on all rows (filters, joins, sort keys).

    OpenLineage also lists columns here that are used in a single expression only, such as a partition key. They have
    only ``DIRECT`` transformations, and are left out.
    """
    by_transform: dict[str, list[_Input]] = {}
    for item in items:
        kept = [transformation for transformation in item.transformations if transformation.type != "DIRECT"]
        if kept or not item.transformations:
            by_transform.setdefault(_transform(kept), []).append(item)
    for transform, inputs in by_transform.items():
        upstreams, _ = _inputs(inputs)
        if upstreams and columns:
            yield ColumnEdge(columns, upstreams, transform)


def _inputs(items: list[_Input]) -> tuple[tuple[ColumnId, ...], str]:
    columns = dict.fromkeys([ColumnId(item.dataset, item.field) for item in items if item.field])
    return tuple(columns), _transform([transformation for item in items for transformation in item.transformations])


def _transform(transformations: Iterable[_Transformation]) -> str:
    texts = {f"{part.type or 'null'}:{part.subtype or 'null'}" for part in transformations}
    return ",".join(sorted(texts, key=lambda text: (text.lower(), text)) if len(texts) > 1 else texts)

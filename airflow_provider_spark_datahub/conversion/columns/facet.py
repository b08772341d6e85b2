"""Column lineage from the facets ``columnLineage`` and ``lineage`` (conversion rules, section 4.1).

``lineage``, of datasets and of jobs, is the successor of ``columnLineage`` in OpenLineage's spec.

Tests: ``tests/conversion/test_columns.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

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
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.redaction import redact_text

_LINEAGE, _INDIRECT = "lineage", "INDIRECT:"

PARSED_PLAN = "PARSED_PLAN"
"""Kind of transformations of columns that only Spark's physical plans show, not OpenLineage's
events.
"""


class ColumnId(NamedTuple):
    """OpenLineage's name of a column."""

    dataset: DatasetId
    field: str


class ColumnEdge(msgspec.Struct, frozen=True, gc=False):
    """Output columns and the input columns that they come from: all as values (direct), or all as
    conditions and keys.

    :param transform: ``TYPE:SUBTYPE`` of the transformations, joined by commas.
    :param of_all_rows: whether the inputs act on all rows, and so on every column of the output.
    """

    downstreams: tuple[str, ...]
    upstreams: tuple[ColumnId, ...]
    transform: str
    confidence: float = 0.5
    of_all_rows: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether the values of the upstreams are in those of the downstreams. Inputs without a
        transformation are.
        """
        return not self.of_all_rows and not self.transform.startswith(_INDIRECT)


MAX_READ_PAIRS = 250_000
"""Most column pairs that are read from one facet: more do not fit into an aspect of 16,000,000
characters.
"""


class _Content(msgspec.Struct, frozen=True, eq=False, dict=True):
    edges: tuple[ColumnEdge, ...]
    inputs: tuple[DatasetId, ...]
    left_out: int = 0

    @cached_property
    def direct(self) -> frozenset[str]:
        edges = (edge for edge in in_time(self.edges) if edge.upstreams and edge.is_direct)
        return frozenset(column for edge in edges for column in edge.downstreams)

    @cached_property
    def names_of_inputs(self) -> dict[DatasetId, set[str]]:
        names: dict[DatasetId, set[str]] = {}
        for edge in in_time(self.edges):
            for dataset, field in edge.upstreams:
                names.setdefault(dataset, set()).add(field.lower())
        return names


class DatasetColumns:
    """Column lineage of one output of one query. Equal texts of facets that a reader has read once
    are equal.

    :ivar edges: output columns with the input columns that they come from.
    :ivar inputs: all datasets that the column lineage names, including those without an edge.
    :ivar left_out: column pairs that were not read, because a facet has more than
        :data:`MAX_READ_PAIRS`.
    """

    def __init__(self, content: _Content, sql: str) -> None:
        self._content, self._sql = content, sql
        self.edges, self.inputs, self.left_out = content.edges, content.inputs, content.left_out

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DatasetColumns)
            and self._content is other._content
            and self._sql == other._sql
        )

    def __hash__(self) -> int:
        return hash((id(self._content), self._sql))

    @cached_property
    def sql(self) -> str:
        """The query's statement, without secrets."""
        return redact_text(self._sql.strip())

    @property
    def direct(self) -> frozenset[str]:
        """The output columns that have a direct edge."""
        return self._content.direct

    @classmethod
    def read(
        cls, output: EventDataset, job_facets: Facets, sql: str, *, with_indirect: bool = True
    ) -> DatasetColumns | None:
        """Read the column lineage of an output from its facets, else from the job's; ``None`` if
        there is none.

        :param with_indirect: keep inputs that give no value: they only filter, join, group or sort.
        """
        content, read = None, _content if with_indirect else _direct_content
        if "columnLineage" in output.facets:
            content = output.facets.once(read)
        elif _LINEAGE in output.facets:
            content = read(_as_column_lineage(output.facets))
        if content is None and _LINEAGE in job_facets:
            content = read(_as_column_lineage(_facets_of_output(job_facets, output)))
        return DatasetColumns(content, sql) if content is not None else None

    @staticmethod
    def explicit_inputs(output: EventDataset, job_facets: Facets) -> frozenset[DatasetId] | None:
        """Return the datasets that reach an output by the facet ``lineage``; ``None`` without it."""
        facets = output.facets
        if _LINEAGE not in facets:
            facets = _facets_of_output(job_facets, output)
        if _LINEAGE not in facets:
            return None
        content = _content(_as_column_lineage(facets))
        return frozenset(content.inputs if content is not None else ())

    @classmethod
    def of(cls, edges: Sequence[ColumnEdge], sql: str) -> DatasetColumns:
        """Return column lineage that comes from no facet."""
        return cls(_Content((), ()), sql).with_edges(edges)

    def with_edges(self, edges: Sequence[ColumnEdge]) -> DatasetColumns:
        """Return a copy with more edges."""
        inputs = (*self.inputs, *(column.dataset for edge in edges for column in edge.upstreams))
        return self._copy((*self.edges, *edges), inputs, self.sql)

    def mapped(self, changed: Callable[[ColumnEdge], ColumnEdge]) -> DatasetColumns:
        """Return a copy with other edges, without those that lose all upstreams, and without
        datasets that only these named.
        """
        edges = [edge for edge in map(changed, self.edges) if edge.upstreams]
        before = {column.dataset for edge in self.edges for column in edge.upstreams}
        after = {column.dataset for edge in edges for column in edge.upstreams}
        inputs = [dataset for dataset in self.inputs if dataset not in before - after]
        return self._copy(edges, inputs, self.sql)

    def renamed(self, named: Callable[[DatasetId], DatasetId]) -> DatasetColumns:
        """Return a copy with other names of its datasets."""
        edges = (
            structs.replace(
                edge,
                upstreams=tuple(
                    ColumnId(named(dataset), field) for dataset, field in edge.upstreams
                ),
            )
            for edge in self.edges
        )
        return self._copy(edges, map(named, self.inputs), self.sql)

    def within(self, known: Mapping[DatasetId, frozenset[str]]) -> DatasetColumns:
        """Return the column lineage without columns that their datasets do not have; this object if
        there are none.

        Columns that a database quotes (``"Order Id"``) have the names of their datasets.

        :param known: columns of datasets in lower case. The columns of other datasets stay.
        """
        # The usual case: all inputs are columns of their datasets.
        if all(
            names <= known.get(dataset, names)
            for dataset, names in self._content.names_of_inputs.items()
        ):
            return self

        def existing(column: ColumnId) -> ColumnId | None:
            names = known.get(column.dataset)
            for field in (column.field, column.field.strip('"`')):
                if names is None or not names.isdisjoint(
                    (field.lower(), field.lower().partition(".")[0])
                ):
                    return ColumnId(column.dataset, field)
            return None

        edges = tuple(
            edge
            if edge.transform.endswith(PARSED_PLAN)
            else structs.replace(edge, upstreams=tuple(filter(None, map(existing, edge.upstreams))))
            for edge in self.edges
        )
        rest = (edge for edge in edges if edge.upstreams)
        return self._copy(rest, self.inputs, self.sql) if edges != self.edges else self

    def _copy(
        self, edges: Iterable[ColumnEdge], inputs: Iterable[DatasetId], sql: str
    ) -> DatasetColumns:
        return DatasetColumns(
            _Content(tuple(edges), tuple(dict.fromkeys(inputs)), self.left_out), sql
        )


def _facets_of_output(job_facets: Facets, output: EventDataset) -> Facets:
    """Return the entry of an output in the job's ``lineage`` facet as if it were a facet of the
    output.
    """
    for entry in as_objects(job_facets[_LINEAGE].get("entries")):
        if DatasetId(as_text(entry.get("namespace")), as_text(entry.get("name"))) == output.id:
            return Facets.of({_LINEAGE: entry, "schema": output.facets["schema"]})
    return Facets()


def _as_column_lineage(facets: Facets) -> Facets:
    """Return facets with the ``columnLineage`` facet that is equal to their ``lineage`` facet."""
    facet = facets[_LINEAGE]
    fields = {
        name: {"inputFields": _dataset_inputs(as_object(field))}
        for name, field in as_object(facet.get("fields")).items()
    }
    equal = {"fields": fields, "dataset": _dataset_inputs(facet)}
    return Facets.of({"columnLineage": equal, "schema": facets["schema"]})


def _dataset_inputs(entry: JsonObject) -> list[JsonObject]:
    """Return the inputs that are datasets, not jobs."""
    return [
        item for item in as_objects(entry.get("inputs")) if item.get("type", "DATASET") == "DATASET"
    ]


def _content(facets: Facets) -> _Content | None:
    """Return the column lineage in the facets of an output; ``None`` if it names neither columns
    nor inputs.
    """
    content = _read(facets.text("columnLineage"), facets.text("schema"))
    return content if content.edges or content.inputs or content.left_out else None


def _direct_content(facets: Facets) -> _Content | None:
    """Return the same without inputs that give no value: they only filter, join, group or sort."""
    content = facets.once(_content)
    return content and structs.replace(
        content, edges=tuple(edge for edge in content.edges if edge.is_direct)
    )


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
    def types(self) -> set[str | None]:
        return {part.type for part in self.transformations}


class _Field(msgspec.Struct, gc=False, rename="camel"):
    input_fields: list[_Input] = []


class _WireFacet(msgspec.Struct, gc=False):
    fields: Mapping[str, Raw] = {}
    dataset: list[_Input] = []


_decode_facet = msgspec.json.Decoder(_WireFacet).decode
_decode_field = msgspec.json.Decoder(_Field).decode


def _decoded(lineage: bytes) -> tuple[dict[str, list[_Input]], list[_Input], int]:
    """Return the inputs of each output column, those of the dataset, and the number of inputs that
    are not read.
    """
    try:
        facet = _decode_facet(lineage)
    except NOT_DECODABLE:
        # A null or a wrong type must cost only the value itself.
        decoded = as_object(lineage)
        facet = _WireFacet(
            Facets.of(decoded.get("fields")).facets, _tolerant_inputs(decoded.get("dataset"))
        )
    fields: dict[str, list[_Input]] = {}
    pairs = left_out = 0
    for name, text in in_time(facet.fields.items()):
        inputs = _inputs_of(text)
        if pairs + len(inputs) > MAX_READ_PAIRS:
            left_out += len(inputs)
        else:
            fields[name] = inputs
            pairs += len(inputs)
    return fields, facet.dataset, left_out


def _inputs_of(text: Raw) -> list[_Input]:
    try:
        return _decode_field(text).input_fields
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


def _read(lineage: bytes, schema: bytes) -> _Content:
    fields, of_dataset, left_out = _decoded(lineage)
    edges = [
        edge
        for name, items in in_time(fields.items())
        if name
        for edge in _column_edges(name, items)
    ]
    if of_dataset:
        columns = dict.fromkeys([*fields, *field_names(schema)])
        edges += _dataset_edges(of_dataset, tuple(column for column in columns if column))
    inputs = dict.fromkeys([column.dataset for edge in edges for column in edge.upstreams])
    inputs |= dict.fromkeys(item.dataset for item in of_dataset if all(item.dataset))
    return _Content(tuple(edges), tuple(inputs), left_out)


def _column_edges(column: str, items: list[_Input]) -> Iterator[ColumnEdge]:
    """Yield the direct edge of an output column, then the indirect one. An input may be in both."""
    kinds = _kinds(items)
    indirect = {kind for kind in kinds if kind.startswith(_INDIRECT)}
    values = [item for item in items if item.types != {"INDIRECT"}] if indirect else items
    if values or not indirect:
        yield ColumnEdge((column,), _upstreams(values), _transform(kinds - indirect))
    if indirect:
        items = [item for item in items if "INDIRECT" in item.types]
        yield ColumnEdge((column,), _upstreams(items), _transform(indirect))


def _dataset_edges(items: Iterable[_Input], columns: tuple[str, ...]) -> Iterator[ColumnEdge]:
    """Yield an edge to all columns for each transformation of inputs that act on all rows (filters,
    joins, sort keys).

    OpenLineage also lists columns here that are used in a single expression only, such as a
    partition key. They have only ``DIRECT`` transformations, and are left out.
    """
    by_transform: dict[str, list[_Input]] = {}
    for item in items:
        kinds = {kind for kind in _kinds([item]) if not kind.startswith("DIRECT:")}
        if kinds or not item.transformations:
            by_transform.setdefault(_transform(kinds), []).append(item)
    for transform, inputs in by_transform.items():
        upstreams = _upstreams(inputs)
        if upstreams and columns:
            yield ColumnEdge(columns, upstreams, transform, of_all_rows=True)


def _upstreams(items: list[_Input]) -> tuple[ColumnId, ...]:
    return tuple(
        dict.fromkeys([ColumnId(item.dataset, item.field) for item in items if item.field])
    )


def _kinds(items: list[_Input]) -> set[str]:
    return {
        f"{part.type or 'null'}:{part.subtype or 'null'}"
        for item in items
        for part in item.transformations
    }


def _transform(kinds: Collection[str]) -> str:
    return ",".join(
        sorted(kinds, key=lambda kind: (kind.lower(), kind)) if len(kinds) > 1 else kinds
    )

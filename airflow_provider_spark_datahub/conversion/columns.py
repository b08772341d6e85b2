"""Column-level lineage from the ``columnLineage`` facet (conversion rules, section 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import (
    DatasetId,
    Facets,
    JsonObject,
    as_object,
    as_objects,
    as_text,
)
from airflow_provider_spark_datahub.conversion.limits import (
    COLUMN_EDGES_LEFT_OUT,
    LONG_STATEMENTS,
    STATEMENTS_LEFT_OUT,
    cut,
    pair_limit,
)
from airflow_provider_spark_datahub.conversion.lineage_facet import LINEAGE, as_column_lineage
from airflow_provider_spark_datahub.conversion.long_texts import packed, unpacked
from airflow_provider_spark_datahub.conversion.redaction import redact_text
from airflow_provider_spark_datahub.conversion.settings import LineageSettings


class ColumnId(NamedTuple):
    """A column as OpenLineage names it."""

    dataset: DatasetId
    field: str


@dataclass(frozen=True, slots=True)
class ColumnEdge:
    """Output columns and the input columns that they come from.

    :param downstreams: columns of the output; several where the inputs act on the whole dataset.
    :param upstreams: the input columns, without repetition.
    :param transform: ``TYPE:SUBTYPE`` of the transformations, joined by commas.
    """

    downstreams: tuple[str, ...]
    upstreams: tuple[ColumnId, ...]
    transform: str


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

    def renamed(self, named: Callable[[DatasetId], DatasetId]) -> DatasetColumns:
        """The same with other names of the datasets that it names."""
        renamed = DatasetColumns(self._texts, self.sql)
        edges = (
            replace(edge, upstreams=tuple(ColumnId(named(one.dataset), one.field) for one in edge.upstreams))
            for edge in self.edges
        )
        renamed._told = _Told(tuple(edges), tuple(dict.fromkeys(map(named, self.inputs))))
        return renamed

    def without_sql(self) -> DatasetColumns:
        """The same without its statement."""
        bare = DatasetColumns(self._texts, "")
        bare._told = self._read()
        return bare

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


def _read(lineage: JsonObject | bytes, schema: JsonObject | bytes) -> _Told:
    facet = as_object(lineage)
    fields = as_object(facet.get("fields"))
    edges = [
        ColumnEdge((name,), *_inputs(as_objects(as_object(field).get("inputFields"))))
        for name, field in fields.items()
        if name
    ]
    described = as_objects(as_object(schema).get("fields"))
    columns = dict.fromkeys([*fields, *(as_text(field.get("name")) for field in described)])
    whole = list(as_objects(facet.get("dataset")))
    edges += _dataset_edges(whole, tuple(column for column in columns if column))
    inputs = dict.fromkeys(column.dataset for edge in edges for column in edge.upstreams)
    inputs |= dict.fromkeys(dataset for item in whole if all(dataset := _dataset(item)))
    return _Told(tuple(edges), tuple(inputs))


def _dataset_edges(items: Iterable[JsonObject], columns: tuple[str, ...]) -> Iterator[ColumnEdge]:
    """Inputs that act on all rows (``columnLineage.dataset``: filters, joins, sort keys).

    One edge per transformation, to all columns at once: what is kept of a query stays linear in the facet's length.
    OpenLineage also lists columns there that only go into another expression (a partition key's, say): with nothing
    but ``DIRECT`` transformations, they are no input of *every* column.
    """
    by_transform: dict[str, list[JsonObject]] = {}
    for item in items:
        kept = [one for one in as_objects(item.get("transformations")) if one.get("type") != "DIRECT"]
        if kept or not item.get("transformations"):
            indirect = {**item, "transformations": kept}
            by_transform.setdefault(_transform([indirect]), []).append(indirect)
    for several in by_transform.values():
        upstreams, transform = _inputs(several)
        if upstreams and columns:
            yield ColumnEdge(columns, upstreams, transform)


def _inputs(items: Iterable[JsonObject]) -> tuple[tuple[ColumnId, ...], str]:
    listed = list(items)
    columns = (ColumnId(_dataset(item), as_text(item.get("field"))) for item in listed)
    return tuple(dict.fromkeys(column for column in columns if column.field)), _transform(listed)


def _dataset(item: JsonObject) -> DatasetId:
    return DatasetId(as_text(item.get("namespace")), as_text(item.get("name")))


def _transform(items: Iterable[JsonObject]) -> str:
    texts = {
        f"{transformation.get('type') or 'null'}:{transformation.get('subtype') or 'null'}"
        for item in items
        for transformation in as_objects(item.get("transformations"))
    }
    return ",".join(sorted(texts, key=lambda text: (text.lower(), text)))


@dataclass(frozen=True, slots=True)
class ColumnLimits:
    """How much column lineage a job may have.

    :param pairs: of columns.
    :param characters: of the ``fineGrainedLineages`` as JSON, about.
    :param sql: characters of a statement.
    """

    pairs: int
    characters: int
    sql: int

    @classmethod
    def of(cls, settings: LineageSettings) -> ColumnLimits:
        """What the options say."""
        longest = settings.max_string_length
        return cls(pair_limit(settings), longest, min(settings.max_sql_length or longest, longest))


def fine_grained_lineages(
    lineages: Iterable[tuple[str, DatasetColumns]], namer: DatasetNamer, limits: ColumnLimits, cut_counts: Counter[str]
) -> list[dict[str, Any]]:
    """The ``fineGrainedLineages`` of a job: the union over all queries (Deviation 2), each edge once.

    Each has one downstream: where the catalogue holds one of several, GMS refuses every later patch of the job's edges
    (``FineGrainedLineageTemplateHelper``). What is too much for the limits is left out: first the statements, then the
    inputs that act on all rows, which are pairs of every such input with every column.

    :param lineages: the output's URN and its column lineage, per query.
    :param cut_counts: takes how much was left out.
    """
    told = [
        (output, columns, tuple((one, name.urn) for one in columns.inputs if (name := namer.name(one)) is not None))
        for output, columns in dict.fromkeys(lineages)
    ]
    statements = {columns.sql for _, columns, _ in told if len(columns.sql) > limits.sql}
    if statements:
        cut_counts[LONG_STATEMENTS] += len(statements)
    found = _union(told, limits)
    if found.characters > limits.characters and any(columns.sql for _, columns, _ in told):
        cut_counts[STATEMENTS_LEFT_OUT] += len({columns.sql for _, columns, _ in told if columns.sql})
        found = _union([(output, columns.without_sql(), names) for output, columns, names in told], limits)
    if found.left_out or found.pairs > limits.pairs or found.characters > limits.characters:
        found = _first_that_fit(found, limits)
        cut_counts[COLUMN_EDGES_LEFT_OUT] += found.left_out
    return [one.aspect for one in found.lineages]


class _Lineage(NamedTuple):
    """One of the ``fineGrainedLineages``.

    :param of_all_rows: its inputs act on every column of the output alike.
    """

    key: tuple[str, tuple[str, ...], str]
    aspect: dict[str, Any]
    characters: int
    of_all_rows: bool

    @property
    def pairs(self) -> int:
        return len(self.key[1])


class _Lineages(NamedTuple):
    """Several, with their sums. :param left_out: pairs of columns beside them."""

    lineages: tuple[_Lineage, ...]
    pairs: int
    characters: int
    left_out: int


def _union(
    told: Iterable[tuple[str, DatasetColumns, tuple[tuple[DatasetId, str], ...]]], limits: ColumnLimits
) -> _Lineages:
    groups = [_fine_grained(output, columns, names, limits) for output, columns, names in told]
    unique: dict[tuple[str, tuple[str, ...], str], _Lineage] = {}
    for group in groups:
        for one in group.lineages:
            unique.setdefault(one.key, one)
    lineages = tuple(unique.values())
    return _Lineages(
        lineages,
        sum(one.pairs for one in lineages),
        sum(one.characters for one in lineages),
        sum(group.left_out for group in groups),
    )


class _OfOneOutput(NamedTuple):
    lineages: tuple[_Lineage, ...]
    left_out: int


@lru_cache(maxsize=16)
def _fine_grained(
    output: str, columns: DatasetColumns, names: tuple[tuple[DatasetId, str], ...], limits: ColumnLimits
) -> _OfOneOutput:
    urn_of = dict(names)
    sql = cut(columns.sql, limits.sql)
    found: list[_Lineage] = []
    left_out = 0
    for edge in columns.edges:
        pairs = len(edge.upstreams) * len(edge.downstreams)
        if len(edge.downstreams) > 1 and pairs > limits.pairs:
            left_out += pairs
        else:
            found += _lineages_of(output, edge, sql, urn_of)
    return _OfOneOutput(tuple(found), left_out)


# What stands around the URNs and the text in the JSON of one lineage.
_FRAME_CHARACTERS = 130


def _lineages_of(output: str, edge: ColumnEdge, sql: str, urn_of: Mapping[DatasetId, str]) -> Iterator[_Lineage]:
    upstreams = sorted(
        {urns.schema_field_urn(urn_of[column.dataset], column.field) for column in edge.upstreams
         if column.dataset in urn_of}
    )  # fmt: skip
    transform = _transform_text(edge.transform, sql)
    characters = _FRAME_CHARACTERS + len(transform) + sum(map(len, upstreams)) + 3 * len(upstreams)
    for column in edge.downstreams:
        downstream = urns.schema_field_urn(output, column)
        aspect = {
            "upstreamType": "FIELD_SET",
            "upstreams": upstreams,
            "downstreamType": "FIELD_SET",
            "downstreams": [downstream],
            "transformOperation": transform,
            "confidenceScore": 0.5,
        }
        key = downstream, tuple(upstreams), transform
        yield _Lineage(key, aspect, characters + len(downstream), len(edge.downstreams) > 1)


def _first_that_fit(found: _Lineages, limits: ColumnLimits) -> _Lineages:
    """Those of single columns first, then those of all rows, each in their order, as long as there is room."""
    pairs = characters = 0
    kept: set[tuple[str, tuple[str, ...], str]] = set()
    for one in sorted(found.lineages, key=lambda one: one.of_all_rows):
        if pairs + one.pairs > limits.pairs or characters + one.characters > limits.characters:
            continue
        pairs, characters = pairs + one.pairs, characters + one.characters
        kept.add(one.key)
    lineages = tuple(one for one in found.lineages if one.key in kept)
    return _Lineages(lineages, pairs, characters, found.left_out + found.pairs - pairs)


def _transform_text(transform: str, sql: str) -> str:
    if not sql:
        return transform
    return f"-- {transform}\n{sql}" if transform else sql

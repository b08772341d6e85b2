"""Column-level lineage from the ``columnLineage`` facet (conversion rules, section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Raw

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId, JsonObject, as_object, as_objects, as_text
from airflow_provider_spark_datahub.conversion.redaction import redact_text


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


@dataclass(frozen=True, slots=True, eq=False)
class DatasetColumns:
    """The column lineage of one output of one query.

    Compared by identity, which costs nothing: what was read from the same text is the same object.

    :param inputs: every dataset that it names, those of no edge included.
    """

    edges: tuple[ColumnEdge, ...]
    sql: str
    inputs: tuple[DatasetId, ...]


def read_columns(facets: JsonObject, sql: str) -> DatasetColumns | None:
    """The column lineage of an output dataset, or ``None`` where its facets tell none."""
    if "columnLineage" not in facets:
        return None
    lineage, schema = facets["columnLineage"], facets.get("schema")
    if type(lineage) is Raw and (schema is None or type(schema) is Raw):
        return _read_again(bytes(lineage), bytes(schema) if schema is not None else b"", sql)
    return _read(as_object(lineage), as_object(schema), sql)


@lru_cache(maxsize=64)
def _read_again(lineage: bytes, schema: bytes, sql: str) -> DatasetColumns | None:
    """The events of a query repeat its column lineage byte by byte, which may be hundreds of kilobytes."""
    return _read(as_object(Raw(lineage)), as_object(Raw(schema)) if schema else {}, sql)


def _read(facet: JsonObject, schema: JsonObject, sql: str) -> DatasetColumns | None:
    fields = as_object(facet.get("fields"))
    edges = [
        ColumnEdge((name,), *_inputs(as_objects(as_object(described).get("inputFields"))))
        for name, described in fields.items()
        if name
    ]
    columns = dict.fromkeys([*fields, *(as_text(field.get("name")) for field in as_objects(schema.get("fields")))])
    whole = list(as_objects(facet.get("dataset")))
    edges += _dataset_edges(whole, tuple(column for column in columns if column))
    inputs = dict.fromkeys(column.dataset for edge in edges for column in edge.upstreams)
    inputs |= dict.fromkeys(column.dataset for column in _inputs(whole)[0])
    return DatasetColumns(tuple(edges), redact_text(sql.strip()), tuple(inputs)) if edges or inputs else None


def _dataset_edges(items: Iterable[JsonObject], columns: tuple[str, ...]) -> Iterator[ColumnEdge]:
    """Inputs that act on all rows (``columnLineage.dataset``: filters, joins, sort keys).

    One edge per transformation, to all columns at once: one for each column would be quadratic. OpenLineage also
    lists columns there that only go into another expression (a partition key's, say): with nothing but ``DIRECT``
    transformations, they are no input of *every* column.
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
    columns = (
        ColumnId(DatasetId(as_text(item.get("namespace")), as_text(item.get("name"))), as_text(item.get("field")))
        for item in listed
    )
    return tuple(dict.fromkeys(column for column in columns if column.field)), _transform(listed)


def _transform(items: Iterable[JsonObject]) -> str:
    texts = {
        f"{transformation.get('type') or 'null'}:{transformation.get('subtype') or 'null'}"
        for item in items
        for transformation in as_objects(item.get("transformations"))
    }
    return ",".join(sorted(texts, key=lambda text: (text.lower(), text)))


def fine_grained_lineages(lineages: Iterable[tuple[str, DatasetColumns]], namer: DatasetNamer) -> list[dict[str, Any]]:
    """The ``fineGrainedLineages`` of a job: the union over all queries (Deviation 2), each edge once.

    :param lineages: the output's URN and its column lineage, per query.
    """
    found: dict[tuple[tuple[str, ...], tuple[str, ...], str], dict[str, Any]] = {}
    for output, columns in dict.fromkeys(lineages):
        names = tuple((dataset, name.urn) for dataset in columns.inputs if (name := namer.name(dataset)) is not None)
        for key, lineage in _fine_grained(output, columns, names):
            found.setdefault(key, lineage)
    return list(found.values())


_Keyed = tuple[tuple[tuple[str, ...], tuple[str, ...], str], dict[str, Any]]


@lru_cache(maxsize=64)
def _fine_grained(output: str, columns: DatasetColumns, names: tuple[tuple[DatasetId, str], ...]) -> tuple[_Keyed, ...]:
    urn_of = dict(names)
    return tuple(_one_lineage(output, edge, columns.sql, urn_of) for edge in columns.edges)


def _one_lineage(output: str, edge: ColumnEdge, sql: str, urn_of: Mapping[DatasetId, str]) -> _Keyed:
    upstreams = sorted(
        {urns.schema_field_urn(urn_of[column.dataset], column.field) for column in edge.upstreams
         if column.dataset in urn_of}
    )  # fmt: skip
    downstreams = [urns.schema_field_urn(output, column) for column in edge.downstreams]
    transform = _transform_text(edge.transform, sql)
    lineage = {
        "upstreamType": "FIELD_SET",
        "upstreams": upstreams,
        "downstreamType": "FIELD_SET",
        "downstreams": downstreams,
        "transformOperation": transform,
        "confidenceScore": 0.5,
    }
    return (tuple(downstreams), tuple(upstreams), transform), lineage


def _transform_text(transform: str, sql: str) -> str:
    if not sql:
        return transform
    return f"-- {transform}\n{sql}" if transform else sql

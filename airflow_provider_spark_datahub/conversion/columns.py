"""Column-level lineage from the ``columnLineage`` facet (conversion rules, section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

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


@dataclass(frozen=True, slots=True)
class DatasetColumns:
    """The column lineage of one output of one query."""

    edges: tuple[ColumnEdge, ...]
    sql: str

    @property
    def input_datasets(self) -> Iterator[DatasetId]:
        """Every dataset that an input column belongs to."""
        for edge in self.edges:
            for column in edge.upstreams:
                yield column.dataset


def read_columns(facets: JsonObject, sql: str) -> DatasetColumns | None:
    """The column lineage of an output dataset, or ``None`` where its facets tell none.

    Inputs that act on all rows (``columnLineage.dataset``: filters, joins, sort keys) become one edge per
    transformation, to all columns at once: a column's worth of them for each column would be quadratic.
    """
    facet = as_object(facets.get("columnLineage"))
    fields = as_object(facet.get("fields"))
    edges = [
        ColumnEdge((name,), *_inputs(as_objects(as_object(described).get("inputFields"))))
        for name, described in fields.items()
        if name
    ]
    schema = as_objects(as_object(facets.get("schema")).get("fields"))
    columns = tuple(dict.fromkeys([*fields, *(as_text(field.get("name")) for field in schema)]))
    columns = tuple(column for column in columns if column)
    if columns:
        edges.extend(_dataset_edges(facet, columns))
    return DatasetColumns(tuple(edges), redact_text(sql.strip())) if edges else None


def _dataset_edges(facet: JsonObject, columns: tuple[str, ...]) -> Iterator[ColumnEdge]:
    by_transform: dict[str, list[JsonObject]] = {}
    for item in as_objects(facet.get("dataset")):
        by_transform.setdefault(_transform([item]), []).append(item)
    for items in by_transform.values():
        upstreams, transform = _inputs(items)
        if upstreams:
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
    for output, columns in lineages:
        for edge in columns.edges:
            upstreams = sorted(
                {urns.schema_field_urn(name.urn, column.field) for column in edge.upstreams
                 if (name := namer.name(column.dataset)) is not None}
            )  # fmt: skip
            downstreams = [urns.schema_field_urn(output, column) for column in edge.downstreams]
            transform = _transform_text(edge.transform, columns.sql)
            found.setdefault(
                (tuple(downstreams), tuple(upstreams), transform),
                {
                    "upstreamType": "FIELD_SET",
                    "upstreams": upstreams,
                    "downstreamType": "FIELD_SET",
                    "downstreams": downstreams,
                    "transformOperation": transform,
                    "confidenceScore": 0.5,
                },
            )
    return list(found.values())


def _transform_text(transform: str, sql: str) -> str:
    if not sql:
        return transform
    return f"-- {transform}\n{sql}" if transform else sql

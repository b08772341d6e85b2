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
    """The column lineage of one output of one query.

    :param inputs: every dataset that it names, those of no edge included.
    """

    edges: tuple[ColumnEdge, ...]
    sql: str
    inputs: tuple[DatasetId, ...]


def read_columns(facets: JsonObject, sql: str) -> DatasetColumns | None:
    """The column lineage of an output dataset, or ``None`` where its facets tell none."""
    facet = as_object(facets.get("columnLineage"))
    fields = as_object(facet.get("fields"))
    edges = [
        ColumnEdge((name,), *_inputs(as_objects(as_object(described).get("inputFields"))))
        for name, described in fields.items()
        if name
    ]
    schema = as_objects(as_object(facets.get("schema")).get("fields"))
    columns = dict.fromkeys([*fields, *(as_text(field.get("name")) for field in schema)])
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

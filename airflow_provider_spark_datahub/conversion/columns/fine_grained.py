"""``fineGrainedLineages`` of a job, from the column lineage of its queries (conversion rules, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.columns.facet import ColumnEdge, DatasetColumns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.diagnostics import (
    COLUMN_EDGES_LEFT_OUT,
    LONG_STATEMENTS,
    STATEMENTS_LEFT_OUT,
    TextLimit,
    cut,
)
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

_SHORTEST_COLUMN_URN = len('"urn:li:schemaField:(urn:li:dataset:(urn:li:dataPlatform:p,t,EI),c)",')


class _Limits(msgspec.Struct, frozen=True):
    """Limits on the column lineage of a job.

    :param pairs: pairs of columns.
    :param characters: approximate length of the ``fineGrainedLineages`` as JSON.
    :param sql: length of a statement in characters.
    """

    pairs: int
    characters: int
    sql: int

    @staticmethod
    @lru_cache(maxsize=4)
    def of(settings: LineageSettings) -> _Limits:
        longest = settings.max_string_length
        # No more pairs fit into an aspect, even with the shortest names.
        pairs = longest // _SHORTEST_COLUMN_URN
        if settings.max_column_edges is not None:
            pairs = min(pairs, settings.max_column_edges)
        return _Limits(pairs, longest, min(settings.max_sql_length or longest, longest))


def fine_grained_lineages(
    lineages: Iterable[tuple[str, DatasetColumns]],
    namer: DatasetNamer,
    settings: LineageSettings,
    text_limit: TextLimit,
) -> list[dict[str, Any]]:
    """Return the ``fineGrainedLineages`` of a job: the union over all queries (Deviation 2), each edge once.

    Each lineage has one downstream: if DataHub holds one with several, GMS refuses every later patch of the job's edges
    (``FineGrainedLineageTemplateHelper``). Lineage beyond the limits is left out: first the statements, then the inputs
    that act on all rows, which are pairs of every such input with every column.

    :param lineages: URN of the output and its column lineage, per query.
    :param text_limit: counts what was left out.
    """
    limits = _Limits.of(settings)
    queries = [
        (output, columns, tuple((item, name.urn) for item in columns.inputs if (name := namer.name(item)) is not None))
        for output, columns in dict.fromkeys(lineages)
    ]
    if not queries:
        return []
    statements = {columns.sql for _, columns, _ in queries if columns.sql}
    long_statements = [sql for sql in statements if len(sql) > limits.sql]
    if long_statements:
        text_limit.count(LONG_STATEMENTS, len(long_statements))
    union = _union(queries, limits)
    if union.characters > limits.characters and statements:
        text_limit.count(STATEMENTS_LEFT_OUT, len(statements))
        union = _union([(output, columns.without_sql(), names) for output, columns, names in queries], limits)
    if union.left_out or union.pairs > limits.pairs or union.characters > limits.characters:
        union = _first_that_fit(union, limits)
        text_limit.count(COLUMN_EDGES_LEFT_OUT, union.left_out)
    return [lineage.aspect for lineage in union.lineages]


class _Lineage(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Element of ``fineGrainedLineages``.

    :param source: its upstreams and its transform.
    :param pairs: how many pairs of columns it has.
    :param of_all_rows: whether its inputs act on all rows, and so on every column of the output.
    """

    downstream: str
    source: tuple[tuple[str, ...], str]
    aspect: dict[str, Any]
    characters: int
    pairs: int
    of_all_rows: bool


class _Lineages(NamedTuple):
    """Distinct lineages with their sums.

    :param left_out: pairs of columns that are not among them.
    """

    lineages: list[_Lineage]
    pairs: int
    characters: int
    left_out: int


# URN of the output, its column lineage, and the URNs of its inputs.
_Query = tuple[str, DatasetColumns, tuple[tuple[DatasetId, str], ...]]


def _union(queries: Sequence[_Query], limits: _Limits) -> _Lineages:
    """Return the lineages of all queries, each once. Only lineages of one output can be equal."""
    groups: dict[str, list[_Lineages]] = {}
    for output, columns, names in queries:
        groups.setdefault(output, []).append(_fine_grained(output, columns, names, limits))
    of_outputs = [_deduplicated(group) if len(group) > 1 else group[0] for group in groups.values()]
    if len(of_outputs) == 1:
        return of_outputs[0]
    lineages, pairs, characters, left_out = zip(*of_outputs, strict=True)
    return _Lineages(list(chain.from_iterable(lineages)), sum(pairs), sum(characters), sum(left_out))


def _deduplicated(groups: Sequence[_Lineages]) -> _Lineages:
    lineages: list[_Lineage] = []
    known: dict[tuple[tuple[str, ...], str], set[str]] = {}
    source, downstreams = None, set[str]()
    for lineage in chain.from_iterable(group.lineages for group in groups):
        if lineage.source is not source:
            source = lineage.source
            downstreams = known.setdefault(source, set())
        if lineage.downstream not in downstreams:
            downstreams.add(lineage.downstream)
            lineages.append(lineage)
    return _lineages(lineages, sum(group.left_out for group in groups))


def _lineages(lineages: list[_Lineage], left_out: int) -> _Lineages:
    pairs, characters = sum([item.pairs for item in lineages]), sum([item.characters for item in lineages])
    return _Lineages(lineages, pairs, characters, left_out)


def _fine_grained(
    output: str, columns: DatasetColumns, names: tuple[tuple[DatasetId, str], ...], limits: _Limits
) -> _Lineages:
    # The events of a query repeat its column lineage, and so does the next run of its job. Long ones take memory.
    read = _read_few if len(columns.edges) <= _FEW_EDGES else _read_many
    return read(output, columns, names, limits)


def _read(output: str, columns: DatasetColumns, names: tuple[tuple[DatasetId, str], ...], limits: _Limits) -> _Lineages:
    urn_of = dict(names)
    sql = cut(columns.sql, limits.sql)
    lineages: list[_Lineage] = []
    left_out = columns.left_out
    # Equal values are one object: a wide table has thousands of lineages.
    downstreams: dict[str, list[str]] = {}
    for edge in in_time(columns.edges):
        pairs = len(edge.upstreams) * len(edge.downstreams)
        if len(edge.downstreams) > 1 and pairs > limits.pairs:
            left_out += pairs
            continue
        for column in edge.downstreams:
            if column not in downstreams:
                downstreams[column] = [urns.schema_field_urn(output, column)]
        lineages += _lineages_of(edge, [downstreams[column] for column in edge.downstreams], sql, urn_of)
    every = _lineages(lineages, left_out)
    return _deduplicated([every]) if len(downstreams) < len(lineages) else every


_FEW_EDGES = 32
_read_few, _read_many = lru_cache(maxsize=256)(_read), lru_cache(maxsize=16)(_read)


# Length of the JSON around the URNs and the text of one lineage.
_FRAME_CHARACTERS = 130


def _lineages_of(
    edge: ColumnEdge, downstreams: list[list[str]], sql: str, urn_of: Mapping[DatasetId, str]
) -> Iterator[_Lineage]:
    upstreams = sorted(
        {urns.schema_field_urn(urn_of[column.dataset], column.field) for column in edge.upstreams
         if column.dataset in urn_of}
    )  # fmt: skip
    transform = f"-- {edge.transform}\n{sql}" if edge.transform and sql else sql or edge.transform
    characters = _FRAME_CHARACTERS + len(transform) + sum(map(len, upstreams)) + 3 * len(upstreams)
    pairs, source = len(upstreams), (tuple(upstreams), transform)
    of_all_rows = len(downstreams) > 1
    for downstream in downstreams:
        aspect = {
            "upstreamType": "FIELD_SET",
            "upstreams": upstreams,
            "downstreamType": "FIELD_SET",
            "downstreams": downstream,
            "transformOperation": transform,
            "confidenceScore": edge.confidence,
        }
        (urn,) = downstream
        yield _Lineage(urn, source, aspect, characters + len(urn), pairs, of_all_rows)


def _first_that_fit(union: _Lineages, limits: _Limits) -> _Lineages:
    """Keep the lineages that fit: first those of single columns, then those of all rows. They stay in their order."""
    pairs = characters = 0
    kept: set[int] = set()
    for lineage in sorted(union.lineages, key=lambda lineage: lineage.of_all_rows):
        if pairs + lineage.pairs > limits.pairs or characters + lineage.characters > limits.characters:
            continue
        pairs, characters = pairs + lineage.pairs, characters + lineage.characters
        kept.add(id(lineage))
    lineages = [lineage for lineage in union.lineages if id(lineage) in kept]
    return _Lineages(lineages, pairs, characters, union.left_out + union.pairs - pairs)

"""The ``fineGrainedLineages`` of a job, from the column lineage of its queries (conversion rules, section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.columns.facet import ColumnEdge, DatasetColumns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.limits import (
    COLUMN_EDGES_LEFT_OUT,
    LONG_STATEMENTS,
    STATEMENTS_LEFT_OUT,
    Cuts,
    cut,
    pair_limit,
)
from airflow_provider_spark_datahub.conversion.settings import LineageSettings


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

    @staticmethod
    @lru_cache(maxsize=4)
    def of(settings: LineageSettings) -> ColumnLimits:
        """What the options say."""
        longest = settings.max_string_length
        return ColumnLimits(pair_limit(settings), longest, min(settings.max_sql_length or longest, longest))


def fine_grained_lineages(
    lineages: Iterable[tuple[str, DatasetColumns]], namer: DatasetNamer, limits: ColumnLimits, cuts: Cuts
) -> list[dict[str, Any]]:
    """The ``fineGrainedLineages`` of a job: the union over all queries (Deviation 2), each edge once.

    Each has one downstream: where the catalogue holds one of several, GMS refuses every later patch of the job's edges
    (``FineGrainedLineageTemplateHelper``). What is too much for the limits is left out: first the statements, then the
    inputs that act on all rows, which are pairs of every such input with every column.

    :param lineages: the output's URN and its column lineage, per query.
    :param cuts: takes how much was left out.
    """
    told = [
        (output, columns, tuple((one, name.urn) for one in columns.inputs if (name := namer.name(one)) is not None))
        for output, columns in dict.fromkeys(lineages)
    ]
    if not told:
        return []
    statements = {columns.sql for _, columns, _ in told if len(columns.sql) > limits.sql}
    if statements:
        cuts.count(LONG_STATEMENTS, len(statements))
    found = _union(told, limits)
    if found.characters > limits.characters and any(columns.sql for _, columns, _ in told):
        cuts.count(STATEMENTS_LEFT_OUT, len({columns.sql for _, columns, _ in told if columns.sql}))
        found = _union([(output, columns.without_sql(), names) for output, columns, names in told], limits)
    if found.left_out or found.pairs > limits.pairs or found.characters > limits.characters:
        found = _first_that_fit(found, limits)
        cuts.count(COLUMN_EDGES_LEFT_OUT, found.left_out)
    return [one.aspect for one in found.lineages]


class _Lineage(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One of the ``fineGrainedLineages``.

    :param source: its upstreams and its transform.
    :param pairs: of columns.
    :param of_all_rows: its inputs act on every column of the output alike.
    """

    downstream: str
    source: tuple[tuple[str, ...], str]
    aspect: dict[str, Any]
    characters: int
    pairs: int
    of_all_rows: bool


class _Lineages(NamedTuple):
    """Several, each once, with their sums. :param left_out: pairs of columns beside them."""

    lineages: list[_Lineage]
    pairs: int
    characters: int
    left_out: int


_Told = tuple[str, DatasetColumns, tuple[tuple[DatasetId, str], ...]]


def _union(told: Sequence[_Told], limits: ColumnLimits) -> _Lineages:
    """Those of several queries. Only those to one output can be the same."""
    groups: dict[str, list[_Lineages]] = {}
    for output, columns, names in told:
        groups.setdefault(output, []).append(_fine_grained(output, columns, names, limits))
    of_outputs = [_each_once(several) if len(several) > 1 else several[0] for several in groups.values()]
    if len(of_outputs) == 1:
        return of_outputs[0]
    lineages, pairs, characters, left_out = zip(*of_outputs, strict=True)
    return _Lineages(list(chain.from_iterable(lineages)), sum(pairs), sum(characters), sum(left_out))


def _each_once(groups: Sequence[_Lineages]) -> _Lineages:
    lineages: list[_Lineage] = []
    known: dict[tuple[tuple[str, ...], str], set[str]] = {}
    source, downstreams = None, set[str]()
    for one in chain.from_iterable(group.lineages for group in groups):
        if one.source is not source:
            source = one.source
            downstreams = known.setdefault(source, set())
        if one.downstream not in downstreams:
            downstreams.add(one.downstream)
            lineages.append(one)
    return _lineages(lineages, sum(group.left_out for group in groups))


def _lineages(found: list[_Lineage], left_out: int) -> _Lineages:
    return _Lineages(found, sum([one.pairs for one in found]), sum([one.characters for one in found]), left_out)


@lru_cache(maxsize=16)
def _fine_grained(
    output: str, columns: DatasetColumns, names: tuple[tuple[DatasetId, str], ...], limits: ColumnLimits
) -> _Lineages:
    urn_of = dict(names)
    sql = cut(columns.sql, limits.sql)
    found: list[_Lineage] = []
    left_out = 0
    # Whatever is equal is one object: a wide table has thousands of lineages.
    downstreams: dict[str, list[str]] = {}
    for edge in columns.edges:
        pairs = len(edge.upstreams) * len(edge.downstreams)
        if len(edge.downstreams) > 1 and pairs > limits.pairs:
            left_out += pairs
            continue
        for column in edge.downstreams:
            if column not in downstreams:
                downstreams[column] = [urns.schema_field_urn(output, column)]
        found += _lineages_of(edge, [downstreams[column] for column in edge.downstreams], sql, urn_of)
    return _each_once([_lineages(found, left_out)]) if len(downstreams) < len(found) else _lineages(found, left_out)


# What stands around the URNs and the text in the JSON of one lineage.
_FRAME_CHARACTERS = 130


def _lineages_of(
    edge: ColumnEdge, downstreams: list[list[str]], sql: str, urn_of: Mapping[DatasetId, str]
) -> Iterator[_Lineage]:
    upstreams = sorted(
        {urns.schema_field_urn(urn_of[column.dataset], column.field) for column in edge.upstreams
         if column.dataset in urn_of}
    )  # fmt: skip
    transform = _transform_text(edge.transform, sql)
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


def _first_that_fit(found: _Lineages, limits: ColumnLimits) -> _Lineages:
    """Those of single columns first, then those of all rows, each in their order, as long as there is room."""
    pairs = characters = 0
    kept: set[int] = set()
    for one in sorted(found.lineages, key=lambda one: one.of_all_rows):
        if pairs + one.pairs > limits.pairs or characters + one.characters > limits.characters:
            continue
        pairs, characters = pairs + one.pairs, characters + one.characters
        kept.add(id(one))
    lineages = [one for one in found.lineages if id(one) in kept]
    return _Lineages(lineages, pairs, characters, found.left_out + found.pairs - pairs)


def _transform_text(transform: str, sql: str) -> str:
    if not sql:
        return transform
    return f"-- {transform}\n{sql}" if transform else sql

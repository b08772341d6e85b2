"""``fineGrainedLineages`` of a job, from the column lineage of its queries (conversion rules,
section 4.1).

Tests: ``tests/conversion/test_columns.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.columns.facet import DatasetColumns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.diagnostics import (
    COLUMN_EDGES_LEFT_OUT,
    STATEMENTS_LEFT_OUT,
    TextLimit,
)
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

_Urns = Mapping[DatasetId, str]
# Length of the shortest upstream of a lineage as JSON.
_SHORTEST_COLUMN_URN = len('"urn:li:schemaField:(urn:li:dataset:(urn:li:dataPlatform:p,t,EI),c)",')


def fine_grained_lineages(
    lineages: Iterable[tuple[str, DatasetColumns]],
    namer: DatasetNamer,
    settings: LineageSettings,
    text_limit: TextLimit,
) -> list[dict[str, Any]]:
    """Return the column lineage of a job: the union over all queries (Deviation 2), each edge once.

    Each lineage has one downstream: if DataHub holds one with several, GMS refuses every later
    patch of the job's edges (``FineGrainedLineageTemplateHelper``). Beyond the limits, first the
    statements are left out, then the inputs that act on all rows, then those that decide on a
    column.

    :param lineages: URN of the output and its column lineage, per query.
    """
    longest = settings.max_string_length
    queries = list(dict.fromkeys(lineages))
    inputs = dict.fromkeys(chain.from_iterable(columns.inputs for _, columns in in_time(queries)))
    urn_of = {item: urn for item in inputs if (urn := namer.urn(item)) is not None}
    statements = {columns.sql for _, columns in queries if columns.sql}
    # Each column lineage of an output has the statement.
    of_outputs = {output: len(columns.sql) * len(columns.edges) for output, columns in queries}
    union = _union(queries, urn_of, longest) if sum(of_outputs.values()) <= longest else None
    if union is None or (union.characters > longest and statements):
        text_limit.count(STATEMENTS_LEFT_OUT, len(statements))
        union = _union(queries, urn_of, longest, with_statements=False)
    if union.left_out or union.characters > longest:
        union = _first_that_fit(union, longest)
        text_limit.count(COLUMN_EDGES_LEFT_OUT, union.left_out)
    downstreams = dict.fromkeys(chain.from_iterable([group.downstreams for group in union.groups]))
    # Lineages share their lists: Python's garbage collector visits each list.
    listed = {downstream: [downstream] for downstream in downstreams}
    return [
        {
            "upstreamType": "FIELD_SET",
            "upstreams": group.source.upstreams,
            "downstreamType": "FIELD_SET",
            "downstreams": listed[downstream],
            "transformOperation": group.source.transform,
            "confidenceScore": group.source.confidence,
        }
        for group in in_time(union.groups)
        for downstream in group.downstreams
    ]


# Length of the JSON around the URNs and the text of one lineage.
_FRAME_CHARACTERS = 130


class _Source(msgspec.Struct, frozen=True, eq=False, gc=False):
    """All parts of lineages but the output, which they often share with those of other outputs.

    :param columns: the output's columns.
    :param priority: 0 if the inputs are values of the downstreams, 1 if they decide on one, 2 if
        they act on all rows.
    :param characters: approximate length of the JSON of one lineage without its downstream.
    """

    upstreams: list[str]
    transform: str
    confidence: float
    columns: tuple[str, ...]
    priority: int
    characters: int


class _Group(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Lineages that differ only in their downstreams.

    :param downstreams: URNs of the output's columns.
    """

    source: _Source
    downstreams: tuple[str, ...]

    @property
    def characters(self) -> int:
        """Approximate length of the JSON of these lineages."""
        return self.source.characters * len(self.downstreams) + sum(map(len, self.downstreams))


class _Union(NamedTuple):
    """Distinct lineages with their sums.

    :param left_out: pairs of columns that are not among them.
    """

    groups: list[_Group]
    characters: int
    left_out: int


def _union(
    queries: Sequence[tuple[str, DatasetColumns]],
    urn_of: _Urns,
    longest: int,
    *,
    with_statements: bool = True,
) -> _Union:
    """Return the lineages of all queries, each once. Only lineages of one output can be equal."""
    of_outputs: dict[str, list[_Group]] = {}
    # Outputs of an application often have the same columns.
    known: dict[DatasetColumns, tuple[list[_Source], int]] = {}
    left_out = 0
    for output, columns in in_time(queries):
        if columns not in known:
            known[columns] = _sources(
                columns, urn_of, columns.sql if with_statements else "", longest
            )
        sources, missing = known[columns]
        left_out += missing
        names = dict.fromkeys(chain.from_iterable([source.columns for source in sources]))
        fields = {name: urns.schema_field_urn(output, name) for name in in_time(names)}
        groups = [
            _Group(source, tuple([fields[name] for name in source.columns]))
            for source in in_time(sources)
        ]
        of_outputs.setdefault(output, []).extend(groups)
    distinct = list(chain.from_iterable(map(_distinct, in_time(of_outputs.values()))))
    return _Union(distinct, sum([group.characters for group in distinct]), left_out)


def _distinct(groups: Sequence[_Group]) -> Iterator[_Group]:
    """Yield the lineages of one output, each once."""
    known: dict[tuple[tuple[str, ...], str], dict[str, None]] = {}
    for group in groups:
        new = dict.fromkeys(group.downstreams)
        before = known.setdefault((tuple(group.source.upstreams), group.source.transform), new)
        if before is not new:
            new = {downstream: None for downstream in new if downstream not in before}
            before.update(new)
        if new:
            yield group if len(new) == len(group.downstreams) else _Group(group.source, tuple(new))


def _sources(
    columns: DatasetColumns, urn_of: _Urns, sql: str, longest: int
) -> tuple[list[_Source], int]:
    """Return the sources of an output's columns, and how many pairs of columns are left out."""
    sources: list[_Source] = []
    left_out = columns.left_out
    # The statement may be long: equal texts are one object.
    transforms: dict[str, str] = {}
    for edge in in_time(columns.edges):
        pairs = len(edge.upstreams) * len(edge.downstreams)
        if edge.of_all_rows and pairs * _SHORTEST_COLUMN_URN > longest:
            left_out += pairs
            continue
        named = (one for one in edge.upstreams if one.dataset in urn_of)
        upstreams = sorted({urns.schema_field_urn(urn_of[one.dataset], one.field) for one in named})
        if not upstreams:
            continue
        text = f"-- {edge.transform}\n{sql}" if edge.transform and sql else sql or edge.transform
        characters = _FRAME_CHARACTERS + len(text) + sum(map(len, upstreams)) + 3 * len(upstreams)
        transform, priority = (
            transforms.setdefault(text, text),
            (not edge.is_direct) + edge.of_all_rows,
        )
        sources.append(
            _Source(upstreams, transform, edge.confidence, edge.downstreams, priority, characters)
        )
    return sources, left_out


def _first_that_fit(union: _Union, longest: int) -> _Union:
    """Return the lineages that fit, in their order: values first, then what decides on a column,
    then on all rows.
    """
    left_out, characters = union.left_out, 0
    kept: dict[int, _Group] = {}
    for group in sorted(union.groups, key=lambda group: group.source.priority):
        source, fitting = group.source, []
        for downstream in group.downstreams:
            longer = source.characters + len(downstream)
            if characters + longer <= longest:
                characters += longer
                fitting.append(downstream)
            else:
                left_out += len(source.upstreams)
        if fitting:
            kept[id(group)] = _Group(source, tuple(fitting))
    groups = [kept[id(group)] for group in union.groups if id(group) in kept]
    return _Union(groups, characters, left_out)

"""``fineGrainedLineages`` of a job, from the column lineage of its queries (conversion rules, section 4.1).

Tests: ``tests/conversion/test_columns.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.columns.facet import DatasetColumns
from airflow_provider_spark_datahub.conversion.datasets import DatasetNamer
from airflow_provider_spark_datahub.conversion.diagnostics import COLUMN_EDGES_LEFT_OUT, STATEMENTS_LEFT_OUT, TextLimit
from airflow_provider_spark_datahub.conversion.events import DatasetId
from airflow_provider_spark_datahub.conversion.interruption import in_time
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

# Length of the shortest upstream of a lineage as JSON.
_SHORTEST_COLUMN_URN = len('"urn:li:schemaField:(urn:li:dataset:(urn:li:dataPlatform:p,t,EI),c)",')


def fine_grained_lineages(
    lineages: Iterable[tuple[str, DatasetColumns]],
    namer: DatasetNamer,
    settings: LineageSettings,
    text_limit: TextLimit,
) -> list[dict[str, Any]]:
    """Return the column lineage of a job: the union over all queries (Deviation 2), each edge once.

    Each lineage has one downstream: if DataHub holds one with several, GMS refuses every later patch of the job's edges
    (``FineGrainedLineageTemplateHelper``). Beyond the limits, first the statements are left out, then the inputs that
    act on all rows, then those that decide on a column.

    :param lineages: URN of the output and its column lineage, per query.
    """
    longest = settings.max_string_length
    queries = [
        (output, columns, tuple((item, urn) for item in columns.inputs if (urn := namer.urn(item)) is not None))
        for output, columns in in_time(dict.fromkeys(lineages))
    ]
    statements = {columns.sql for _, columns, _ in queries if columns.sql}
    # Each column lineage of an output has the statement.
    of_outputs = {output: len(columns.sql) * len(columns.edges) for output, columns, _ in queries}
    fits = sum(of_outputs.values()) <= longest
    union = _union(queries, longest) if fits else None
    if union is None or (union.characters > longest and statements):
        text_limit.count(STATEMENTS_LEFT_OUT, len(statements))
        union = _union(queries, longest, with_statements=False)
    if union.left_out or union.characters > longest:
        union = _first_that_fit(union, longest)
        text_limit.count(COLUMN_EDGES_LEFT_OUT, union.left_out)
    return [lineage for group in in_time(union.groups) for lineage in group.lineages()]


# Length of the JSON around the URNs and the text of one lineage.
_FRAME_CHARACTERS = 130


class _Group(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Lineages that differ only in their downstreams.

    :param downstreams: URNs of the output's columns.
    :param priority: 0 if the inputs are values of the downstreams, 1 if they decide on one, 2 if they act on all rows.
    """

    upstreams: tuple[str, ...]
    transform: str
    confidence: float
    downstreams: Sequence[str]
    priority: int

    @property
    def frame_characters(self) -> int:
        """Approximate length of the JSON of one lineage without its downstream."""
        return _FRAME_CHARACTERS + len(self.transform) + sum(map(len, self.upstreams)) + 3 * len(self.upstreams)

    @property
    def characters(self) -> int:
        """Approximate length of the JSON of these lineages."""
        return self.frame_characters * len(self.downstreams) + sum(map(len, self.downstreams))

    def lineages(self) -> Iterator[dict[str, Any]]:
        """Yield the lineages."""
        upstreams = list(self.upstreams)
        for downstream in self.downstreams:
            yield {
                "upstreamType": "FIELD_SET",
                "upstreams": upstreams,
                "downstreamType": "FIELD_SET",
                "downstreams": [downstream],
                "transformOperation": self.transform,
                "confidenceScore": self.confidence,
            }


class _Union(NamedTuple):
    """Distinct lineages with their sums.

    :param left_out: pairs of columns that are not among them.
    """

    groups: list[_Group]
    characters: int
    left_out: int


# The names of a query's inputs: URNs by dataset.
_Names = tuple[tuple[DatasetId, str], ...]
# URN of the output, its column lineage, and the URNs of its inputs.
_Query = tuple[str, DatasetColumns, _Names]


def _union(queries: Sequence[_Query], longest: int, *, with_statements: bool = True) -> _Union:
    """Return the lineages of all queries, each once. Only lineages of one output can be equal."""
    of_outputs: dict[str, list[_Group]] = {}
    left_out = 0
    for output, columns, names in in_time(queries):
        groups, missing = _groups(output, columns, dict(names), columns.sql if with_statements else "", longest)
        of_outputs.setdefault(output, []).extend(groups)
        left_out += missing
    distinct = list(chain.from_iterable(map(_distinct, in_time(of_outputs.values()))))
    return _Union(distinct, sum([group.characters for group in distinct]), left_out)


def _distinct(groups: Sequence[_Group]) -> Iterator[_Group]:
    """Yield the lineages of one output, each once."""
    known: dict[tuple[tuple[str, ...], str], dict[str, None]] = {}
    for group in groups:
        new = dict.fromkeys(group.downstreams)
        before = known.setdefault((group.upstreams, group.transform), new)
        if before is not new:
            new = {downstream: None for downstream in new if downstream not in before}
            before.update(new)
        if len(new) == len(group.downstreams):
            yield group
        elif new:
            yield structs.replace(group, downstreams=tuple(new))


def _groups(
    output: str, columns: DatasetColumns, urn_of: Mapping[DatasetId, str], sql: str, longest: int
) -> tuple[list[_Group], int]:
    """Return the lineages of one output of a query, and how many pairs of columns are left out."""
    groups: list[_Group] = []
    left_out = columns.left_out
    transforms: dict[str, str] = {}
    field_urns: dict[str, str] = {}
    for edge in in_time(columns.edges):
        pairs = len(edge.upstreams) * len(edge.downstreams)
        if edge.of_all_rows and pairs * _SHORTEST_COLUMN_URN > longest:
            left_out += pairs
            continue
        named = (one for one in edge.upstreams if one.dataset in urn_of)
        upstreams = sorted({urns.schema_field_urn(urn_of[one.dataset], one.field) for one in named})
        if not upstreams:
            continue
        for column in edge.downstreams:
            if column not in field_urns:
                field_urns[column] = urns.schema_field_urn(output, column)
        text = f"-- {edge.transform}\n{sql}" if edge.transform and sql else sql or edge.transform
        # The statement may be long: equal texts are one object.
        transform = transforms.setdefault(text, text)
        downstreams = [field_urns[column] for column in edge.downstreams]
        priority = (not edge.is_direct) + edge.of_all_rows
        groups.append(_Group(tuple(upstreams), transform, edge.confidence, downstreams, priority))
    return groups, left_out


def _first_that_fit(union: _Union, longest: int) -> _Union:
    """Return the lineages that fit, in their order: values first, then what decides on a column, then on all rows."""
    left_out, characters = union.left_out, 0
    kept: dict[int, list[str]] = {}
    for group in sorted(union.groups, key=lambda group: group.priority):
        kept[id(group)], frame = [], group.frame_characters
        for downstream in group.downstreams:
            longer = frame + len(downstream)
            if characters + longer <= longest:
                characters += longer
                kept[id(group)].append(downstream)
            else:
                left_out += len(group.upstreams)
    groups = [structs.replace(group, downstreams=kept[id(group)]) for group in union.groups if kept[id(group)]]
    return _Union(groups, characters, left_out)

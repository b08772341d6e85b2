"""``fineGrainedLineages`` of a job, from the column lineage of its queries (conversion rules, section 4.1).

Tests: ``tests/conversion/test_columns.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

_encode = msgspec.json.Encoder().encode

# Length of the shortest upstream of a lineage as JSON.
_SHORTEST_COLUMN_URN = len('"urn:li:schemaField:(urn:li:dataset:(urn:li:dataPlatform:p,t,EI),c)",')


def fine_grained_lineages(
    lineages: Iterable[tuple[str, DatasetColumns]],
    namer: DatasetNamer,
    settings: LineageSettings,
    text_limit: TextLimit,
) -> FineGrainedLineages:
    """Return the column lineage of a job: the union over all queries (Deviation 2), each edge once.

    Each lineage has one downstream: if DataHub holds one with several, GMS refuses every later patch of the job's edges
    (``FineGrainedLineageTemplateHelper``). Beyond the limits, first the statements are left out, then the inputs that
    act on all rows.

    :param lineages: URN of the output and its column lineage, per query.
    """
    longest = settings.max_string_length
    queries = [
        (output, columns, tuple((item, urn) for item in columns.inputs if (urn := namer.urn(item)) is not None))
        for output, columns in in_time(dict.fromkeys(lineages))
    ]
    if not queries:
        return NO_LINEAGES
    statements = {columns.sql for _, columns, _ in queries if columns.sql}
    # Each column lineage of an output has the statement.
    of_outputs = {output: len(columns.sql) * len(columns.edges) for output, columns, _ in queries}
    fits = sum(of_outputs.values()) <= longest
    union = _union(queries, longest) if fits else None
    if union is None or (union.characters > longest and statements):
        text_limit.count(STATEMENTS_LEFT_OUT, len(statements))
        union = _union([(output, columns.without_sql(), names) for output, columns, names in in_time(queries)], longest)
    if union.left_out or union.characters > longest:
        union = _first_that_fit(union, longest)
        text_limit.count(COLUMN_EDGES_LEFT_OUT, union.left_out)
    return FineGrainedLineages(union.groups)


class _Source:
    """Source of columns: all parts of a lineage except its downstream. The outputs of a job often share it.

    :ivar characters: approximate length of the JSON without the downstream.
    """

    __slots__ = ("_frame", "characters", "confidence", "transform", "upstreams")

    def __init__(self, upstreams: tuple[str, ...], transform: str, confidence: float) -> None:
        self.upstreams, self.transform, self.confidence = upstreams, transform, confidence
        self.characters = _FRAME_CHARACTERS + len(transform) + sum(map(len, upstreams)) + 3 * len(upstreams)
        self._frame: tuple[bytes, bytes] | None = None

    @property
    def frame(self) -> tuple[bytes, bytes]:
        """The JSON of a lineage before and behind the text of its downstream."""
        if self._frame is None:
            upstreams, transform, confidence = map(_encode, (self.upstreams, self.transform, self.confidence))
            self._frame = (
                b'{"upstreamType":"FIELD_SET","upstreams":%b,"downstreamType":"FIELD_SET","downstreams":["' % upstreams,
                b'"],"transformOperation":%b,"confidenceScore":%b}' % (transform, confidence),
            )
        return self._frame


# Length of the JSON around the URNs and the text of one lineage.
_FRAME_CHARACTERS = 130


class _Group(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Lineages with one source: one for each downstream.

    :param downstreams: URNs of the output's columns.
    :param of_all_rows: whether the inputs act on all rows, and so on every column of the output.
    """

    source: _Source
    downstreams: Sequence[str]
    of_all_rows: bool

    @property
    def characters(self) -> int:
        """Approximate length of the JSON of these lineages."""
        return self.source.characters * len(self.downstreams) + sum(map(len, self.downstreams))

    def lineages(self) -> Iterator[dict[str, Any]]:
        """Yield the lineages."""
        for downstream in self.downstreams:
            yield {
                "upstreamType": "FIELD_SET",
                "upstreams": list(self.source.upstreams),
                "downstreamType": "FIELD_SET",
                "downstreams": [downstream],
                "transformOperation": self.source.transform,
                "confidenceScore": self.source.confidence,
            }

    def texts(self) -> tuple[bytes, bytes, bytes]:
        """Return the lineages as JSON in three parts, with commas between the lineages."""
        begin, end = self.source.frame
        quoted = _encode(self.downstreams)[2:-2]
        if len(self.downstreams) > 1:
            # The match cannot be inside a URN, where JSON escapes the quotes.
            quoted = quoted.replace(b'","', end + b"," + begin)
        return begin, quoted, end


class FineGrainedLineages(Sequence[dict[str, Any]]):
    """``fineGrainedLineages`` of a job, each with one downstream; objects are made only when somebody reads them."""

    __slots__ = ("_groups", "_length")

    def __init__(self, groups: Sequence[_Group]) -> None:
        self._groups = groups
        self._length = sum([len(group.downstreams) for group in groups])

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for group in self._groups:
            yield from group.lineages()

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FineGrainedLineages) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def json(self) -> msgspec.Raw:
        """The list as JSON in UTF-8.

        :raises UnicodeEncodeError: if a name has half of a surrogate pair.
        """
        texts = [text for group in self._groups for text in (b",", *group.texts())]
        return msgspec.Raw(b"".join((b"[", *texts[1:], b"]")))


NO_LINEAGES = FineGrainedLineages(())


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


def _union(queries: Sequence[_Query], longest: int) -> _Union:
    """Return the lineages of all queries, each once. Only lineages of one output can be equal."""
    of_outputs: dict[str, list[_Group]] = {}
    # Outputs of an application often have the same columns.
    sources: dict[tuple[DatasetColumns, _Names], list[_Source]] = {}
    left_out = 0
    for output, columns, names in in_time(queries):
        if (columns, names) not in sources:
            sources[columns, names] = _sources(columns, names)
        groups, missing = _groups(output, columns, sources[columns, names], longest)
        of_outputs.setdefault(output, []).extend(groups)
        left_out += missing
    distinct = list(chain.from_iterable(map(_distinct, in_time(of_outputs.values()))))
    return _Union(distinct, sum([group.characters for group in distinct]), left_out)


def _distinct(groups: Sequence[_Group]) -> Iterator[_Group]:
    """Yield the lineages of one output, each once."""
    known: dict[tuple[tuple[str, ...], str], dict[str, None]] = {}
    for group in groups:
        source, new = group.source, dict.fromkeys(group.downstreams)
        before = known.setdefault((source.upstreams, source.transform), new)
        if before is not new:
            new = {downstream: None for downstream in new if downstream not in before}
            before.update(new)
        if len(new) == len(group.downstreams):
            yield group
        elif new:
            yield structs.replace(group, downstreams=tuple(new))


def _groups(output: str, columns: DatasetColumns, sources: Sequence[_Source], longest: int) -> tuple[list[_Group], int]:
    """Return the lineages of one output of a query, and how many pairs of columns are left out."""
    groups: list[_Group] = []
    left_out = columns.left_out
    urn_of: dict[str, str] = {}
    for edge, source in zip(in_time(columns.edges), sources, strict=True):
        pairs = len(edge.upstreams) * len(edge.downstreams)
        is_large = edge.of_all_rows and pairs * _SHORTEST_COLUMN_URN > longest
        if is_large or not source.upstreams:
            left_out += pairs if is_large else 0
            continue
        for column in edge.downstreams:
            if column not in urn_of:
                urn_of[column] = urns.schema_field_urn(output, column)
        groups.append(_Group(source, [urn_of[column] for column in edge.downstreams], edge.of_all_rows))
    return groups, left_out


def _sources(columns: DatasetColumns, names: _Names) -> list[_Source]:
    """Return the source of each edge."""
    urn_of, sql = dict(names), columns.sql
    transforms: dict[str, str] = {}
    sources = []
    for edge in in_time(columns.edges):
        upstreams = sorted(
            {urns.schema_field_urn(urn_of[column.dataset], column.field) for column in edge.upstreams
             if column.dataset in urn_of}
        )  # fmt: skip
        text = f"-- {edge.transform}\n{sql}" if edge.transform and sql else sql or edge.transform
        # The statement may be long: equal texts are one object.
        transform = transforms.setdefault(text, text)
        sources.append(_Source(tuple(upstreams), transform, edge.confidence))
    return sources


def _first_that_fit(union: _Union, longest: int) -> _Union:
    """Return the lineages that fit, in their order: lineages of single columns first, then those of all rows."""
    left_out, characters = union.left_out, 0
    kept: dict[int, list[str]] = {}
    for group in sorted(union.groups, key=lambda group: group.of_all_rows):
        source, kept[id(group)] = group.source, []
        for downstream in group.downstreams:
            longer = source.characters + len(downstream)
            if characters + longer <= longest:
                characters += longer
                kept[id(group)].append(downstream)
            else:
                left_out += len(source.upstreams)
    groups = [structs.replace(group, downstreams=kept[id(group)]) for group in union.groups if kept[id(group)]]
    return _Union(groups, characters, left_out)

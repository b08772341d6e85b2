"""Explanations of single datasets and columns: the chain of edges that leads to them, with the
evidence of each.

Tests: ``tests/cli/test_explain.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from textwrap import wrap
from typing import Any

from airflow_provider_spark_datahub.conversion import Diagnostics
from airflow_provider_spark_datahub.foundation.memory import grouped
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.visualization import model
from airflow_provider_spark_datahub.visualization.names import (
    Column,
    JobParts,
    ShortNames,
    dataset_parts,
    harmless,
)

_MOST_STEPS = 30
"""Most datasets in one chain."""
_MOST_LINES, _WIDTH, _LEAST_WIDTH = 4, 80, 40
_RULES = "docs/conversion.md"


class UnknownNameError(ValueError):
    """Name that no dataset or column has, or that several have. The message names the nearest ones."""


# The fields of the next four are those of the JSON document.


@dataclass(frozen=True)
class _Reason:
    """Reason why an edge does not exist.

    :param rule: section of the conversion rules, or number of a deviation.
    :param query: run id of the query; empty if the reason is about no single query.
    """

    reason: str
    rule: str
    query: str = ""
    statement: str = ""


@dataclass(frozen=True)
class _Edge:
    """An edge of a job.

    :param job: its URN.
    :param evidence: ``None`` if the proposals have none.
    """

    job: str
    evidence: model.EdgeEvidence | None


@dataclass(frozen=True)
class _Step(_Edge):
    """An edge of a job that produced a dataset or a column, with the sources of its data.

    :param transformation: transformation of a column, in a few words.
    """

    sources: tuple[_Link, ...]
    transformation: str = ""


@dataclass(frozen=True)
class _Link:
    """A dataset or a column in a chain, with the edges that lead to it.

    :param repeated: its edges are elsewhere in the chain.
    """

    dataset: str
    column: str
    steps: tuple[_Step, ...] = ()
    repeated: bool = False

    @property
    def name(self) -> str:
        return _short_name(self.dataset) + (f".{harmless(self.column)}" if self.column else "")


@dataclass(frozen=True)
class Explanation:
    """Explanation of a dataset or a column.

    :param readers: jobs that read the dataset, with the evidence.
    :param reasons: why edges do not exist.
    """

    chain: _Link
    readers: tuple[_Edge, ...] = ()
    reasons: tuple[_Reason, ...] = ()

    @classmethod
    def of(cls, graph: model.Graph, name: str, diagnostics: Diagnostics | None) -> Explanation:
        """Explain the dataset or column of this name.

        :param name: a URN, a dataset's name or an end of it, each also with ``.COLUMN``.
        :param diagnostics: of the conversion of events; ``None`` if the graph is of proposals.
        :raises UnknownNameError: if the name is unknown or not unique.
        """
        rejected = diagnostics.rejected_edges if diagnostics else ()
        target = _Names(graph, (edge.urn for edge in rejected)).find(name)
        chain = _Chains(graph).link(target)
        steps = graph.steps()
        readers = dict.fromkeys(
            _Edge(step.urn, step.inputs[target.dataset])
            for step in steps
            if target.dataset in step.inputs and not target.path
        )
        written = any(target.dataset in step.outputs for step in steps)
        if target.path and not written:
            source = _Reason(
                f"it is a column of a source: no job in these files writes {_short_name(target.dataset)}",
                "section 4.1",
            )
            return cls(chain, reasons=(source,))
        return cls(
            chain, tuple(readers), tuple(dict.fromkeys(_reasons(chain, diagnostics, bool(readers))))
        )

    def lines(self) -> Iterator[str]:
        """Yield lines of text, of at most 80 characters unless a name is longer."""
        yield from _lines_of_link(self.chain, "", self.chain.name)
        for reader in self.readers:
            yield from _lines_of_evidence("read", reader, "  ")
        if self.reasons:
            yield (
                "why there is no edge, or not more of one:"
                if self.chain.steps
                else "why there is no edge:"
            )
        queries: dict[tuple[str, str], list[model.EdgeQuery]] = {}
        for reason in self.reasons:
            of_reason = queries.setdefault((reason.reason, reason.rule), [])
            of_reason += [model.EdgeQuery(reason.query, reason.statement)] if reason.query else []
        for (text, rule), of_reason in queries.items():
            sentence = f"{harmless(text)} ({_RULES}, {rule})"
            yield from wrap(sentence, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False,
                            break_long_words=False)  # fmt: skip
            yield from _lines_of_queries(of_reason, "    ")

    def document(self) -> dict[str, Any]:
        """Return the explanation as JSON for other programs."""
        document = asdict(self, dict_factory=model.json_object)
        return {**document.pop("chain"), **document}


# -- names


def _short_name(urn: str) -> str:
    """Return an entity's name for people: ``hive sales.orders``, ``spark daily``; any other text
    stays as it is.
    """
    if dataset_parts(urn):
        return ShortNames().of(urn).text
    orchestrator, flow, job = JobParts.of(urn)
    if orchestrator is None:
        return urn
    return f"{orchestrator} {flow if job in (None, flow) else f'{flow}.{job}'}"


class _Names:
    def __init__(self, graph: model.Graph, others: Iterable[str]) -> None:
        self._columns: dict[str, dict[str, None]] = {
            urn: dict.fromkeys(types) for urn, types in graph.schemas.items()
        }
        for job in graph.jobs:
            for lineage in job.columns:
                for column in (lineage.output, *lineage.inputs):
                    self._columns.setdefault(column.dataset, {})[column.path] = None
            for urn in (*job.inputs, *job.outputs):
                self._columns.setdefault(urn, {})
        for urn in others:
            self._columns.setdefault(urn, {})
        self._datasets: dict[str, dict[str, None]] = {}
        self._paths: list[tuple[str, str]] = []
        names = ShortNames(graph.instances)
        for urn in self._columns:
            short = names.of(urn)
            if "/" in short.name:
                self._paths.append((urn, short.name))
            for spelling in (
                urn,
                *short.tails(),
                short.name.lstrip("/"),
                short.name.rpartition(".")[2],
            ):
                self._datasets.setdefault(spelling, {})[urn] = None
                self._datasets.setdefault(spelling.lower(), {})[urn] = None

    def find(self, name: str) -> Column:
        """Return the dataset or column.

        :raises UnknownNameError: if the name is unknown or not unique.
        """
        for end in (
            len(name),
            *(index for index in reversed(range(len(name))) if name[index] == "."),
        ):
            urns = self._datasets.get(name[:end]) or self._datasets.get(name[:end].lower())
            if urns is None:
                continue
            if len(urns) > 1:
                raise UnknownNameError(
                    f"{name[:end]!r} is the name of several datasets: {', '.join(urns)}"
                )
            (urn,) = urns
            return Column(urn, self._column(urn, name[end + 1 :]))
        folder = max(
            (urn for urn, path in self._paths if f"{path}/" in name), key=len, default=None
        )
        if folder is not None:
            whole = _short_name(folder)
            raise UnknownNameError(
                f"{name!r} is not a dataset: it is a part of {whole} ({_RULES}, section 7.3)"
            )
        nearest = self._nearest(
            name, {spelling: [*urns] for spelling, urns in self._datasets.items()}
        )
        raise UnknownNameError(f"no dataset is named {name!r}{nearest}")

    def _column(self, urn: str, path: str) -> str:
        columns = {column.lower(): column for column in self._columns[urn] if column}
        if path and path.lower() not in columns:
            nearest = self._nearest(path, {column: [column] for column in columns.values()})
            raise UnknownNameError(f"no column of {_short_name(urn)} is named {path!r}{nearest}")
        return columns[path.lower()] if path else ""

    @staticmethod
    def _nearest(name: str, meanings: Mapping[str, Sequence[str]]) -> str:
        """Return a question with the nearest names, or else the first ones; a thing with several
        names has one.
        """
        names = [spelling for spelling in meanings if not spelling.startswith("urn:")]
        near = get_close_matches(name, names, n=len(names) or 1, cutoff=0.5)
        first: dict[tuple[str, ...], str] = {}
        for spelling in near or sorted(names):
            first.setdefault(tuple(meanings[spelling]), spelling)
        shown = [*first.values()][: 3 if near else 5]
        return f"; did you mean one of these: {', '.join(shown)}?" if shown else ""


# -- chains


class _Chains:
    """Chains of a graph. Each dataset or column is explained only once, so that every chain ends."""

    def __init__(self, graph: model.Graph) -> None:
        self._seen: set[Column] = set()
        self._depth = 0
        self._writers: dict[str, list[model.GraphJob]] = {}
        self._columns: dict[Column, list[tuple[model.GraphJob, model.ColumnLineage]]] = {}
        for job in graph.steps():
            for urn in job.outputs:
                self._writers.setdefault(urn, []).append(job)
            for lineage in job.columns:
                self._columns.setdefault(lineage.output, []).append((job, lineage))

    def link(self, column: Column) -> _Link:
        if column in self._seen or self._depth >= _MOST_STEPS:
            return _Link(*column, repeated=True)
        self._seen.add(column)
        self._depth += 1
        steps = tuple(
            self._column_steps(column) if column.path else self._dataset_steps(column.dataset)
        )
        self._depth -= 1
        return _Link(*column, steps)

    def _dataset_steps(self, urn: str) -> Iterator[_Step]:
        for job in self._writers.get(urn, ()):
            sources = tuple(self.link(Column(source, "")) for source in job.inputs)
            yield _Step(job.urn, job.outputs[urn], sources)

    def _column_steps(self, column: Column) -> Iterator[_Step]:
        for job, lineage in self._columns.get(column, ()):
            evidence = _of_column(job.outputs.get(column.dataset), lineage)
            sources = tuple(map(self.link, lineage.inputs))
            yield _Step(job.urn, evidence, sources, ", ".join(lineage.labels()))


# Transformations of columns that OpenLineage does not report (conversion rules, section 4.2).
_SOURCE_OF_LABEL = {
    "parsed sql": "STATEMENT",
    "parsed plan": "SPARK_PLAN",
    "indirect parsed plan": "SPARK_PLAN",
}


def _of_column(
    evidence: model.EdgeEvidence | None, lineage: model.ColumnLineage
) -> model.EdgeEvidence | None:
    """Return the evidence of an edge, reduced to the queries whose statement wrote the column."""
    statement = lineage.query()
    sources = [_SOURCE_OF_LABEL[label] for label in lineage.labels() if label in _SOURCE_OF_LABEL]
    source = (
        sources[0]
        if sources
        else "EVENT"
        if evidence is None
        else evidence.source.partition(", ")[0]
    )
    if evidence is None:
        of_statement = (model.EdgeQuery("", statement),) if statement else ()
        return model.EdgeEvidence(source, of_statement) if statement or sources else None
    queries = tuple(
        query for query in evidence.queries if not statement or query.statement == statement
    )
    return model.EdgeEvidence(
        source, queries or evidence.queries, 0 if queries else evidence.more_queries
    )


# -- reasons


def _reasons(chain: _Link, diagnostics: Diagnostics | None, is_read: bool) -> Iterator[_Reason]:
    if diagnostics is None:
        if not chain.steps and not is_read:
            yield _Reason(
                "no proposal has such an edge; only events show why an edge is missing",
                "section 7.5",
            )
        return
    for edge in diagnostics.rejected_edges:
        if edge.urn == chain.dataset:
            yield _Reason(
                f"not an {edge.kind}: {edge.reason}", edge.rule, edge.query, edge.statement
            )
    is_complete = chain.steps and (chain.column or any(step.sources for step in chain.steps))
    for gap in diagnostics.gaps:
        if chain.dataset in gap and not is_complete:
            yield _Reason(gap, "section 7.5")
    if not chain.column or chain.steps:
        return
    for gap in diagnostics.column_gaps:
        yield _Reason(gap, "section 4.2")
    for kind, count in diagnostics.truncations.items():
        yield _Reason(f"{kind}: {count}", "section Limits")
    yield _Reason("no event names a column that it comes from: a constant, or a query that OpenLineage cannot read",
                 "section 4.1")  # fmt: skip


# -- text and JSON


def _lines_of_link(link: _Link, indent: str, title: str) -> Iterator[str]:
    yield f"{indent}{title}{' (see above)' if link.repeated else ''}"
    inner = f"{indent}  "
    if not link.steps and not link.repeated:
        yield f"{inner}{'no edge leads to it' if not indent else 'no job in these files writes it'}"
    for step in link.steps:
        yield from _lines_of_evidence(
            "made" if link.column else "written", step, inner, step.transformation
        )
        # Of a condition, a key or an order, no value is in the column.
        verb = "depends on" if step.transformation.startswith("indirect ") else "from"
        for source in step.sources:
            yield from _lines_of_link(source, f"{inner}  ", f"{verb} {source.name}")


def _lines_of_evidence(verb: str, edge: _Edge, indent: str, how: str = "") -> Iterator[str]:
    yield f"{indent}{verb} by {harmless(_short_name(edge.job))}{f' ({harmless(how)})' if how else ''}"
    if edge.evidence is None:
        yield f"{indent}  these proposals do not name the query (setting capture_evidence)"
        return
    yield f"{indent}  source: {harmless(edge.evidence.words)}"
    yield from _lines_of_queries(edge.evidence.queries, f"{indent}  ")
    if edge.evidence.more_queries:
        yield f"{indent}  and {counted(edge.evidence.more_queries, 'more query')}"


def _lines_of_queries(queries: Sequence[model.EdgeQuery], indent: str) -> Iterator[str]:
    by_statement = grouped((query.statement, query.run) for query in queries)
    for statement, run_ids in by_statement.items():
        yield from (f"{indent}query {harmless(run_id)}" for run_id in run_ids if run_id)
        width = max(_WIDTH, len(indent) + _LEAST_WIDTH)
        lines = wrap(harmless(" ".join(statement.split())), width - len(indent) - 2, max_lines=_MOST_LINES,
                     placeholder=" …", break_on_hyphens=False)  # fmt: skip
        yield from (f"{indent}  {line}" for line in lines)

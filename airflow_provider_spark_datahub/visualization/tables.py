"""The tree of runs as it is shown: a run, its tries, and below each try the runs that started while it ran.

The runs as rows of a tree: DAG runs, their tasks with every try, and the Spark applications of these.

The table of column lineage: each output column, the columns that it comes from, and how.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.visualization.drawing import DOWN, LEFT, RIGHT, UP, Glyphs, Piece, cells
from airflow_provider_spark_datahub.visualization.model import (
    Attempt,
    Column,
    ColumnLineage,
    DatasetNames,
    Graph,
    JobLineage,
    RunKind,
    RunNode,
    flow_parts,
    harmless,
    job_parts,
    last_part,
    orchestrator_of,
)

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Branch:
    """Something that hangs in the tree: a run, or a try of one (with the runs that belong to it)."""

    run: RunNode
    attempt: Attempt | None = None
    below: tuple[RunNode, ...] = ()


def inner(branch: Branch) -> list[Branch]:
    """The tries of a run, each with the runs that started while it ran, then the runs that fit to none."""
    if branch.attempt is not None:
        return [Branch(run) for run in branch.below]
    attempts = branch.run.attempts()
    if not numbered(attempts):
        return [Branch(run) for run in branch.run.children]
    left = list(branch.run.children)
    tries = []
    for attempt in attempts:
        during = tuple(run for run in left if run.kind is RunKind.APPLICATION_RUN and _during(run, attempt))
        left = [run for run in left if run not in during]
        tries.append(Branch(branch.run, attempt, during))
    return [*tries, *(Branch(run) for run in left)]


def numbered(attempts: Sequence[Attempt]) -> bool:
    """Whether the run's events tell of tries."""
    return any(attempt.number is not None for attempt in attempts)


def _during(run: RunNode, attempt: Attempt) -> bool:
    if run.started is None or attempt.started is None:
        return False
    return attempt.started <= run.started and (attempt.ended is None or run.started <= attempt.ended)


def title_of(run: RunNode, encoding: str = "utf-8") -> tuple[str, str, str]:
    """Kind, name and, where that leaves it open, which run of it."""
    job = job_parts(run.template) if run.template else None
    flow = flow_parts(job[0] if job else run.template or "")
    subject = job[1] if job else flow[1] if flow else None
    kind = str(run.kind)
    if run.kind is RunKind.APPLICATION_RUN:
        kind = str(orchestrator_of(run.template or "")).capitalize()
    if subject is None:
        return kind, harmless(run.name, encoding), ""
    if run.kind is RunKind.TASK_RUN:
        index = run.properties.get("map_index", "-1")
        return kind, harmless(subject if index == "-1" else f"{subject}[{index}]", encoding), ""
    note = run.properties.get("run_id") or run.name.removeprefix(f"{subject}_")
    return harmless(kind, encoding), harmless(subject, encoding), harmless(note, encoding)


_STYLES = {
    "SUCCESS": "green",
    "FAILURE": "bold red",
    "UP_FOR_RETRY": "yellow",
    "SKIPPED": "magenta",
    "RUNNING": "cyan",
}
_MINUTE, _ROUNDED_UP = 60_000, 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GAP = 2
_LEAST_LABEL = 24
_MOST_UPSTREAMS = 6  # a mapped task has as many upstream runs as its upstream task has map indexes
_LONGEST_STATE = 12
_WITH_DATE, _TIME_ONLY = "%Y-%m-%d %H:%M:%S", "%H:%M:%S"


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the tree; a run's own line has an attempt only where its events name no try.

    :param guide: what stands before the label; ``below`` what stands before the lines that the label goes on in.
    """

    guide: str
    below: str
    label: tuple[Piece, ...]
    attempt: Attempt | None = None


def run_rows(graph: Graph, glyphs: Glyphs, width: int, encoding: str = "utf-8") -> list[list[Piece]]:
    """The tree of all runs, as rows that fit the width.

    A try shows its result, its duration and when it started (UTC; where there is little room, only the time of day).
    """
    rows = _Tree(graph, glyphs, encoding).rows()
    return _Columns(rows, width, encoding).laid_out()


class _Tree:
    def __init__(self, graph: Graph, glyphs: Glyphs, encoding: str) -> None:
        self.glyphs = glyphs
        self.encoding = encoding
        self.roots = graph.roots
        self.titles = {run.urn: title_of(run, encoding) for run in graph.runs()}

    def rows(self) -> list[_Row]:
        rows: list[_Row] = []
        waiting = [(Branch(root), "", "") for root in reversed(self.roots)]
        while waiting:
            branch, guide, below = waiting.pop()
            children = inner(branch)
            trunk = below + (self.glyphs.lines[UP | DOWN] if children else " ") + "  "
            rows.append(self._row(branch, guide, trunk))
            for position, child in reversed(list(enumerate(children))):
                final = position == len(children) - 1
                line = self.glyphs.lines
                turn = (line[UP | RIGHT] if final else line[UP | DOWN | RIGHT]) + line[LEFT | RIGHT] + " "
                waiting.append((child, below + turn, below + (" " if final else line[UP | DOWN]) + "  "))
        return rows

    def _row(self, branch: Branch, guide: str, below: str) -> _Row:
        if branch.attempt is not None:
            number = branch.attempt.number
            return _Row(guide, below, ((f"try {number}" if number is not None else "try ?", ""),), branch.attempt)
        attempts = branch.run.attempts()
        alone = attempts[-1] if attempts and not numbered(attempts) else None
        return _Row(guide, below, tuple(self._label(branch.run)), alone)

    def _label(self, run: RunNode) -> Iterable[Piece]:
        kind, name, note = self.titles[run.urn]
        yield f"{kind} ", "dim"
        yield name, "bold" if run.kind is not RunKind.APPLICATION_RUN else "bold green"
        if note:
            yield f"  {note}", "dim"
        if run.inputs or run.outputs:
            yield f"  {len(run.inputs)} in, {len(run.outputs)} out", "dim"
        if run.upstreams:
            shown, folded = run.upstreams[:_MOST_UPSTREAMS], len(run.upstreams[_MOST_UPSTREAMS:])
            names = [self._upstream(urn) for urn in shown]
            more = [f"{self.glyphs.ellipsis} {folded} more"] if folded else []
            yield f"  {self.glyphs.back_arrow} {', '.join([*names, *more])}", "cyan"

    def _upstream(self, urn: str) -> str:
        if urn in self.titles:
            return self.titles[urn][1]
        return f"{harmless(last_part(urn), self.encoding)[:8]}{self.glyphs.ellipsis}"


class _Columns:
    """The rows with label, result, duration and start below each other."""

    def __init__(self, rows: Sequence[_Row], width: int, encoding: str) -> None:
        self.rows = rows
        self.encoding = encoding
        attempts = [row.attempt for row in rows if row.attempt]
        self.state = max((cells(self._state(attempt)) for attempt in attempts), default=0)
        self.duration = max((len(span(attempt.duration)) for attempt in attempts), default=0)
        fixed = self.state + self.duration + 3 * _GAP
        dated = width - fixed - len("YYYY-MM-DD HH:MM:SS")
        self.format = _WITH_DATE if dated >= _LEAST_LABEL else _TIME_ONLY
        room = dated if self.format == _WITH_DATE else width - fixed - len("HH:MM:SS")
        with_attempt = [cells(row.guide) + sum(cells(text) for text, _ in row.label) for row in rows if row.attempt]
        self.room = max(min(room, max(with_attempt, default=0)), 8)
        self.width = width

    def laid_out(self) -> list[list[Piece]]:
        laid_out: list[list[Piece]] = []
        for row in self.rows:
            room = self.room if row.attempt else self.width
            first, *rest = _wrapped(row, room, self.width)
            laid_out.append([*first, *self._facts(row.attempt, room - sum(cells(text) for text, _ in first))])
            laid_out.extend(rest)
        return laid_out

    def _state(self, attempt: Attempt) -> str:
        # DataHub knows no result longer than UP_FOR_RETRY; a foreign one shall not push the page apart.
        return harmless(attempt.state, self.encoding)[:_LONGEST_STATE]

    def _facts(self, attempt: Attempt | None, pad: int) -> list[Piece]:
        if attempt is None:
            return []
        gap = " " * _GAP
        state = self._state(attempt)
        return [
            (" " * pad + gap, ""),
            (state + " " * (self.state - cells(state)), _STYLES.get(attempt.state, "")),
            (gap + span(attempt.duration).rjust(self.duration), ""),
            (gap + moment(attempt.started, self.format), "dim"),
        ]


def _wrapped(row: _Row, room: int, width: int) -> list[list[Piece]]:
    """The label of a row, its first line in the room and the others in the width, each with its part of the tree."""
    guide = row.guide[-(width // 2) :]
    below = row.below[: len(row.guide) + 2].ljust(len(row.guide) + 2)[-(width // 2) :]
    others = width - cells(below)
    lines: list[list[Piece]] = [[(guide, "dim")]]
    left = room - cells(guide)
    for text, style in row.label:
        fits = cells(text) <= left or len(lines[-1]) == 1
        if not fits:
            lines.append([(below, "dim")])
            left = others
        for number, part in enumerate(_cut(text if fits else text.lstrip(), left, others)):
            if number:
                lines.append([(below, "dim")])
                left = others
            lines[-1].append((part, style))
            left -= cells(part)
    return lines


def _cut(text: str, first: int, others: int) -> list[str]:
    """The text in parts of at most these widths; in one where it fits."""
    parts, room = [""], first
    if cells(text) <= first:
        return [text]
    for character in text:
        if cells(parts[-1] + character) > room and parts[-1]:
            parts.append("")
            room = others
        parts[-1] += character
    return parts


def span(milliseconds: int | None) -> str:
    """A duration for the eye: ``12.3 s``, ``4 min 12 s``, ``1 h 04 min``."""
    if milliseconds is None:
        return ""
    if milliseconds < _MINUTE - _ROUNDED_UP:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def moment(milliseconds: int | None, form: str = _WITH_DATE) -> str:
    """A time in UTC; empty where it is unknown or beyond what a calendar holds."""
    if milliseconds is None:
        return ""
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime(form)
    except OverflowError:
        return ""


_COMMENT = "-- "
_OPENLINEAGE = re.compile(r"(IN)?DIRECT:[A-Z_]+(,(IN)?DIRECT:[A-Z_]+)*")
_COLUMN_GAP = 2


def column_tables(
    jobs: Sequence[JobLineage], names: DatasetNames, glyphs: Glyphs, width: int
) -> list[tuple[str, Table]]:
    """The column lineage of the jobs: the name of each output dataset, and a table of its columns.

    The tables have the same columns, so that they read as one; the first, without name, holds the headings.
    """
    lineages = [lineage for job in jobs for lineage in job.columns]
    tails = names.tails(column.dataset for column in _mentioned(lineages))
    rows = {
        dataset: [_cells(lineage, tails, names) for lineage in _merged(lineages, dataset)]
        for dataset in dict.fromkeys(lineage.output.dataset for lineage in lineages)
    }
    heading = ("output column", f"{glyphs.back_arrow} input columns", "transformation")
    widths = _widths([heading, *(row for several in rows.values() for row in several)], width)
    tables = [("", _table([heading], widths, ("dim", "dim", "dim")))]
    for dataset, several in rows.items():
        tables.append((names.of(dataset).text, _table(several, widths, ("bold", "", "dim"))))
    return tables


def _table(rows: Iterable[Sequence[str]], widths: Sequence[int], styles: Sequence[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _COLUMN_GAP, 0, 0))
    for width, style in zip(widths, styles, strict=True):
        table.add_column(width=width, overflow="fold", style=style)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """As wide as the texts are, or in proportion to that where the page is too narrow."""
    wanted = [max(cells(line) for row in rows for line in row[column].split("\n") or [""]) for column in range(3)]
    room = width - 3 * _COLUMN_GAP
    while sum(wanted) > room:
        wanted[wanted.index(max(wanted))] -= 1
    return wanted


def _cells(row: _ColumnRow, tails: Mapping[str, str], names: DatasetNames) -> tuple[str, str, str]:
    inputs = [_column(column, tails[column.dataset], names) for column in sorted(row.inputs)]
    return f"  {row.output(names)}", "\n".join(inputs), harmless(row.transformation, names.encoding)


def wording(transformation: str | None) -> str:
    """A transformation in a few words, without the query that follows it.

    ``-- DIRECT:IDENTITY,INDIRECT:FILTER`` with a query below it gives ``identity, indirect filter``; a query alone
    gives its first line.
    """
    return ", ".join(ways(transformation))


def ways(transformation: str | None) -> list[str]:
    """The single ways that :func:`wording` joins."""
    first, _ = _halves(transformation)
    if not _OPENLINEAGE.fullmatch(first):
        return [first]
    return [kind.removeprefix("DIRECT:").replace(":", " ").replace("_", " ").lower() for kind in first.split(",")]


def statement(transformation: str | None) -> str:
    """The query that a transformation tells: what stands below its ways, else all its lines, if they are several."""
    first, rest = _halves(transformation)
    return rest if _OPENLINEAGE.fullmatch(first) else f"{first}\n{rest}" if rest else ""


def _halves(transformation: str | None) -> tuple[str, str]:
    first, *rest = (transformation or "").strip().split("\n", 1)
    return first.strip().removeprefix(_COMMENT).strip(), "".join(rest).strip()


def is_indirect(way: str) -> bool:
    """Whether a column only decides which rows there are, or in which order, as a filter does."""
    return way.startswith("indirect ")


def _mentioned(lineages: Iterable[ColumnLineage]) -> Iterable[Column]:
    for lineage in lineages:
        yield lineage.output
        yield from lineage.inputs


@dataclass(slots=True)
class _ColumnRow:
    """Output columns of one dataset that come from the same columns in the same way."""

    outputs: list[str]
    inputs: tuple[Column, ...]
    transformation: str
    of: int

    def output(self, names: DatasetNames) -> str:
        """The output column, or how many of the dataset's columns there are."""
        if len(self.outputs) == 1:
            return harmless(self.outputs[0], names.encoding) or "*"
        return "(every column)" if len(self.outputs) == self.of else f"({len(self.outputs)} columns)"


def _merged(lineages: Iterable[ColumnLineage], dataset: str) -> list[_ColumnRow]:
    """The rows of a dataset; what differs in nothing that is shown becomes one.

    A filter or a join key acts on every column: that is one row, below those of the columns themselves.
    """
    inputs: dict[tuple[str, str], dict[Column, None]] = {}
    for lineage in lineages:
        if lineage.output.dataset == dataset:
            row = inputs.setdefault((lineage.output.path, wording(lineage.transformation)), {})
            row.update(dict.fromkeys(lineage.inputs))
    columns = {path for path, _ in inputs}
    rows: dict[tuple[tuple[Column, ...], str], _ColumnRow] = {}
    for (path, text), upstreams in inputs.items():
        key = tuple(upstreams), text
        rows.setdefault(key, _ColumnRow([], *key, len(columns))).outputs.append(path)
    return sorted(rows.values(), key=lambda row: len(row.outputs) > 1)


def _column(column: Column, tail: str, names: DatasetNames) -> str:
    return f"{tail}.{harmless(column.path, names.encoding) if column.path else '*'}"

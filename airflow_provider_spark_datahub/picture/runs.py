"""The runs as rows of a tree: DAG runs, their tasks with every try, and the Spark applications of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_provider_spark_datahub.picture.canvas import DOWN, LEFT, RIGHT, UP, Glyphs, Piece, cells
from airflow_provider_spark_datahub.picture.model import Attempt, Graph, RunKind, RunNode
from airflow_provider_spark_datahub.picture.names import harmless
from airflow_provider_spark_datahub.picture.tree import Branch, inner, numbered, title_of
from airflow_provider_spark_datahub.picture.urns import last_part

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

"""The terminal view: runs as a tree, lineage as flows, column lineage as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

from rich.console import Console, OverflowMethod
from rich.table import Table
from rich.text import Text

from airflow_provider_spark_datahub.visualization import model
from airflow_provider_spark_datahub.visualization.flow import ASCII, UNICODE, Piece, cell_width, draw_flows
from airflow_provider_spark_datahub.visualization.names import (
    Column,
    ShortNames,
    format_duration,
    format_time,
    harmless,
    last_part,
)

_SHOWN_PROBLEMS = 5
"""Most skipped proposals that are listed. Only the number of the others is shown."""

_LEAST_WIDTH = 50
_STYLES = {"SUCCESS": "green", "FAILURE": "bold red", "UP_FOR_RETRY": "yellow", "SKIPPED": "magenta", "RUNNING": "cyan"}
_GAP = 2
_LEAST_LABEL = 24
_LONGEST_STATE = 12


def render_terminal(graph: model.Graph, console: Console, *, columns: bool = True, zone: tzinfo = UTC) -> None:
    """Print the runs, the lineage of the jobs, and their column lineage.

    The output is plain ASCII unless the console is a terminal with UTF-8. Control characters in names are made visible,
    and markup in names has no effect.

    :param columns: whether to print the table of columns.
    :param zone: the time zone of all times.
    """
    page = _Page(console, max(console.width, _LEAST_WIDTH), graph)
    jobs = [step for job in graph.distinct_jobs() for step in job.steps() if step.inputs or step.outputs]
    if not graph.roots and not jobs:
        page.line([("Nothing to show: ", "bold"), (graph.why_nothing(), "")])
        page.notes()
        return
    if graph.roots:
        _Runs(page, zone).show()
    if jobs:
        page.lineage(jobs)
    if columns and any(job.columns for job in jobs):
        page.columns(jobs)
    page.notes()


class _Page:
    """The console, with the names and glyphs that all sections share."""

    def __init__(self, console: Console, width: int, graph: model.Graph) -> None:
        self.console = console
        self.width = width
        self.graph = graph
        self.encoding = console.encoding
        fancy = console.is_terminal and self.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        self.glyphs = UNICODE if fancy else ASCII
        self.names = ShortNames(graph.instances, self.encoding)

    def line(self, pieces: Iterable[Piece | Text], *, wrap: bool = True) -> None:
        """Print a line; without wrapping it is cut at the right edge."""
        text = Text.assemble(*pieces)
        text.rstrip()
        overflow: OverflowMethod = "fold" if wrap else "crop"
        self.console.print(text, width=self.width, no_wrap=not wrap, overflow=overflow, highlight=False)

    def heading(self, title: str, note: str = "") -> None:
        self.line([(title, "bold underline"), (f"  {note}" if note else "", "dim")])

    def lineage(self, jobs: Sequence[model.GraphJob]) -> None:
        """Print the flows of the jobs, and the full forms of shortened names."""
        named = [replace(job, name=harmless(job.name, self.encoding)) for job in jobs]
        marks = f"{self.glyphs.goes} goes on below, {self.glyphs.came} comes from above"
        drawings = draw_flows(named, self.width, self.glyphs, self.names.of)
        self.line([])
        self.heading("Lineage", marks if any(drawing.broken for drawing in drawings) else "")
        for number, drawing in enumerate(drawings):
            if number:
                self.line([])
            for row in drawing.rows:
                self.line(row, wrap=False)
        shortened = {full: short for drawing in drawings for full, short in drawing.shortened.items()}
        if shortened:
            self.line([])
        for full, short in shortened.items():
            self.line([(short, "dim"), (" = ", "dim"), (full, "")])

    def columns(self, jobs: Sequence[model.GraphJob]) -> None:
        """Print a table of columns for each output dataset, all with the same widths, so that they read as one."""
        self.line([])
        self.heading("Columns")
        lineages = [lineage for job in jobs for lineage in job.columns]
        tails = self.names.tails(column.dataset for lineage in lineages for column in (lineage.output, *lineage.inputs))
        rows = {
            dataset: _column_rows(lineages, dataset, tails, self.encoding)
            for dataset in dict.fromkeys(lineage.output.dataset for lineage in lineages)
        }
        heading = ("output column", f"{self.glyphs.back_arrow} input columns", "transformation")
        widths = _widths([heading, *(row for dataset_rows in rows.values() for row in dataset_rows)], self.width)
        self._table([heading], widths, ("dim", "dim", "dim"))
        for dataset, dataset_rows in rows.items():
            self.line([(self.names.of(dataset).text, "cyan")])
            self._table(dataset_rows, widths, ("bold", "", "dim"))

    def _table(self, rows: Iterable[Sequence[str]], widths: Sequence[int], styles: Sequence[str]) -> None:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _GAP, 0, 0))
        for width, style in zip(widths, styles, strict=True):
            table.add_column(width=width, overflow="fold", style=style)
        for row in rows:
            table.add_row(*map(Text, row))
        self.console.print(table, width=self.width, highlight=False)

    def notes(self) -> None:
        if self.graph.problems:
            self.line([])
        for problem in self.graph.listed_problems(_SHOWN_PROBLEMS):
            self.line([("! ", "bold red"), (harmless(problem, self.encoding), "red")])


@dataclass(frozen=True, slots=True)
class _Row:
    """Row of the tree. The row of a run has an attempt only if its events name no attempts.

    :param guide: the lines of the tree before the label; ``below`` those before the label's further lines.
    """

    guide: str
    below: str
    label: tuple[Piece, ...]
    attempt: model.Attempt | None = None


class _Runs:
    """Tree of the runs, with results, durations and start times in columns; a narrow page has no room for dates."""

    def __init__(self, page: _Page, zone: tzinfo) -> None:
        self.page = page
        self.zone = zone
        self.glyphs = page.glyphs
        self.titles = {run.urn: run.title(page.encoding) for run in page.graph.runs()}
        self.rows = self._rows()
        attempts = [row.attempt for row in self.rows if row.attempt]
        self.state = max((cell_width(self._state(attempt)) for attempt in attempts), default=0)
        self.duration = max((len(format_duration(attempt.duration)) for attempt in attempts), default=0)
        fixed = self.state + self.duration + 3 * _GAP
        dated = page.width - fixed - len("YYYY-MM-DD HH:MM:SS")
        self.is_dated = dated >= _LEAST_LABEL
        room = dated if self.is_dated else page.width - fixed - len("HH:MM:SS")
        with_attempt = [len(row.guide) + Text.assemble(*row.label).cell_len for row in self.rows if row.attempt]
        self.room = max(min(room, max(with_attempt, default=0)), 8)

    def show(self) -> None:
        self.page.heading("Runs", f"times in {self.zone}")
        for row in self.rows:
            first, *others = self._wrapped(row, self.room if row.attempt else self.page.width)
            self.page.line([first, *self._facts(row.attempt, self.room - first.cell_len)], wrap=False)
            for other in others:
                self.page.line([other], wrap=False)

    def _rows(self) -> list[_Row]:
        rows: list[_Row] = []
        waiting = [(model.TreeItem(root), "", "") for root in reversed(self.page.graph.roots)]
        while waiting:
            item, guide, below = waiting.pop()
            children = item.children()
            trunk = below + self.glyphs.branch(last=not children)[1]
            label = ((item.attempt.label, ""),) if item.attempt else tuple(self._label(item.run))
            rows.append(_Row(guide, trunk, label, item.shown_attempt))
            if item.attempt is None and item.run.error is not None:
                rows.append(_Row(trunk, trunk, ((harmless(item.run.reason, self.page.encoding), "red"),)))
            for position, child in reversed(list(enumerate(children))):
                turn, beside = self.glyphs.branch(last=position == len(children) - 1)
                waiting.append((child, below + turn, below + beside))
        return rows

    def _label(self, run: model.RunNode) -> Iterable[Piece]:
        kind, name, note = self.titles[run.urn]
        yield f"{kind} ", "dim"
        yield name, "bold" if run.kind is not model.RunKind.APPLICATION_RUN else "bold green"
        if note:
            yield f"  {note}", "dim"
        if run.inputs or run.outputs:
            yield f"  {len(run.inputs)} in, {len(run.outputs)} out", "dim"
        if run.upstreams:
            shown, folded = run.upstreams[: model.MOST_UPSTREAMS], len(run.upstreams[model.MOST_UPSTREAMS :])
            names = [self._upstream(urn) for urn in shown]
            more = [f"{self.glyphs.ellipsis} {folded} more"] if folded else []
            yield f"  {self.glyphs.back_arrow} {', '.join([*names, *more])}", "cyan"

    def _upstream(self, urn: str) -> str:
        if urn in self.titles:
            return self.titles[urn][1]
        return f"{harmless(last_part(urn), self.page.encoding)[:8]}{self.glyphs.ellipsis}"

    def _wrapped(self, row: _Row, room: int) -> list[Text]:
        """Wrap the label of a row, after the lines of the tree: its first line fits the room, the others the page."""
        width, console = self.page.width, self.page.console
        guide = row.guide[-(width // 2) :]
        below = row.below[: len(row.guide) + 2].ljust(len(row.guide) + 2)[-(width // 2) :]
        label = Text.assemble(*row.label)
        first = label.wrap(console, max(room - len(guide), 1), overflow="fold")[0]
        after = len(label) - len(label.plain[len(first) :].lstrip())
        others = label[after:].wrap(console, width - len(below), overflow="fold") if after < len(label) else ()
        return [Text.assemble((guide, "dim"), first), *(Text.assemble((below, "dim"), line) for line in others)]

    def _state(self, attempt: model.Attempt) -> str:
        # UP_FOR_RETRY is the longest result of DataHub; a longer foreign one must not break the alignment.
        return harmless(attempt.state, self.page.encoding)[:_LONGEST_STATE]

    def _facts(self, attempt: model.Attempt | None, pad: int) -> list[Piece]:
        """Return the facts of an attempt, with so many blanks before them."""
        if attempt is None:
            return []
        gap = " " * _GAP
        state = self._state(attempt)
        return [
            (" " * pad + gap, ""),
            (state + " " * (self.state - cell_width(state)), _STYLES.get(attempt.state, "")),
            (gap + format_duration(attempt.duration).rjust(self.duration), ""),
            (gap + format_time(attempt.started, self.zone, dated=self.is_dated), "dim"),
        ]


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of the three columns: those of the texts, or narrower ones that fit the page."""
    wanted = [max(cell_width(line) for row in rows for line in row[column].split("\n") or [""]) for column in range(3)]
    room = width - 3 * _GAP
    while sum(wanted) > room:
        wanted[wanted.index(max(wanted))] -= 1
    return wanted


def _column_rows(
    lineages: Iterable[model.ColumnLineage], dataset: str, tails: Mapping[str, str], encoding: str
) -> list[tuple[str, str, str]]:
    """Return the output columns of a dataset, each with its input columns and the transformation.

    Columns with the same inputs and transformation share a row: a filter or a join key affects every column. Such rows
    are below those of single columns, and say how many columns they have.
    """
    inputs: dict[tuple[str, str], dict[Column, None]] = {}
    for lineage in lineages:
        if lineage.output.dataset == dataset:
            row = inputs.setdefault((lineage.output.path, ", ".join(lineage.labels())), {})
            row.update(dict.fromkeys(lineage.inputs))
    every = len({path for path, _ in inputs})
    outputs: dict[tuple[tuple[Column, ...], str], list[str]] = {}
    for (path, text), upstreams in inputs.items():
        outputs.setdefault((tuple(upstreams), text), []).append(path)
    rows = []
    for (upstream, text), paths in sorted(outputs.items(), key=lambda row: len(row[1]) > 1):
        several = "(every column)" if len(paths) == every else f"({len(paths)} columns)"
        name = several if len(paths) > 1 else harmless(paths[0], encoding) or "*"
        sources = [f"{tails[column.dataset]}.{harmless(column.path, encoding) or '*'}" for column in sorted(upstream)]
        rows.append((f"  {name}", "\n".join(sources), harmless(text, encoding)))
    return rows

"""The terminal view: runs as a tree, jobs with what they read and write as lists, column lineage as
a table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, tzinfo

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from airflow_provider_spark_datahub.visualization import model
from airflow_provider_spark_datahub.visualization.names import (
    Column,
    ShortNames,
    format_duration,
    format_time,
    harmless,
    last_part,
)

_MOST_PROBLEMS = 5
_MOST_DATASETS = 12
"""Datasets that are listed on each side of a job; of the others, the number."""
_LEAST_WIDTH = 50
_STYLES = {
    "SUCCESS": "green",
    "FAILURE": "bold red",
    "UP_FOR_RETRY": "yellow",
    "SKIPPED": "magenta",
    "RUNNING": "cyan",
}
_LONGEST_STATE = (
    12  # as UP_FOR_RETRY: a longer state of another producer must not break the alignment
)
_GAP = 2
_INDENT = 4  # of a level of rich's tree
_LEAST_LABEL = 8
_WIDEST_TREE = 100
"""Columns of the tree of runs: results far from the names are hard to read."""


def render_terminal(
    graph: model.Graph, console: Console, *, columns: bool = True, zone: tzinfo = UTC
) -> None:
    """Print the runs, the lineage of the jobs, and their column lineage.

    Lines and marks are ASCII unless the console's encoding is UTF-8. Control characters in names
    are made visible, and markup in names has no effect.

    :param columns: whether to print the table of columns.
    :param zone: the time zone of all times.
    """
    page = _Page(console, graph)
    jobs = [step for step in graph.steps() if step.dataset_edges()]
    if graph.roots:
        _Runs(page, zone).show()
    if jobs:
        page.lineage(model.by_rank(jobs))
    if columns and any(job.columns for job in jobs):
        page.columns(jobs)
    if not graph.roots and not jobs:
        page.show(Text.assemble(("Nothing to show: ", "bold"), graph.why_nothing()))
    page.problems()


class _Page:
    """The console, with the names and marks that all sections share."""

    def __init__(self, console: Console, graph: model.Graph) -> None:
        self.console = console
        self.width = max(console.width, _LEAST_WIDTH)
        self.graph = graph
        is_unicode = console.encoding.lower().startswith("utf")
        self.back_arrow, self.ellipsis = ("←", "…") if is_unicode else ("<-", "...")
        self.names = ShortNames(graph.instances)

    def show(self, content: RenderableType = "") -> None:
        self.console.print(content, width=self.width, overflow="fold", highlight=False)

    def heading(self, title: str, note: str = "") -> None:
        self.show(Text.assemble((title, "bold underline"), (f"  {note}" if note else "", "dim")))

    def lineage(self, jobs: Sequence[model.GraphJob]) -> None:
        """Print each job with a line for each dataset that it reads and writes; none is broken."""
        self.show()
        self.heading("Lineage")
        last_runs = self.graph.last_runs()
        for job in jobs:
            style = (
                "bold red"
                if job.urn in last_runs and last_runs[job.urn].state == "FAILURE"
                else "bold green"
            )
            lines = [Text(harmless(job.name), style)]
            for verb, urns in (("reads ", job.inputs), ("writes", job.outputs)):
                for row, name in enumerate(self._datasets(urns)):
                    lines.append(
                        Text.assemble((f"  {' ' * len(verb) if row else verb}  ", "dim"), name)
                    )
            for line in lines:
                self.console.print(line, soft_wrap=True, highlight=False)

    def _datasets(self, urns: Collection[str]) -> list[Text]:
        names = [self.names.of(urn) for urn in [*urns][:_MOST_DATASETS]]
        texts = [
            Text.assemble(
                (f"{name.platform} " if name.platform else "", "dim"),
                name.name,
                (f" {name.note}" if name.note else "", "yellow"),
            )
            for name in names
        ]
        more = len(urns) - len(names)
        return [*texts, *([Text(f"{self.ellipsis} {more} more", "dim italic")] if more else [])]

    def columns(self, jobs: Sequence[model.GraphJob]) -> None:
        """Print a table of the written columns with their input columns."""
        self.show()
        self.heading("Columns")
        lineages = [lineage for job in jobs for lineage in job.columns]
        tails = self.names.tails(
            column.dataset for lineage in lineages for column in (lineage.output, *lineage.inputs)
        )
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
        table.add_column("output column", overflow="fold")
        table.add_column(f"{self.back_arrow} input columns", overflow="fold")
        table.add_column("transformation", overflow="fold", style="dim")
        for dataset in dict.fromkeys(lineage.output.dataset for lineage in lineages):
            table.add_row(Text(tails[dataset], "cyan"))
            for row in _column_rows(lineages, dataset, tails):
                table.add_row(*map(Text, row))
        self.show(table)

    def problems(self) -> None:
        if self.graph.problems:
            self.show()
        for problem in self.graph.listed_problems(_MOST_PROBLEMS):
            self.show(Text.assemble(("! ", "bold red"), (harmless(problem), "red")))


class _Runs:
    """Tree of the runs, with results, durations and start times in columns."""

    def __init__(self, page: _Page, zone: tzinfo) -> None:
        self._page = page
        self._zone = zone
        self._titles = {run.urn: run.title() for run in page.graph.runs()}
        attempts = [attempt for run in page.graph.runs() for attempt in run.attempts()]
        dates = {
            format_time(attempt.started, zone)[: len("2026-11-20")] for attempt in attempts
        } - {""}
        self._date = dates.pop() if len(dates) == 1 else ""
        facts = [[fact.cell_len for fact in self._facts(attempt)] for attempt in attempts]
        self._widths = [max(lengths) for lengths in zip(*facts, strict=True)]

    def show(self) -> None:
        """Print the tree. The date is in the heading if it is that of all attempts."""
        self._page.heading(
            "Runs", f"{f'on {self._date}, ' if self._date else ''}times in {self._zone}"
        )
        most = min(self._page.width, _WIDEST_TREE) - sum(self._widths) - _GAP * len(self._widths)
        for root in map(model.TreeItem, self._page.graph.roots):
            tree = Tree(self._row(root, most), guide_style="dim")
            waiting = [(root, tree, most)]
            while waiting:
                item, branch, room = waiting.pop()
                room -= _INDENT
                waiting += (
                    (child, branch.add(self._row(child, room)), room) for child in item.children()
                )
            self._page.show(tree)

    def _row(self, item: model.TreeItem, room: int) -> RenderableType:
        """Return the label, wrapped to the room, and the facts of an item; below them, why a run
        failed.
        """
        row: RenderableType = self._label(item)
        if item.shown_attempt is not None:
            table = Table.grid(padding=(0, _GAP, 0, 0))
            for width in (max(room, _LEAST_LABEL), *self._widths):
                table.add_column(width=width, overflow="fold")
            table.add_row(row, *self._facts(item.shown_attempt))
            row = table
        if item.attempt is None and item.run.error is not None:
            return Group(row, Text(harmless(item.run.reason), "red"))
        return row

    def _facts(self, attempt: model.Attempt) -> tuple[Text, Text, Text]:
        """Return state, duration and start."""
        state = harmless(attempt.state)[:_LONGEST_STATE]
        started = format_time(attempt.started, self._zone, dated=not self._date)
        duration = Text(format_duration(attempt.duration), justify="right")
        return Text(state, _STYLES.get(attempt.state, "")), duration, Text(started, "dim")

    def _label(self, item: model.TreeItem) -> Text:
        if item.attempt is not None:
            return Text(item.attempt.label)
        run = item.run
        kind, name, note = self._titles[run.urn]
        style = "bold green" if run.kind is model.RunKind.APPLICATION_RUN else "bold"
        label = Text.assemble((f"{kind} ", "dim"), (name, style))
        label.append(f"  {note}" if note else "", "dim")
        if run.upstreams:
            names = [self._upstream(urn) for urn in run.upstreams[: model.MOST_UPSTREAMS]]
            more = len(run.upstreams) - len(names)
            names += [f"{self._page.ellipsis} {more} more"] if more else []
            label.append(f"  {self._page.back_arrow} {', '.join(names)}", "cyan")
        return label

    def _upstream(self, urn: str) -> str:
        if urn in self._titles:
            return self._titles[urn][1]
        return f"{harmless(last_part(urn))[:8]}{self._page.ellipsis}"


def _column_rows(
    lineages: Iterable[model.ColumnLineage], dataset: str, tails: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return the output columns of a dataset, each with its input columns and the transformation.

    Columns with the same inputs and transformation share a row: a filter or a join key affects
    every column. Such rows are below those of single columns, and say how many columns they have.
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
        name = several if len(paths) > 1 else harmless(paths[0]) or "*"
        sources = [
            f"{tails[column.dataset]}.{harmless(column.path) or '*'}" for column in sorted(upstream)
        ]
        rows.append((f"  {name}", "\n".join(sources), harmless(text)))
    return rows

"""Shows a graph in a terminal: the runs as a tree, the lineage as a flow, the columns as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.visualization.drawing import ASCII, UNICODE, Glyphs, Pen, Piece, draw
from airflow_provider_spark_datahub.visualization.flow import FlowJob, flows
from airflow_provider_spark_datahub.visualization.model import DatasetNames, Graph, JobLineage, harmless
from airflow_provider_spark_datahub.visualization.tables import column_tables, run_rows

if TYPE_CHECKING:
    from rich.console import Console, OverflowMethod

SHOWN_PROBLEMS = 5
"""Skipped proposals that are named one by one; of the others only the number is."""

_LEAST_WIDTH = 50


def render_terminal(graph: Graph, console: Console, *, columns: bool = True, width: int | None = None) -> None:
    """Prints the runs, the lineage of the jobs, and where their columns come from.

    Plain ASCII is drawn where the console's encoding is not UTF-8 or its output is no terminal. Names are shown
    with their control characters made visible, and never read as markup.

    :param columns: whether to print the table of columns.
    :param width: in columns of the terminal, 50 at least; the console's own where none is given.
    """
    page = _Page(console, max(width or console.width, _LEAST_WIDTH), graph)
    jobs = [job for job in graph.telling_jobs() if job.inputs or job.outputs]
    if not graph.roots and not jobs:
        page.line([("Nothing to show: ", "bold"), (_why_nothing(graph), "")])
        page.notes()
        return
    if graph.roots:
        page.heading("Runs", "times in UTC")
        page.lines(run_rows(graph, page.glyphs, page.width, page.encoding))
    if jobs:
        page.lineage(jobs)
    if columns and any(job.columns for job in jobs):
        page.columns(jobs)
    page.notes()


def _why_nothing(graph: Graph) -> str:
    if not graph.read:
        return "there are no proposals."
    if len(graph.problems) == graph.read:
        return f"none of the {graph.read} proposals can be read."
    return f"{graph.read} proposals, but none of a run or of what a job reads and writes."


class _Page:
    """A console, with what all parts of the picture have in common."""

    def __init__(self, console: Console, width: int, graph: Graph) -> None:
        self.console = console
        self.width = width
        self.graph = graph
        self.encoding = console.encoding
        fancy = console.is_terminal and self.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        self.glyphs: Glyphs = UNICODE if fancy else ASCII
        self.names = DatasetNames(graph.instances, self.encoding)

    def line(self, pieces: Iterable[Piece], *, wrap: bool = True) -> None:
        """Prints a line; without wrapping it is cut where the page ends."""
        from rich.text import Text

        text = Text.assemble(*pieces)
        text.rstrip()
        overflow: OverflowMethod = "fold" if wrap else "crop"
        self.console.print(text, width=self.width, no_wrap=not wrap, overflow=overflow, highlight=False)

    def lines(self, rows: Iterable[Sequence[Piece]]) -> None:
        """Prints a drawing."""
        for row in rows:
            self.line(row, wrap=False)

    def heading(self, title: str, note: str = "") -> None:
        """Prints the title of a part."""
        self.line([(title, "bold underline"), (f"  {note}" if note else "", "dim")])

    def lineage(self, jobs: Sequence[JobLineage]) -> None:
        """Prints the flows that the jobs form."""
        flow_jobs = [FlowJob(job.urn, harmless(job.name, self.encoding), job.inputs, job.outputs) for job in jobs]
        marks = f"{self.glyphs.goes} goes on below, {self.glyphs.came} comes from above"
        drawings = [draw(flow, Pen(self.width, self.glyphs, self.names.of)) for flow in flows(flow_jobs)]
        self.line([])
        self.heading("Lineage", marks if any(drawing.broken for drawing in drawings) else "")
        for number, drawing in enumerate(drawings):
            if number:
                self.line([])
            self.lines(drawing.rows)
        shortened = {full: short for drawing in drawings for full, short in drawing.shortened.items()}
        if shortened:
            self.line([])
        for full, short in shortened.items():
            self.line([(short, "dim"), (" = ", "dim"), (full, "")])

    def columns(self, jobs: Sequence[JobLineage]) -> None:
        """Prints the table of columns."""
        self.line([])
        self.heading("Columns")
        for name, table in column_tables(jobs, self.names, self.glyphs, self.width):
            if name:
                self.line([(name, "cyan")])
            self.console.print(table, width=self.width, highlight=False)

    def notes(self) -> None:
        """Prints what was left out."""
        problems, unread = self.graph.problems, self.graph.unread
        if problems or unread:
            self.line([])
        for problem in problems[:SHOWN_PROBLEMS]:
            self.line([("! ", "bold red"), (harmless(problem, self.encoding), "red")])
        if len(problems) > SHOWN_PROBLEMS:
            self.line([("! ", "bold red"), (f"and {len(problems) - SHOWN_PROBLEMS} more like these", "red")])
        if unread:
            parts = ", ".join(f"{name} {count}" for name, count in sorted(unread.items()))
            text = f"{sum(unread.values())} of {self.graph.read} proposals are of other aspects: {parts}"
            self.line([(harmless(text, self.encoding), "dim")])

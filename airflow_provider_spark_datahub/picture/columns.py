"""The table of column lineage: each output column, the columns that it comes from, and how."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.picture.canvas import Glyphs, cells
from airflow_provider_spark_datahub.picture.model import Column, ColumnLineage, JobLineage
from airflow_provider_spark_datahub.picture.names import DatasetNames, harmless

if TYPE_CHECKING:
    from rich.table import Table

_COMMENT = "-- "
_OPENLINEAGE = re.compile(r"(IN)?DIRECT:[A-Z_]+(,(IN)?DIRECT:[A-Z_]+)*")
_GAP = 2


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

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, _GAP, 0, 0))
    for width, style in zip(widths, styles, strict=True):
        table.add_column(width=width, overflow="fold", style=style)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """As wide as the texts are, or in proportion to that where the page is too narrow."""
    wanted = [max(cells(line) for row in rows for line in row[column].split("\n") or [""]) for column in range(3)]
    room = width - 3 * _GAP
    while sum(wanted) > room:
        wanted[wanted.index(max(wanted))] -= 1
    return wanted


def _cells(row: _Row, tails: Mapping[str, str], names: DatasetNames) -> tuple[str, str, str]:
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
class _Row:
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


def _merged(lineages: Iterable[ColumnLineage], dataset: str) -> list[_Row]:
    """The rows of a dataset; what differs in nothing that is shown becomes one.

    A filter or a join key acts on every column: that is one row, below those of the columns themselves.
    """
    inputs: dict[tuple[str, str], dict[Column, None]] = {}
    for lineage in lineages:
        if lineage.output.dataset == dataset:
            row = inputs.setdefault((lineage.output.path, wording(lineage.transformation)), {})
            row.update(dict.fromkeys(lineage.inputs))
    columns = {path for path, _ in inputs}
    rows: dict[tuple[tuple[Column, ...], str], _Row] = {}
    for (path, text), upstreams in inputs.items():
        key = tuple(upstreams), text
        rows.setdefault(key, _Row([], *key, len(columns))).outputs.append(path)
    return sorted(rows.values(), key=lambda row: len(row.outputs) > 1)


def _column(column: Column, tail: str, names: DatasetNames) -> str:
    return f"{tail}.{harmless(column.path, names.encoding) if column.path else '*'}"

"""The part of a page that lists the tables: their columns, what these come from, and the statements that say so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from airflow_provider_spark_datahub.picture.columns import is_indirect
from airflow_provider_spark_datahub.picture.names import harmless
from airflow_provider_spark_datahub.picture.network import Box, Network, NetworkColumn, Source

_OPEN_TABLES = 6
"""So many tables are open at first, where there are no more; of more, none is."""
_MOST_JOBS = 6
_SHORT = 24
_JOINT = re.compile(r"[./_,]+(?=.)")
_DECIDING = (
    '<label class="needs-script"><input id="deciding" type="checkbox"> trace filters, joins and groupings, too</label>'
)


def tables(lineage: Network) -> Iterator[str]:
    """The section of the tables, in the order in which the data goes: from left to right, as they are drawn."""
    corners = lineage.layout.corners
    datasets = sorted((box for box in lineage.boxes.values() if not box.is_job), key=lambda box: corners[box.key])
    if not datasets:
        return
    yield '<section id="tables" class="panel"><div class="bar"><h2>Tables and columns</h2>'
    if any(is_indirect(source.way) for box in datasets for made in lineage.columns[box.key] for source in made.sources):
        yield _DECIDING
    yield '<button type="button" class="needs-script" id="every">Open or close all</button></div><div class="inside">'
    is_open = len(datasets) <= _OPEN_TABLES
    labels = {
        column.key: f"{lineage.boxes[key].title}.{column.name or '*'}"
        for key, columns in lineage.columns.items()
        for column in columns
    }
    for box in datasets:
        yield from _Table(box, lineage, labels).lines(is_open)
    yield "</div></section>"


def breakable(name: str) -> str:
    """A name as HTML that, where it is long, wraps behind a dot, slash, comma or underscore before anywhere else."""
    return escape(name) if len(name) <= _SHORT else _JOINT.sub(r"\g<0><wbr>", escape(name))


def first_of(names: Sequence[str], most: int) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class _Table:
    def __init__(self, box: Box, lineage: Network, labels: dict[str, str]) -> None:
        self.box = box
        self.boxes = lineage.boxes
        self.labels = labels
        self.columns = lineage.columns[box.key]
        self.statements = lineage.statements[box.key]
        self.writers = [source for source, target in lineage.links if target == box.key]
        self.readers = [target for source, target in lineage.links if source == box.key]
        self.everywhere = _everywhere(self.columns)

    def lines(self, is_open: bool) -> Iterator[str]:
        title, facts = breakable(self.box.title), escape(self._facts())
        yield f'<details class="table" id="{self.box.key}"{" open" if is_open else ""}>'
        yield f'<summary><bdi class="name">{title}</bdi> <bdi class="dim">{facts}</bdi></summary>'
        yield f'<div class="inside"><div class="urn"><bdi>{breakable(harmless(self.box.urn))}</bdi></div>'
        if self.columns:
            yield from self._columns()
        for number, statement in enumerate(self.statements, 1):
            told = f"Statement {number}" if len(self.statements) > 1 else "Statement"
            job = breakable(self.boxes[statement.job].full)
            yield f'<details class="statement" id="{self.box.key}-s{number}">'
            yield f"<summary>{told} of <bdi>{job}</bdi></summary>"
            yield f"<pre><bdi>{escape(statement.text)}</bdi></pre></details>"
        yield "</div></details>"

    def _facts(self) -> str:
        count = sum(bool(column.name) for column in self.columns)
        sides = (("written by", self.writers), ("read by", self.readers))
        jobs = [f"{how} {first_of([self.boxes[key].full for key in keys], _MOST_JOBS)}" for how, keys in sides if keys]
        return " · ".join([f"{count} column{'s' * (count != 1)}", *jobs])

    def _columns(self) -> Iterator[str]:
        """A row per column; what nothing tells of has no place: the types without a schema, the origin of a source."""
        with_type = any(column.type for column in self.columns)
        with_sources = any(column.sources for column in self.columns)
        yield '<table><thead><tr><th scope="col">column</th>'
        yield '<th scope="col">type</th>' if with_type else ""
        yield '<th scope="col">comes from</th>' if with_sources else ""
        yield "</tr></thead><tbody>"
        for column in self.columns:
            yield f'<tr id="{column.key}" data-column{_steps(column.sources)}>'
            yield f'<th scope="row"><bdi>{breakable(column.name) or "(the table as a whole)"}</bdi></th>'
            yield f'<td class="type"><bdi>{breakable(column.type)}</bdi></td>' if with_type else ""
            own = [source for source in column.sources if source not in self.everywhere]
            yield f'<td class="sources">{self._sources(own)}</td></tr>' if with_sources else "</tr>"
        if self.everywhere:
            yield f'<tr class="everywhere"><th scope="row">(every column)</th>{"<td></td>" * with_type}'
            yield f'<td class="sources">{self._sources(self.everywhere)}</td></tr>'
        yield "</tbody></table>"

    def _sources(self, sources: Iterable[Source]) -> str:
        found: dict[str, list[Source]] = {}
        for source in sources:
            found.setdefault(source.column, []).append(source)
        items = [
            f'<li><a href="#{key}"><bdi>{breakable(self.labels[key])}</bdi></a> '
            f'<bdi class="how">{escape(", ".join(dict.fromkeys(source.way for source in several)))}</bdi>'
            f"{self._told(several)}</li>"
            for key, several in found.items()
        ]
        return f"<ul>{''.join(items)}</ul>" if items else ""

    def _told(self, sources: Iterable[Source]) -> str:
        """Which statement, or else which job, says it, where there are several."""
        said = {}
        for source in sources:
            if source.statement and len(self.statements) > 1:
                key = f"{self.box.key}-s{source.statement}"
                said[key] = f'<a class="how" href="#{key}">statement {source.statement}</a>'
            elif not source.statement and len(self.writers) > 1:
                said[source.job] = f'<bdi class="how">by {escape(self.boxes[source.job].full)}</bdi>'
        return " ".join(["", *said.values()])


def _everywhere(columns: Iterable[NetworkColumn]) -> tuple[Source, ...]:
    """What acts on all columns that come from anything: a filter, a join key."""
    first, *others = [column.sources for column in columns if column.sources] or [()]
    if not others:
        return ()
    shared = set(first).intersection(*others)
    return tuple(source for source in first if source in shared and is_indirect(source.way))


def _steps(sources: Iterable[Source]) -> str:
    """For the script: the columns that give this one its values, and those that only decide its rows, with the job."""
    values = dict.fromkeys(f"{source.column}@{source.job}" for source in sources if not is_indirect(source.way))
    deciding = dict.fromkeys(f"{source.column}@{source.job}" for source in sources if is_indirect(source.way))
    return "".join(
        f' {name}="{" ".join(steps)}"'
        for name, steps in (("data-values", values), ("data-deciding", deciding))
        if steps
    )

"""The part of a page that lists the tables: their columns, what these come from, and the statements that say so.

The picture as one HTML page that needs nothing else: runs, lineage, columns, and what could not be read.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.visualization.export import asset, render_svg
from airflow_provider_spark_datahub.visualization.model import Attempt, Graph, RunNode, harmless
from airflow_provider_spark_datahub.visualization.network import Box, Network, NetworkColumn, Source, build_network
from airflow_provider_spark_datahub.visualization.tables import (
    Branch,
    inner,
    is_indirect,
    moment,
    numbered,
    span,
    title_of,
)

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


_SHOWN_PROBLEMS = 200
_MOST_UPSTREAMS = 6
_SEARCH = (
    '<div role="search" class="needs-script"><input id="find" type="search" placeholder="Find a table, column or job" '
    'aria-label="Find a table, column or job" aria-describedby="found" aria-keyshortcuts="/" autocomplete="off">'
    '<p id="found" role="status"></p></div>'
)
_SKIP = '<a class="skip" href="#tables">Past the graph, to the tables</a>'
_STATES = ("SUCCESS", "FAILURE", "UP_FOR_RETRY", "SKIPPED", "RUNNING", "COMPLETE")


def render_page(graph: Graph) -> str:
    """The page. Names in it are text, whatever they hold; it loads nothing, and runs no script but its own."""
    lineage = build_network(graph)
    title = _title(graph, lineage)
    script = asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en" class="no-script"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{asset('network.css')}{asset('page.css')}</style></head><body>",
        f"<header><div><h1><bdi>{escape(title)}</bdi></h1><p>{_counts(graph, lineage)}</p></div>",
        f"{_SEARCH + _SKIP if lineage.boxes else ''}</header>",
        "<main>" if graph.roots else '<main class="without-runs">',
        *_runs(graph),
        *_lineage(lineage),
        *tables(lineage),
        *_problems(graph),
        f"</main><script>{script}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _title(graph: Graph, lineage: Network) -> str:
    """What the picture is of: its runs, else its jobs."""
    kinds = dict.fromkeys(" ".join(title_of(root)[:2]) for root in graph.roots)
    names = list(kinds) or [box.full for box in lineage.boxes.values() if box.is_job]
    if not names:
        return "Nothing to show"
    return f"Lineage of {first_of(names, 2)}"


def _counts(graph: Graph, lineage: Network) -> str:
    jobs = sum(box.is_job for box in lineage.boxes.values())
    edges = [{source.column for source in column.sources} for several in lineage.columns.values() for column in several]
    counts = [
        (jobs, "job"),
        (len(lineage.boxes) - jobs, "dataset"),
        (sum(map(len, edges)), "column edge"),
    ]
    said = [_counted(count, name) for count, name in counts if count]
    runs = [_fails(Branch(run)) for run in graph.runs()]
    if runs:
        failed = f', <a class="bad" href="#failed">{sum(runs)} failed</a>' if any(runs) else ""
        said.insert(0, _counted(len(runs), "run") + failed)
    if graph.problems:
        said.append(f'<a class="bad" href="#problems">{_counted(len(graph.problems), "problem")}</a>')
    return " · ".join(said)


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"


def _fails(branch: Branch) -> bool:
    attempts = [branch.attempt] if branch.attempt else branch.run.attempts()[-1:]
    return any(attempt.state == "FAILURE" for attempt in attempts)


def _failure(roots: Iterable[Branch]) -> Branch | None:
    """Where the first failure began: of a run that failed, the try or the run below it that did."""
    waiting, found = deque(roots), None
    while waiting and not found:
        branch = waiting.popleft()
        if _fails(branch):
            found = branch
        waiting.extend(inner(branch))
    while found and (below := next(filter(_fails, inner(found)), None)):
        found = below
    return found


def _runs(graph: Graph) -> Iterator[str]:
    if not graph.roots:
        return
    yield '<section id="runs" class="panel"><div class="bar"><h2>Runs</h2><span class="dim">times in UTC</span></div>'
    yield '<div class="inside"><ul class="tree">'
    names = {run.urn: title_of(run)[1] for run in graph.runs()}
    failure = _failure(map(Branch, graph.roots))
    # A stack, not a recursion: how deep runs hang below each other is up to the proposals.
    waiting: list[Branch | str] = [Branch(root) for root in reversed(graph.roots)]
    while waiting:
        branch = waiting.pop()
        if isinstance(branch, str):
            yield branch
            continue
        children = inner(branch)
        here = ' id="failed"' if branch == failure else ""
        row = _try(branch.attempt) if branch.attempt else _run(branch.run, names)
        if children:
            yield f"<li{here}><details open><summary>{row}</summary><ul>"
            waiting.append("</ul></details></li>")
            waiting.extend(reversed(children))
        else:
            yield f'<li{here}><div class="leaf">{row}</div></li>'
    yield "</ul></div></section>"


def _run(run: RunNode, names: dict[str, str]) -> str:
    kind, name, note = title_of(run)
    attempts = run.attempts()
    alone = attempts[-1] if attempts and not numbered(attempts) else None
    state = _state(alone.state) if alone else ""
    facts = [*_times(alone), f"{len(run.inputs)} in, {len(run.outputs)} out" if run.inputs or run.outputs else ""]
    waited = [names[urn] for urn in run.upstreams if urn in names]
    if waited:
        facts.append(f"after {first_of(waited, _MOST_UPSTREAMS)}")
    shown = f'<bdi class="name">{breakable(name)}</bdi>'
    if run.external_url and _is_web(run.external_url):
        shown = f'<a href="{escape(run.external_url)}" rel="noopener noreferrer">{shown}</a>'
    noted = f'<bdi class="facts">{escape(note)}</bdi>' if note else ""
    return f'<span class="row"><span class="dim">{escape(kind)}</span> {shown} {state}{_facts(facts)}{noted}</span>'


def _try(attempt: Attempt) -> str:
    number = "?" if attempt.number is None else attempt.number
    return f'<span class="row">try {number} {_state(attempt.state)}{_facts(_times(attempt))}</span>'


def _times(attempt: Attempt | None) -> list[str]:
    return [span(attempt.duration), moment(attempt.started)] if attempt else []


def _facts(facts: Iterable[str]) -> str:
    said = " · ".join(escape(fact) for fact in facts if fact)
    return f'<bdi class="facts">{said}</bdi>' if said else ""


def _state(state: str) -> str:
    known = f" {state}" if state in _STATES else ""
    return f'<span class="state{known}">{escape(harmless(state)[:20])}</span>'


def _is_web(url: str) -> bool:
    """Whether a link leads to a web page: one to a script would run it."""
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def _lineage(lineage: Network) -> Iterator[str]:
    yield '<section id="lineage" class="panel"><div class="bar"><h2>Lineage</h2>'
    if not lineage.boxes:
        yield '</div><p class="hint">No job among these proposals reads or writes anything.</p></section>'
        return
    yield '<p class="dim needs-script" id="hint" role="status">Choose a table, job or column to trace it.</p>'
    yield '<a class="needs-script" id="more" hidden>its columns</a>'
    for name, sign, meaning in (
        ("in", "+", "Zoom in"),
        ("out", "&minus;", "Zoom out"),
        ("all", "fit", "Show all"),
        ("one", "1:1", "Full size"),
    ):
        told = f'title="{meaning}" aria-label="{meaning}"'
        yield f'<button type="button" class="needs-script" id="zoom-{name}" {told}>{sign}</button>'
    yield '</div><div class="view" tabindex="0" role="region" aria-label="Lineage graph; + - and 0 zoom">'
    yield render_svg(lineage, inside_page=True)
    yield "</div></section>"


def _problems(graph: Graph) -> Iterator[str]:
    problems = list(graph.problems[:_SHOWN_PROBLEMS])
    if len(graph.problems) > _SHOWN_PROBLEMS:
        problems.append(f"and {len(graph.problems) - _SHOWN_PROBLEMS} more like these")
    if not problems:
        return
    yield '<section id="problems" class="panel"><div class="bar"><h2 class="bad">Problems</h2></div><ul>'
    for problem in problems:
        yield f"<li><bdi>{escape(harmless(problem))}</bdi></li>"
    yield "</ul></section>"

"""The HTML page: runs, lineage, tables with their columns, and problems, in one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from html import escape
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.printable import counted
from airflow_provider_spark_datahub.visualization.export import platform_colours, read_asset, render_svg
from airflow_provider_spark_datahub.visualization.model import MOST_UPSTREAMS, Attempt, Graph, RunNode, TreeItem
from airflow_provider_spark_datahub.visualization.names import (
    format_duration,
    format_time,
    harmless,
    harmless_lines,
)
from airflow_provider_spark_datahub.visualization.network import (
    Box,
    ColumnSource,
    Network,
    NetworkColumn,
    build_network,
)

_SHOWN_PROBLEMS = 200
_SEARCH = (
    '<div role="search" class="needs-script"><input id="find" type="search" placeholder="Find a table, column or job" '
    'aria-label="Find a table, column or job" aria-describedby="found" aria-keyshortcuts="/" autocomplete="off">'
    '<p id="found" role="status"></p></div>'
)
_SKIP = '<a class="skip" href="#tables">Past the graph, to the tables</a>'
_STATES = ("SUCCESS", "FAILURE", "UP_FOR_RETRY", "SKIPPED", "RUNNING", "COMPLETE")
_KNOWN_STATES = frozenset({"delivered", "quarantined", "pending", "unfinished", "complete", "none"})
_OPEN_TABLES = 6
"""Tables are open at first if there are at most this many."""
_MOST_JOBS = 6
_SHORT = 24
_JOINT = re.compile(r"[./_,]+(?=.)")
_FILTER_SWITCH = (
    '<label class="needs-script"><input id="deciding" type="checkbox"> trace filters, joins and groupings, too</label>'
)


@dataclass(frozen=True, slots=True)
class Frame:
    """Additions of a server to the page.

    :param title: in place of the page's own.
    :param sections: HTML before the page's own sections, in which names are already escaped.
    :param script: runs in addition to the page's own.
    :param empty: why there is no lineage, in place of the page's own sentence; HTML is escaped.
    :param below: HTML after the drawing, in which names are already escaped.
    """

    title: str = ""
    sections: tuple[str, ...] = ()
    script: str = ""
    empty: str = ""
    below: tuple[str, ...] = ()


def render_page(graph: Graph | None, zone: tzinfo = UTC, frame: Frame | None = None) -> str:
    """Return the page. Names are escaped; the page loads nothing, and runs no script except its own.

    :param graph: ``None`` for a page with nothing but the frame's sections.
    :param zone: the time zone of all times.
    """
    frame = frame or Frame()
    shown = graph or Graph()
    lineage = build_network(shown)
    title = frame.title or _title(shown, lineage)
    scripts = [script for script in (read_asset("page.js"), frame.script) if script]
    counts = _counts(shown, lineage)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en" class="no-script"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{page_policy(frame)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>",
        f"<style>{_styles()}</style></head><body>",
        f"<header><div><h1><bdi>{escape(title)}</bdi></h1>{f'<p>{counts}</p>' if counts else ''}</div>",
        f"{_SEARCH + _SKIP if lineage.boxes else ''}</header>",
        "<main>" if shown.roots else '<main class="without-runs">',
        *_runs(shown, zone),
        *frame.sections,
        *(_lineage(lineage, shown, frame.empty) if graph is not None else ()),
        *frame.below,
        *_tables(lineage),
        *_problems(shown),
        "</main>",
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def page_policy(frame: Frame | None = None) -> str:
    """Return the content security policy of the page: its own styles and scripts, and no other resource.

    With a frame that has a script, the script may also send requests to the page's own server.
    """
    script = frame.script if frame else ""
    scripts = " ".join(map(_digest, filter(None, (read_asset("page.js"), script))))
    policy = (
        f"default-src 'none'; style-src {_digest(_styles())}; script-src {scripts}; base-uri 'none'; form-action 'none'"
    )
    return f"{policy}; connect-src 'self'" if script else policy


def _styles() -> str:
    return f"\n{read_asset('network.css')}{read_asset('page.css')}"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(graph: Graph, lineage: Network) -> str:
    """Name the page after its runs, else after its jobs."""
    kinds = dict.fromkeys(" ".join(root.title()[:2]) for root in graph.roots)
    names = list(kinds) or [box.full for box in lineage.boxes.values() if box.is_job]
    return f"Lineage of {_first_of(names, 2)}" if names else "Nothing to show"


def _counts(graph: Graph, lineage: Network) -> str:
    jobs = len({box.urn for box in lineage.boxes.values() if box.is_job})
    edges = [{source.column for source in column.sources} for table in lineage.columns.values() for column in table]
    datasets = sum(not box.is_job for box in lineage.boxes.values())
    counts = [(jobs, "job"), (datasets, "dataset"), (sum(map(len, edges)), "column edge")]
    said = [counted(count, name) for count, name in counts if count]
    runs = [_fails(TreeItem(run)) for run in graph.runs()]
    if runs:
        failed = f', <a class="bad" href="#failed">{sum(runs)} failed</a>' if any(runs) else ""
        said.insert(0, counted(len(runs), "run") + failed)
    if graph.problems:
        said.append(f'<a class="bad" href="#problems">{counted(len(graph.problems), "problem")}</a>')
    return " · ".join(said)


def _fails(branch: TreeItem) -> bool:
    attempts = [branch.attempt] if branch.attempt else branch.run.attempts()[-1:]
    return any(attempt.state == "FAILURE" for attempt in attempts)


def _failure(roots: Iterable[TreeItem]) -> TreeItem | None:
    """Return the origin of the first failure: the deepest failed attempt or run below the first failed run."""
    waiting, failure = deque(roots), None
    while waiting and not failure:
        item = waiting.popleft()
        if _fails(item):
            failure = item
        waiting.extend(item.children())
    while failure and (below := next(filter(_fails, failure.children()), None)):
        failure = below
    return failure


def _runs(graph: Graph, zone: tzinfo) -> Iterator[str]:
    if not graph.roots:
        return
    heading = f'<h2>Runs</h2><span class="dim">times in {escape(str(zone))}</span>'
    yield f'<section id="runs" class="panel"><div class="bar">{heading}</div>'
    yield '<div class="inside"><ul class="tree">'
    names = {run.urn: run.title()[1] for run in graph.runs()}
    failure = _failure(map(TreeItem, graph.roots))
    # A stack, not a recursion: the proposals decide how deep the tree is.
    waiting: list[TreeItem | str] = [TreeItem(root) for root in reversed(graph.roots)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
            continue
        children = item.children()
        here = ' id="failed"' if item == failure else ""
        row = _run(item.run, names, zone)
        if item.attempt:
            facts = _facts(_times(item.attempt, zone))
            row = f'<span class="row">{item.attempt.label} {_state(item.attempt.state)}{facts}</span>'
        why = "" if item.attempt else _why(item.run)
        if children:
            yield f"<li{here}><details open><summary>{row}</summary>{why}<ul>"
            waiting.append("</ul></details></li>")
            waiting.extend(reversed(children))
        else:
            yield f'<li{here}><div class="leaf">{row}{why}</div></li>'
    yield "</ul></div></section>"


def _run(run: RunNode, names: dict[str, str], zone: tzinfo) -> str:
    kind, name, note = run.title()
    attempt = run.only_attempt()
    state = _state(attempt.state) if attempt else ""
    facts = _times(attempt, zone)
    if run.inputs or run.outputs:
        facts.append(f"{len(run.inputs)} in, {len(run.outputs)} out")
    waited = [names[urn] for urn in run.upstreams if urn in names]
    if waited:
        facts.append(f"after {_first_of(waited, MOST_UPSTREAMS)}")
    shown = f'<bdi class="name">{_breakable(name)}</bdi>'
    if run.external_url and _is_web(run.external_url):
        shown = f'<a href="{escape(run.external_url)}" rel="noopener noreferrer">{shown}</a>'
    noted = f'<bdi class="facts">{escape(note)}</bdi>' if note else ""
    return f'<span class="row"><span class="dim">{escape(kind)}</span> {shown} {state}{_facts(facts)}{noted}</span>'


def _why(run: RunNode) -> str:
    """Return the reason of a failure: its first line, and all of it on demand."""
    if run.error is None:
        return ""
    short = harmless(run.reason)
    if run.reason == run.error and short == run.reason:
        return f'<p class="why"><bdi>{_breakable(short)}</bdi></p>'
    text = escape(harmless_lines(run.error))
    return (
        f'<details class="why"><summary><bdi>{_breakable(short)}</bdi></summary><pre><bdi>{text}</bdi></pre></details>'
    )


def _times(attempt: Attempt | None, zone: tzinfo) -> list[str]:
    return [format_duration(attempt.duration), format_time(attempt.started, zone=zone)] if attempt else []


def _facts(facts: Iterable[str]) -> str:
    text = " · ".join(escape(fact) for fact in facts if fact)
    return f'<bdi class="facts">{text}</bdi>' if text else ""


def _state(state: str) -> str:
    known = f" {state}" if state in _STATES else ""
    return f'<span class="state{known}">{escape(harmless(state)[:20])}</span>'


def _is_web(url: str) -> bool:
    """Return whether a link leads to a web page; any other link might run a script."""
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def _lineage(lineage: Network, graph: Graph, empty: str = "") -> Iterator[str]:
    yield '<section id="lineage" class="panel"><div class="bar"><h2>Lineage</h2>'
    if not lineage.boxes:
        nothing = f"Nothing to show: {graph.why_nothing()}"
        reason = "No job among these proposals reads or writes anything." if graph.roots else nothing
        yield f'</div><p class="hint"><bdi>{escape(empty or reason)}</bdi></p></section>'
        return
    yield '<p class="dim needs-script" id="hint" role="status">Choose a table, job or column to trace it.</p>'
    yield '<a class="needs-script" id="more" hidden>its columns</a>'
    for name, sign, meaning in (
        ("in", "+", "Zoom in"),
        ("out", "&minus;", "Zoom out"),
        ("all", "fit", "Show all"),
        ("one", "1:1", "Full size"),
    ):
        labels = f'title="{meaning}" aria-label="{meaning}"'
        yield f'<button type="button" class="needs-script" id="zoom-{name}" {labels}>{sign}</button>'
    if any(lineage.columns.values()):
        meaning = "Unfold or fold the columns: of the chosen table, or of all"
        yield f'<button type="button" class="needs-script" id="unfold" title="{meaning}">columns</button>'
    keys = "+ - and 0 zoom, c shows columns"
    yield f'</div><div class="view" tabindex="0" role="region" aria-label="Lineage graph; {keys}">'
    yield render_svg(lineage, inside_page=True)
    yield "</div>"
    yield '<p class="legend">'
    for platform, colour in platform_colours(lineage).items():
        yield f'<span><span class="swatch p{colour}"></span><bdi>{escape(harmless(platform))}</bdi></span>'
    yield '<span><span class="swatch job"></span>job</span></p></section>'


def _problems(graph: Graph) -> Iterator[str]:
    if not graph.problems:
        return
    yield '<section id="problems" class="panel"><div class="bar"><h2 class="bad">Problems</h2></div><ul>'
    for problem in graph.listed_problems(_SHOWN_PROBLEMS):
        yield f"<li><bdi>{escape(harmless(problem))}</bdi></li>"
    yield "</ul></section>"


def _tables(lineage: Network) -> Iterator[str]:
    """Yield the section of the tables, in the direction of the data: from left to right in the drawing."""
    corners = lineage.layout.corners
    datasets = sorted((box for box in lineage.boxes.values() if not box.is_job), key=lambda box: corners[box.key])
    if not datasets:
        return
    yield '<section id="tables" class="panel"><div class="bar"><h2>Tables and columns</h2>'
    if any(source.is_indirect for box in datasets for column in lineage.columns[box.key] for source in column.sources):
        yield _FILTER_SWITCH
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


def _breakable(name: str) -> str:
    """Return a name as HTML; a long one wraps after a dot, slash, comma or underscore."""
    return escape(name) if len(name) <= _SHORT else _JOINT.sub(r"\g<0><wbr>", escape(name))


def _first_of(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class _Table:
    def __init__(self, box: Box, lineage: Network, labels: dict[str, str]) -> None:
        self.box = box
        self.boxes = lineage.boxes
        self.labels = labels
        self.columns = lineage.columns[box.key]
        self.statements = lineage.statements[box.key]
        self.evidence = lineage.evidence[box.key]
        self.writers = [source for source, target in lineage.links if target == box.key]
        self.readers = [target for source, target in lineage.links if source == box.key]
        self.everywhere = _everywhere(self.columns)

    def lines(self, is_open: bool) -> Iterator[str]:
        title, facts = _breakable(self.box.title), escape(self._facts())
        yield f'<details class="table" id="{self.box.key}"{" open" if is_open else ""}>'
        yield f'<summary><bdi class="name">{title}</bdi> <bdi class="dim">{facts}</bdi></summary>'
        yield f'<div class="inside"><div class="urn"><bdi>{_breakable(harmless(self.box.urn))}</bdi></div>'
        if self.columns:
            yield from self._columns()
        for number, (writer, query) in enumerate(self.statements, 1):
            heading = f"Statement {number}" if len(self.statements) > 1 else "Statement"
            job = _breakable(self.boxes[writer].full)
            yield f'<details class="statement" id="{self.box.key}-s{number}">'
            yield f"<summary>{heading} of <bdi>{job}</bdi></summary>"
            yield f"<pre><bdi>{escape(query)}</bdi></pre></details>"
        yield from self._evidence()
        yield "</div></details>"

    def _evidence(self) -> Iterator[str]:
        """Yield the evidence of the table's edges, if the proposals have any."""
        if not self.evidence:
            return
        yield '<details class="statement evidence"><summary>Evidence</summary><ul>'
        for job, writes, evidence in self.evidence:
            how = f"{'written' if writes else 'read'} by <bdi>{_breakable(self.boxes[job].full)}</bdi>"
            yield f"<li>{how}: {escape(harmless(evidence.words))}<ul>"
            for query in evidence.queries:
                statement = (
                    f"<pre><bdi>{escape(harmless_lines(query.statement))}</bdi></pre>" if query.statement else ""
                )
                yield f"<li>query <bdi>{escape(harmless(query.run_id))}</bdi>{statement}</li>"
            if evidence.more:
                yield f"<li>and {counted(evidence.more, 'more query')}</li>"
            yield "</ul></li>"
        yield "</ul></details>"

    def _facts(self) -> str:
        count = sum(bool(column.name) for column in self.columns)
        sides = (("written by", self.writers), ("read by", self.readers))
        jobs = [f"{how} {_first_of([self.boxes[key].full for key in keys], _MOST_JOBS)}" for how, keys in sides if keys]
        return " · ".join([f"{count} column{'s' * (count != 1)}", *jobs])

    def _columns(self) -> Iterator[str]:
        """Yield a row for each column; types and sources have a column only if there are any."""
        with_type = any(column.type for column in self.columns)
        with_sources = any(column.sources for column in self.columns)
        yield '<table><thead><tr><th scope="col">column</th>'
        yield '<th scope="col">type</th>' if with_type else ""
        yield '<th scope="col">comes from</th>' if with_sources else ""
        yield "</tr></thead><tbody>"
        for column in self.columns:
            yield f'<tr id="{column.key}" data-column{_steps(column.sources)}>'
            yield f'<th scope="row"><bdi>{_breakable(column.name) or "(the table as a whole)"}</bdi></th>'
            yield f'<td class="type"><bdi>{_breakable(column.type)}</bdi></td>' if with_type else ""
            own = [source for source in column.sources if source not in self.everywhere]
            yield f'<td class="sources">{self._sources(own)}</td></tr>' if with_sources else "</tr>"
        if self.everywhere:
            yield f'<tr class="everywhere"><th scope="row">(every column)</th>{"<td></td>" * with_type}'
            yield f'<td class="sources">{self._sources(self.everywhere)}</td></tr>'
        yield "</tbody></table>"

    def _sources(self, sources: Iterable[ColumnSource]) -> str:
        by_column: dict[str, list[ColumnSource]] = {}
        for source in sources:
            by_column.setdefault(source.column, []).append(source)
        items = [
            f'<li><a href="#{key}"><bdi>{_breakable(self.labels[key])}</bdi></a> '
            f'<bdi class="how">{escape(", ".join(dict.fromkeys(source.label for source in same_column)))}</bdi>'
            f"{self._origins(same_column)}</li>"
            for key, same_column in by_column.items()
        ]
        return f"<ul>{''.join(items)}</ul>" if items else ""

    def _origins(self, sources: Iterable[ColumnSource]) -> str:
        """Return links to the statements, or else to the jobs, of the sources; empty if there is only one of them."""
        origins = {}
        for source in sources:
            if source.statement and len(self.statements) > 1:
                key = f"{self.box.key}-s{source.statement}"
                origins[key] = f'<a class="how" href="#{key}">statement {source.statement}</a>'
            elif not source.statement and len(self.writers) > 1:
                origins[source.job] = f'<bdi class="how">by {escape(self.boxes[source.job].full)}</bdi>'
        return " ".join(["", *origins.values()])


def _everywhere(columns: Iterable[NetworkColumn]) -> tuple[ColumnSource, ...]:
    """Return the sources that affect every column that has sources: filters, join keys."""
    first, *others = [column.sources for column in columns if column.sources] or [()]
    if not others:
        return ()
    shared = set(first).intersection(*others)
    return tuple(source for source in first if source in shared and source.is_indirect)


def _steps(sources: Iterable[ColumnSource]) -> str:
    """Return attributes for the script: the columns of this one's values, and those that only affect its rows."""
    values = dict.fromkeys(f"{source.column}@{source.job}" for source in sources if not source.is_indirect)
    deciding = dict.fromkeys(f"{source.column}@{source.job}" for source in sources if source.is_indirect)
    return "".join(
        f' {name}="{" ".join(steps)}"'
        for name, steps in (("data-values", values), ("data-deciding", deciding))
        if steps
    )


# -- sections about attempts, next to the lineage: their delivery, actions, lists of runs


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """Row of an attempt, or of a run with several of them.

    :param name: of the task and its attempt, or of the run.
    :param state: ``delivered``, ``pending``, ``quarantined``, ``unfinished`` or any other word.
    :param facts: counts and the connection, in a few words.
    :param notes: reasons and warnings, one sentence each.
    :param time: in milliseconds since 1970 UTC.
    :param link: a relative URL.
    :param raw: a relative URL of the proposals.
    """

    name: str
    state: str
    facts: str = ""
    notes: tuple[str, ...] = ()
    time: int | None = None
    link: str = ""
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """Button that sends a request.

    :param name: on the button.
    :param url: a relative URL, for a POST.
    :param doing: shown while the server works.
    """

    name: str
    url: str
    doing: str


def render_attempts(
    heading: str,
    rows: Sequence[AttemptRow],
    *,
    actions: Sequence[Action] = (),
    token: str = "",
    more: str = "",
    zone: tzinfo = UTC,
) -> str:
    """Return a section with a table of rows.

    :param token: sent with each action.
    :param more: a sentence below the table.
    :param zone: the time zone of all times.
    """
    parts = [
        f'<section class="panel" id="attempts"><div class="bar"><h2>{escape(heading)}</h2>',
        *_buttons(actions),
        f'<p id="outcome" role="status" data-token="{escape(token)}"></p></div>',
        *_table(rows, zone),
        f'<p class="hint">{escape(more)}</p>' if more else "",
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _buttons(actions: Iterable[Action]) -> Iterator[str]:
    for action in actions:
        target = f'data-action="{escape(action.url)}" data-doing="{escape(action.doing)}"'
        yield f'<button type="button" class="needs-script" {target}>{escape(action.name)}</button>'


def _table(rows: Sequence[AttemptRow], zone: tzinfo) -> Iterator[str]:
    if not rows:
        return
    yield '<div class="attempts"><table><thead><tr><th scope="col">what</th><th scope="col">lineage</th>'
    yield f'<th scope="col">when ({escape(str(zone))})</th></tr></thead><tbody>'
    for row in rows:
        name = f"<bdi>{escape(harmless(row.name))}</bdi>"
        shown = f'<a href="{escape(row.link)}">{name}</a>' if row.link else name
        known = row.state if row.state in _KNOWN_STATES else ""
        state = f'<span class="state {known}">{escape(harmless(row.state))}</span>'
        raw = f' <a class="how" href="{escape(row.raw)}">proposals</a>' if row.raw else ""
        facts = f" <bdi>{escape(harmless(row.facts))}</bdi>" if row.facts else ""
        notes = "".join(f'<bdi class="facts">{escape(harmless(note))}</bdi>' for note in row.notes)
        yield f'<tr><th scope="row">{shown}</th><td>{state}{facts}{raw}{notes}</td>'
        yield f"<td>{format_time(row.time, zone=zone)}</td></tr>"
    yield "</tbody></table></div>"

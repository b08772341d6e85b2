"""The picture as one HTML page that needs nothing else: runs, lineage, columns, and what could not be read."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.picture.columns import is_indirect
from airflow_provider_spark_datahub.picture.model import Attempt, Graph, RunNode
from airflow_provider_spark_datahub.picture.names import harmless
from airflow_provider_spark_datahub.picture.network import Box, Network, NetworkColumn, Source, network
from airflow_provider_spark_datahub.picture.runs import moment, span
from airflow_provider_spark_datahub.picture.svg import asset, svg
from airflow_provider_spark_datahub.picture.tree import Branch, inner, numbered, title_of

_OPEN_TABLES = 6
"""So many tables are open at first, where there are no more; of more, none is."""
_SHOWN_PROBLEMS = 200
_MOST_UPSTREAMS, _MOST_JOBS = 6, 6
_STATES = ("SUCCESS", "FAILURE", "UP_FOR_RETRY", "SKIPPED", "RUNNING", "COMPLETE")


def page(graph: Graph) -> str:
    """The page. Names in it are text, whatever they hold; it loads nothing, and runs no script but its own."""
    lineage = network(graph)
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
        f"<header><h1><bdi>{escape(title)}</bdi></h1><p>{_counts(graph, lineage)}</p></header>",
        "<main>" if graph.roots else '<main class="without-runs">',
        *_runs(graph),
        *_lineage(lineage),
        *_tables(lineage),
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
    return f"Lineage of {_first(names, 2)}"


def _first(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _counts(graph: Graph, lineage: Network) -> str:
    jobs = sum(box.is_job for box in lineage.boxes.values())
    columns = sum(len({key for key, _ in column.sources}) for columns in lineage.columns.values() for column in columns)
    counts = [
        (sum(1 for _ in graph.runs()), "run"),
        (jobs, "job"),
        (len(lineage.boxes) - jobs, "dataset"),
        (columns, "column edge"),
    ]
    said = " · ".join(f"{count} {name}{'s' * (count != 1)}" for count, name in counts if count)
    problems = len(graph.problems)
    if problems:
        said += f' · <a class="bad" href="#problems">{problems} problem{"s" * (problems != 1)}</a>'
    return said


def _runs(graph: Graph) -> Iterator[str]:
    if not graph.roots:
        return
    yield '<section id="runs" class="panel"><div class="bar"><h2>Runs</h2><span class="dim">times in UTC</span></div>'
    yield '<div class="inside"><ul class="tree">'
    names = {run.urn: title_of(run)[1] for run in graph.runs()}
    # A stack, not a recursion: how deep runs hang below each other is up to the proposals.
    waiting: list[Branch | str] = [Branch(root) for root in reversed(graph.roots)]
    while waiting:
        branch = waiting.pop()
        if isinstance(branch, str):
            yield branch
            continue
        children = inner(branch)
        row = _try(branch.attempt) if branch.attempt else _run(branch.run, names)
        if children:
            yield f"<li><details open><summary>{row}</summary><ul>"
            waiting.append("</ul></details></li>")
            waiting.extend(reversed(children))
        else:
            yield f'<li><div class="leaf">{row}</div></li>'
    yield "</ul></div></section>"


def _run(run: RunNode, names: dict[str, str]) -> str:
    kind, name, note = title_of(run)
    attempts = run.attempts()
    alone = attempts[-1] if attempts and not numbered(attempts) else None
    state = _state(alone.state) if alone else ""
    facts = [*_times(alone), f"{len(run.inputs)} in, {len(run.outputs)} out" if run.inputs or run.outputs else ""]
    waited = [names[urn] for urn in run.upstreams if urn in names]
    if waited:
        facts.append(f"after {_first(waited, _MOST_UPSTREAMS)}")
    shown = f'<bdi class="name">{escape(name)}</bdi>'
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
    yield '<span class="dim needs-script" id="hint">Choose a table or a job to see what it comes from.</span>'
    for name, sign, meaning in (
        ("in", "+", "Zoom in"),
        ("out", "&minus;", "Zoom out"),
        ("all", "fit", "Show all"),
        ("one", "1:1", "Full size"),
    ):
        told = f'title="{meaning}" aria-label="{meaning}"'
        yield f'<button type="button" class="needs-script" id="zoom-{name}" {told}>{sign}</button>'
    yield '</div><div class="view" tabindex="0" role="region" aria-label="Lineage graph; + - and 0 zoom">'
    yield svg(lineage, inside_page=True)
    yield "</div></section>"


def _tables(lineage: Network) -> Iterator[str]:
    datasets = [box for box in lineage.boxes.values() if not box.is_job]
    if not datasets:
        return
    yield '<section id="tables" class="panel"><div class="bar"><h2>Tables and columns</h2>'
    yield '<input class="needs-script" id="filter" type="search" placeholder="Filter" aria-label="Filter tables">'
    yield '<button type="button" class="needs-script" id="every">Open or close all</button></div><div class="inside">'
    is_open = len(datasets) <= _OPEN_TABLES
    labels = {
        column.key: f"{lineage.boxes[key].title}.{column.name or '*'}"
        for key, columns in lineage.columns.items()
        for column in columns
    }
    for box in datasets:
        yield from _table(box, lineage, labels, is_open)
    yield "</div></section>"


def _table(box: Box, lineage: Network, labels: dict[str, str], is_open: bool) -> Iterator[str]:
    columns = lineage.columns[box.key]
    count = sum(bool(column.name) for column in columns)
    writers = [lineage.boxes[source].full for source, target in lineage.links if target == box.key]
    readers = [lineage.boxes[target].full for source, target in lineage.links if source == box.key]
    facts = [
        f"{count} column{'s' * (count != 1)}",
        f"written by {_first(writers, _MOST_JOBS)}" if writers else "",
        f"read by {_first(readers, _MOST_JOBS)}" if readers else "",
    ]
    yield f'<details class="table" id="{box.key}"{" open" if is_open else ""}><summary><bdi class="name">'
    said = escape(" · ".join(fact for fact in facts if fact))
    yield f'{escape(box.title)}</bdi> <bdi class="dim">{said}</bdi></summary>'
    yield f'<div class="inside"><div class="urn"><bdi>{escape(harmless(box.urn))}</bdi></div>'
    if columns:
        yield "<table><thead><tr><th>column</th><th>type</th><th>comes from</th></tr></thead><tbody>"
        everywhere = _everywhere(columns)
        for column in columns:
            yield _column(column, labels, everywhere)
        if everywhere:
            sources = _sources(sorted(everywhere), labels)
            yield f'<tr><td class="dim">(every column)</td><td></td><td>{sources}</td></tr>'
        yield "</tbody></table>"
    yield "</div></details>"


def _everywhere(columns: Iterable[NetworkColumn]) -> set[Source]:
    """What acts on all columns that come from anything: a filter, a join key."""
    made = [column.sources for column in columns if column.sources]
    if len(made) < 2:
        return set()
    return {source for source in made[0] if is_indirect(source[1])}.intersection(*made[1:])


def _column(column: NetworkColumn, labels: dict[str, str], everywhere: set[Source]) -> str:
    own = [source for source in column.sources if source not in everywhere]
    keys = dict.fromkeys(key for key, _ in own)
    came = f' data-from="{" ".join(keys)}"' if keys else ""
    name = escape(column.name) if column.name else "(the table as a whole)"
    return (
        f'<tr id="{column.key}" data-column{came}><td class="column"><bdi>{name}</bdi></td>'
        f'<td class="type"><bdi>{escape(column.type)}</bdi></td><td>{_sources(own, labels)}</td></tr>'
    )


def _sources(sources: Iterable[Source], labels: dict[str, str]) -> str:
    ways: dict[str, list[str]] = {}
    for key, way in sources:
        ways.setdefault(key, []).append(way)
    items = [
        f'<li><a href="#{key}"><bdi>{escape(labels[key])}</bdi></a><bdi class="how">{escape(", ".join(how))}</bdi></li>'
        for key, how in ways.items()
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""


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

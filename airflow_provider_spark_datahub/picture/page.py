"""The picture as one HTML page that needs nothing else: runs, lineage, columns, and what could not be read."""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from html import escape
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.picture.model import Attempt, Graph, RunNode
from airflow_provider_spark_datahub.picture.names import harmless
from airflow_provider_spark_datahub.picture.network import Network, network
from airflow_provider_spark_datahub.picture.page_tables import breakable, first_of, tables
from airflow_provider_spark_datahub.picture.runs import moment, span
from airflow_provider_spark_datahub.picture.svg import asset, svg
from airflow_provider_spark_datahub.picture.tree import Branch, inner, numbered, title_of

_SHOWN_PROBLEMS = 200
_MOST_UPSTREAMS = 6
_SEARCH = (
    '<div role="search" class="needs-script"><input id="find" type="search" placeholder="Find a table, column or job" '
    'aria-label="Find a table, column or job" aria-describedby="found" aria-keyshortcuts="/" autocomplete="off">'
    '<p id="found" role="status"></p></div>'
)
_SKIP = '<a class="skip" href="#tables">Past the graph, to the tables</a>'
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
    yield svg(lineage, inside_page=True)
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

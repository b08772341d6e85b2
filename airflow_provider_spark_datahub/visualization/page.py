"""The HTML page: runs, lineage, tables with their columns, and problems, in one file that loads
nothing.

``assets/page.html`` is its template, in which every text is escaped. This module prepares what it
shows.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import cache, partial
from urllib.parse import quote, urlsplit

from jinja2 import Template
from markupsafe import Markup, escape

from airflow_provider_spark_datahub.foundation.memory import grouped
from airflow_provider_spark_datahub.visualization.export import read_asset, render_svg, template
from airflow_provider_spark_datahub.visualization.model import (
    MOST_UPSTREAMS,
    Graph,
    RunKind,
    RunNode,
    TreeItem,
)
from airflow_provider_spark_datahub.visualization.names import (
    format_duration,
    format_time,
    harmless_lines,
)
from airflow_provider_spark_datahub.visualization.network import (
    Box,
    ColumnSource,
    Network,
    NetworkColumn,
)

_SHORT = 24
_JOINT = re.compile(r"[./_,]+(?=.)")


@dataclass(frozen=True)
class AttemptRow:
    """Row of an attempt, or of a run with several of them.

    :param names: of the task and its attempt, or of the DAG and the run; a cell each.
    :param states: ``delivered``, ``pending``, ``quarantined``, ``unfinished`` or any other word; a
        cell each.
    :param facts: counts and the connections, in a few words; a cell each.
    :param notes: reasons and warnings, one sentence each.
    :param time: in milliseconds since 1970 UTC.
    :param link: a relative URL, of the last name.
    :param raw: a relative URL of the proposals, of the last of the facts.
    :param is_problem: whether the page begins with it.
    """

    names: tuple[str, ...]
    states: tuple[str, ...]
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    time: int | None = None
    link: str = ""
    raw: str = ""
    is_problem: bool = False


@dataclass(frozen=True)
class Attempts:
    """Section with a table of attempts, or of runs, and what can be done with them.

    :param columns: the heading of each column.
    :param actions: a button's name, its relative URL for a POST, and what it shows while the server
        works.
    :param token: sent with each action.
    :param more: a sentence below the table.
    :param filters: by the name of a parameter of the page's address: what it is without a value,
        its value, and the values to choose from.
    """

    heading: str
    columns: Sequence[str]
    rows: Sequence[AttemptRow]
    actions: Sequence[tuple[str, str, str]] = ()
    token: str = ""
    more: str = ""
    filters: Mapping[str, tuple[str, str, Sequence[str]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Frame:
    """Additions of a server to the page.

    :param title: in place of the page's own; only of the window, since the server shows one.
    :param script: runs in addition to the page's own.
    :param empty: why there is no lineage, in place of the page's own sentence.
    :param reached: a relative URL of what a written table reached, without the table's URN at its
        end.
    """

    title: str = ""
    attempts: Attempts | None = None
    script: str = ""
    empty: str = ""
    reached: str = ""


def render_page(graph: Graph | None, zone: tzinfo = UTC, frame: Frame | None = None) -> str:
    """Return the page. Names are escaped; the page loads nothing, and runs no script except its
    own.

    :param graph: ``None`` for a page with nothing but the frame's section.
    :param zone: the time zone of all times.
    """
    frame = frame or Frame()
    shown = graph or Graph()
    network = Network.of(shown)
    no_jobs = "No job among these proposals reads or writes anything."
    nothing = no_jobs if shown.roots else f"Nothing to show: {shown.why_nothing()}"
    names = {run.urn: run.title()[1] for run in shown.runs()}
    page: str = _template().render(
        title=frame.title or _title(shown, network),
        policy=Markup(page_policy(frame)),
        styles=Markup(_styles()),
        scripts=[Markup(script) for script in (read_asset("page.js"), frame.script) if script],
        graph=shown,
        network=network,
        frame=frame,
        zone=zone,
        tree=_tree(shown),
        failure=_failure(map(TreeItem, shown.roots)),
        upstream_names=lambda run: [names[urn] for urn in run.upstreams if urn in names],
        is_drawn=graph is not None,
        drawing=Markup(render_svg(network, inside_page=True)) if network.boxes else "",
        colours=network.platform_colours,
        nothing=frame.empty or nothing,
        tables=_Tables(network),
        has_indirect=any(
            source.is_indirect
            for box in network.datasets
            for column in box.columns
            for source in column.sources
        ),
        time=partial(format_time, zone=zone),
    )
    return page


@cache
def _template() -> Template:
    filters: dict[str, Callable[..., object]] = {
        "lines": harmless_lines, "name": _breakable, "first_of": _first_of, "duration": format_duration,
        "quoted": partial(quote, safe="", errors="surrogatepass"),
    }  # fmt: skip
    return template("page.html", filters, link_of=_link, most_upstreams=MOST_UPSTREAMS)


def page_policy(frame: Frame | None = None) -> str:
    """Return the content security policy of the page: its own styles and scripts, and no other
    resource.

    With a frame, its script may also send requests to the page's own server, and so may its
    filters.
    """
    script = frame.script if frame else ""
    scripts = " ".join(map(_digest, filter(None, (read_asset("page.js"), script))))
    forms = "'self'" if frame and frame.attempts and frame.attempts.filters else "'none'"
    policy = (
        f"default-src 'none'; style-src {_digest(_styles())}; script-src {scripts}; base-uri 'none'"
    )
    policy += f"; form-action {forms}"
    return f"{policy}; connect-src 'self'" if script else policy


def _styles() -> str:
    return f"\n{read_asset('network.css')}{read_asset('page.css')}"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(graph: Graph, network: Network) -> str:
    """Name the page after its runs, else after its jobs."""
    kinds = dict.fromkeys(" ".join(root.title()[:2]) for root in graph.roots)
    names = list(kinds) or [box.full for box in network.jobs]
    return f"Lineage of {_first_of(names, 2)}" if names else "Nothing to show"


def _failure(roots: Iterable[TreeItem]) -> TreeItem | None:
    """Return the origin of the first failure: the deepest failed attempt or run below the first
    failed run.
    """
    waiting, failure = deque(roots), None
    while waiting and not failure:
        item = waiting.popleft()
        if item.fails:
            failure = item
        waiting.extend(item.children())
    while failure and (below := next((child for child in failure.children() if child.fails), None)):
        failure = below
    return failure


def _tree(graph: Graph) -> Iterator[tuple[TreeItem, bool] | None]:
    """Yield the items of the run tree, each with whether it opens a level; ``None`` after the last
    one of a level.
    """
    # A stack, not a recursion: the proposals decide how deep the tree is.
    waiting: list[TreeItem | None] = [TreeItem(root) for root in reversed(graph.roots)]
    while waiting:
        item = waiting.pop()
        children = item.children() if item else []
        yield (item, bool(children)) if item else None
        waiting += [None, *reversed(children)] if children else []


def _link(run: RunNode) -> str:
    """Return the web page of a run, or nothing: any other link might run a script, or hide where it
    leads.

    The page of a Spark driver, which is at the root of its host, ends with its application.
    """
    url = run.external_url or ""
    try:
        scheme, _, path, *_ = urlsplit(url)
    except ValueError:
        return ""
    is_gone = run.kind is RunKind.APPLICATION_RUN and path in ("", "/") and run.state != "RUNNING"
    return url if url.isprintable() and scheme in ("http", "https") and not is_gone else ""


def _breakable(name: str) -> str:
    """Return a name that wraps after a dot, slash, comma or underscore if it is long: as HTML in
    that case.
    """
    return name if len(name) <= _SHORT else Markup(_JOINT.sub(r"\g<0><wbr>", str(escape(name))))


def _first_of(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_Source = tuple[str, str, str, list[tuple[int, str]]]
"""Key and label of a column, how the other comes from it, and each statement, or else job, that
says so.
"""


class _Tables:
    """Tables of a network with their columns and the jobs that write and read them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.labels = {
            column.key: f"{box.title}.{column.name or '*'}"
            for box in network.datasets
            for column in box.columns
        }
        self.writers = defaultdict[str, list[str]](list)
        self.readers = defaultdict[str, list[str]](list)
        for source, target in network.links:
            if network.boxes[source].is_job:
                self.writers[target].append(network.boxes[source].full)
            else:
                self.readers[source].append(network.boxes[target].full)

    def boxes(self) -> list[Box]:
        """Return the tables from right to left in the drawing, those that are only read last."""
        corners = self.network.layout.corners
        by_place = sorted(
            self.network.datasets, key=lambda box: (-corners[box.key][0], corners[box.key][1])
        )
        return sorted(by_place, key=lambda box: not self.writers[box.key])

    def rows(self, box: Box) -> Iterator[tuple[NetworkColumn | None, str, str, list[_Source]]]:
        """Yield columns, each with the steps to it, of its values and of what only decides its
        rows, and its sources.

        The last row, without a column, has the sources of every column, if there are any.
        """
        everywhere = _everywhere(box.columns)
        for column in box.columns:
            steps: dict[bool, dict[str, None]] = {False: {}, True: {}}
            for source in column.sources:
                steps[source.is_indirect][f"{source.column}@{source.job}"] = None
            sources = [source for source in column.sources if source not in everywhere]
            yield (
                column,
                " ".join(steps[False]),
                " ".join(steps[True]),
                list(self._sources(box, sources)),
            )
        if everywhere:
            yield None, "", "", list(self._sources(box, everywhere))

    def _sources(self, box: Box, sources: Iterable[ColumnSource]) -> Iterator[_Source]:
        """Yield sources by column; with their statements, or else their jobs, unless there is only
        one of them.
        """
        writers = self.writers[box.key]
        by_column = grouped((source.column, source) for source in sources)
        for key, sources_of_column in by_column.items():
            origins = [
                (source.statement, source.job if not source.statement else "")
                for source in sources_of_column
                if len(box.statements if source.statement else writers) > 1
            ]
            how = ", ".join(dict.fromkeys(source.label for source in sources_of_column))
            yield key, self.labels[key], how, list(dict.fromkeys(origins))


def _everywhere(columns: Iterable[NetworkColumn]) -> tuple[ColumnSource, ...]:
    """Return the sources that affect every column that has sources: filters, join keys."""
    first, *others = [column.sources for column in columns if column.sources] or [()]
    if not others:
        return ()
    shared = set(first).intersection(*others)
    return tuple(source for source in first if source in shared and source.is_indirect)

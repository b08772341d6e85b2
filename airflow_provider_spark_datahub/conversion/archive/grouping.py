"""What must be known of a run event to tell which others it belongs to, without decoding the rest of it.

Which events of an archive must be converted together.

The events of one application are spread over files, in any order. Each event by itself tells a first group: the run
of its application. Where that is not the whole truth (a query of a query, a Hive session, a run whose events name its
parent only sometimes) the links between runs and groups tell which groups are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from airflow_provider_spark_datahub.conversion.events import RunEvent, parse_run_event, parse_time_ms
from airflow_provider_spark_datahub.conversion.facets.properties import hive_session_id
from airflow_provider_spark_datahub.conversion.runs.fold import APPLICATION, QUERY_TYPES
from airflow_provider_spark_datahub.conversion.runs.hive_sessions import is_of_hive

NO_TIME = -1
"""The time of an event that tells none: before all others of its application."""


class EventHead(NamedTuple):
    """The parts of a run event by which events are grouped and ordered.

    :param time_ms: in ms since the epoch, or :data:`NO_TIME`.
    :param run_id: as in :class:`RunEvent`, likewise :attr:`job_type` and :attr:`parent_run_id`.
    :param session_id: of the ``hive_session`` facet, or empty.
    :param of_hive: Hive sent it.
    """

    time_ms: int
    run_id: str
    job_type: str
    parent_run_id: str
    session_id: str = ""
    of_hive: bool = False


class _Id(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    run_id: str = ""


class _Parent(msgspec.Struct, frozen=True, gc=False):
    run: _Id = _Id()


class _RunFacets(msgspec.Struct, frozen=True, gc=False):
    parent: _Parent = _Parent()
    hive_session: msgspec.Raw = msgspec.Raw()


class _Run(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    run_id: str
    facets: _RunFacets = _RunFacets()


class _JobType(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    job_type: str = ""


class _JobFacets(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    job_type: _JobType = _JobType()


class _Job(msgspec.Struct, frozen=True, gc=False):
    name: str
    facets: _JobFacets = _JobFacets()


class _Event(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    run: _Run
    job: _Job
    event_time: str = ""


_decode = msgspec.json.Decoder(_Event).decode
_SPARK = frozenset({"APPLICATION", "SQL_JOB", "RDD_JOB"})


def read_head(text: bytes) -> EventHead:
    """The head of one event.

    :param text: the event as JSON.
    :raises EventError: where it is no run event, or has no run id or no job name.
    """
    try:
        event = _decode(text)
    except (msgspec.MsgspecError, RecursionError):
        # A null or a number where the spec says otherwise costs only itself.
        return head_of(parse_run_event(text))
    run, job_type = event.run, event.job.facets.job_type.job_type
    # Events of Spark's, which most are, are told here; what else there may be is left to the full reading.
    if job_type not in _SPARK or run.facets.hive_session or not (run.run_id.strip() and event.job.name.strip(".")):
        return head_of(parse_run_event(text))
    time_ms = parse_time_ms(event.event_time)
    return EventHead(
        NO_TIME if time_ms is None else time_ms,
        run.run_id.strip().lower(),
        job_type,
        run.facets.parent.run.run_id.strip().lower(),
    )


def head_of(event: RunEvent) -> EventHead:
    """The head of an event that is decoded already."""
    return EventHead(
        NO_TIME if event.time_ms is None else event.time_ms,
        event.run_id,
        event.job_type,
        event.parent_run_id,
        hive_session_id(event),
        is_of_hive(event),
    )


LinkKind = Literal["application", "query", "run", "child"]


class Link(NamedTuple):
    """A run and a group in which something of it is.

    :param kind: ``application``: the run is one, and the group is its own; ``query``: it is one that does not say of
        what; ``run``: the group holds the run, or queries that name it as their parent; ``child``: the group holds a
        run that names it as its parent, and that belongs to it if the one is an application or the other a query.
    """

    kind: LinkKind
    run_id: str
    group: str


def group_of(head: EventHead) -> str:
    """The first group of an event."""
    if head.session_id:
        return f"hive session {head.session_id}"
    if head.job_type in QUERY_TYPES and head.parent_run_id:
        return head.parent_run_id
    return head.run_id


def links_of(head: EventHead) -> Iterator[Link]:
    """What an event tells of how groups belong together.

    It is what :meth:`Fold.applications <airflow_provider_spark_datahub.conversion.runs.fold.Fold.applications>` and
    :class:`~airflow_provider_spark_datahub.conversion.runs.hive_sessions.HiveSessions` join by, or more than that.
    """
    group, is_query = group_of(head), head.job_type in QUERY_TYPES
    yield Link("application" if head.job_type == APPLICATION else "run", head.run_id, group)
    if is_query and head.parent_run_id in ("", head.run_id):
        yield Link("query", head.run_id, group)
    if head.session_id:
        # A session's own run may be called what the session is.
        yield Link("run", head.session_id.lower(), group)
    if head.parent_run_id and head.job_type != APPLICATION:
        together = is_query or head.of_hive or head.session_id
        yield Link("run" if together else "child", head.parent_run_id, group)


def joined(links: Iterable[Link]) -> Iterator[tuple[str, str]]:
    """Pairs of groups that are one.

    :param links: all of them, or at least those of each run that has links to several groups, and of each run that a
        child names which is to be joined with it.
    """
    groups: dict[str, set[str]] = {}
    children = []
    applications, queries = set(), set()
    for link in links:
        if link.kind == "child":
            children.append(link)
            continue
        groups.setdefault(link.run_id, set()).add(link.group)
        if link.kind == "application":
            applications.add(link.run_id)
        elif link.kind == "query":
            queries.add(link.run_id)
    queries.update(run_id for run_id, several in groups.items() if len(several) > 1)
    for child in children:
        if child.run_id in applications or child.group in queries:
            groups.setdefault(child.run_id, {child.run_id}).add(child.group)
    for several in groups.values():
        first, *others = sorted(several)
        yield from ((first, other) for other in others)


def joining(links: Iterable[Link]) -> Iterator[Link]:
    """Those of some links that :func:`joined` needs, which few are: a run's events are in one group nearly always.

    :param links: of some runs all, and besides all of children whose groups are called as these runs are.
    """
    distinct = set(links)
    groups: dict[str, str] = {}
    applications, queries = set(), set()
    for link in distinct:
        if link.kind == "child":
            continue
        if groups.setdefault(link.run_id, link.group) != link.group:
            queries.add(link.run_id)
        if link.kind == "application":
            applications.add(link.run_id)
    needed = set(queries)
    queries.update(link.run_id for link in distinct if link.kind == "query")
    children = [
        link for link in distinct if link.kind == "child" and (link.run_id in applications or link.group in queries)
    ]
    needed.update(child.run_id for child in children)
    needed.update(child.group for child in children)
    yield from children
    yield from (link for link in distinct if link.kind != "child" and link.run_id in needed)


def united(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """From each group that is one with others to the name that they share: the least of theirs."""
    above: dict[str, str] = {}

    def root(group: str) -> str:
        while (parent := above.setdefault(group, group)) != group:
            above[group] = above[parent]
            group = parent
        return group

    for one, other in pairs:
        low, high = sorted((root(one), root(other)))
        above[high] = low
    return {group: root(group) for group in above}

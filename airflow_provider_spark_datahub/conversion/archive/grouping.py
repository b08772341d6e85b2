"""Groups of an archive: which events must be converted together.

The events of one application are spread over files, in any order. The head of an event, which is read without decoding
the rest, names a first group: the run of its application. A query of a query, a Hive session, or a run whose events
name its parent only sometimes need more: links between runs and groups show which groups to merge.

Tests: ``tests/conversion/test_archive.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from airflow_provider_spark_datahub.conversion.events import APPLICATION, QUERY_TYPES, RunEvent, parse_time_ms

NO_TIME = -1
"""The time of an event without one: before all others of its application."""


LinkKind = Literal["application", "query", "run", "child"]


class Link(NamedTuple):
    """A connection between a run and a group.

    :param kind: ``application``: the run is an application with its own group. ``query``: the run is a query that names
        no application. ``run``: the group holds events of the run, or queries that name it as their parent. ``child``:
        the group holds a run that names this run as its parent. It belongs to it only if the parent is an application
        or the child is a query.
    """

    kind: LinkKind
    run_id: str
    group: str


class EventHead(NamedTuple):
    """The parts of a run event that decide its group and order.

    :param time_ms: in ms since the epoch, or :data:`NO_TIME`.
    :param run_id: as in :class:`RunEvent`, likewise :attr:`job_type` and :attr:`parent_run_id`.
    :param session_id: of the ``hive_session`` facet, or empty.
    """

    time_ms: int
    run_id: str
    job_type: str
    parent_run_id: str
    session_id: str = ""

    @classmethod
    def read(cls, text: bytes) -> EventHead:
        """Read the head of an event.

        :raises EventError: if it is not a run event, or has no run id or job name.
        """
        try:
            event = _decode(text)
        except (msgspec.MsgspecError, RecursionError):
            # The full parser tolerates a null or a number that the spec does not allow.
            return cls.of(RunEvent.parse(text))
        run, job_type = event.run, event.job.facets.job_type.job_type
        # Most events are Spark's, which the head decides. The full parser reads the others.
        if job_type not in _SPARK or run.facets.hive_session or not (run.run_id.strip() and event.job.name.strip(".")):
            return cls.of(RunEvent.parse(text))
        time_ms = parse_time_ms(event.event_time)
        parent_run_id = run.facets.parent.run.run_id.strip().lower()
        return cls(NO_TIME if time_ms is None else time_ms, run.run_id.strip().lower(), job_type, parent_run_id)

    @classmethod
    def of(cls, event: RunEvent) -> EventHead:
        """Return the head of a decoded event."""
        return cls(
            NO_TIME if event.time_ms is None else event.time_ms,
            event.run_id,
            event.job_type,
            event.parent_run_id,
            event.names.hive_session_id,
        )

    @property
    def group(self) -> str:
        """Return the first group of the event."""
        if self.session_id:
            return f"hive session {self.session_id}"
        if self.job_type in QUERY_TYPES and self.parent_run_id:
            return self.parent_run_id
        return self.run_id

    def links(self) -> Iterator[Link]:
        """Yield what the event shows about groups that belong together.

        The links cover everything by which
        :meth:`Fold.applications <airflow_provider_spark_datahub.conversion.runs.fold.Fold.applications>` and
        :class:`~airflow_provider_spark_datahub.conversion.runs.hive_sessions.HiveSessions` join runs.
        """
        group, is_query = self.group, self.job_type in QUERY_TYPES
        yield Link("application" if self.job_type == APPLICATION else "run", self.run_id, group)
        if is_query and self.parent_run_id in ("", self.run_id):
            yield Link("query", self.run_id, group)
        if self.parent_run_id and self.job_type != APPLICATION:
            yield Link("run" if is_query or self.session_id else "child", self.parent_run_id, group)


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


def merge_groups(links: Iterable[Link]) -> dict[str, str]:
    """Map each group that belongs to others to their shared name: the least of their names.

    :param links: all links. Those of a run that is in one group are not needed, unless it is the parent or the name of
        the group of a child that belongs to its parent.
    """
    above: dict[str, str] = {}

    def root(group: str) -> str:
        while (parent := above.setdefault(group, group)) != group:
            above[group] = above[parent]
            group = parent
        return group

    def join(group: str, other: str) -> None:
        if group != other:
            low, high = sorted((root(group), root(other)))
            above[high] = low

    joining = list(_joining(links))
    first: dict[str, str] = {}
    for link in joining:
        if link.kind != "child":
            join(first.setdefault(link.run_id, link.group), link.group)
    for link in joining:
        if link.kind == "child":
            join(first.get(link.run_id, link.run_id), link.group)
    return {group: root(group) for group in above}


def _joining(links: Iterable[Link]) -> Iterator[Link]:
    """Yield the few links that join groups. Nearly always, a run's events are in one group."""
    first: dict[str, str] = {}
    of_runs: list[Link] = []
    children: list[Link] = []
    for link in set(links):
        (children if link.kind == "child" else of_runs).append(link)
    split = {link.run_id for link in of_runs if first.setdefault(link.run_id, link.group) != link.group}
    applications = {link.run_id for link in of_runs if link.kind == "application"}
    queries = split | {link.run_id for link in of_runs if link.kind == "query"}
    joined = [child for child in children if child.run_id in applications or child.group in queries]
    needed = split | {name for child in joined for name in (child.run_id, child.group)}
    yield from joined
    yield from (link for link in of_runs if link.run_id in needed)

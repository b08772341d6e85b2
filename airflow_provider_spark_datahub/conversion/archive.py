"""Conversion of archives: group events, convert each group, and keep of every aspect what DataHub
would have kept.

The events of one application are spread over files, in any order. The head of an event names a
first group: the run of its application. A query of a query, a Hive session, or a run whose events
name its parent only sometimes need more: links between runs and groups show which groups to merge.

Each group is converted by itself, in the order of its events' times, as its task would convert it.
Versions of an aspect are replayed in the order of time: a whole version replaces the earlier ones,
and a patch adds to them. So the last whole version and the patches after it are kept. Applications
of one ``spark-submit`` keep each other's edges, as they do when their task delivers them: the first
one replaces edges if the events of all are complete, and the others only add edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import msgspec

from airflow_provider_spark_datahub.conversion.aspects import edge_patch, proposals_of
from airflow_provider_spark_datahub.conversion.convert import Conversion, Converter
from airflow_provider_spark_datahub.conversion.events import (
    APPLICATION,
    QUERY_TYPES,
    EventReader,
    RunEvent,
)
from airflow_provider_spark_datahub.conversion.proposals import ChangeType, Proposal
from airflow_provider_spark_datahub.conversion.retirement import retired_job
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending, JobLineage
from airflow_provider_spark_datahub.conversion.settings import LineageSettings

STILL_RUNNING_MS = 24 * 3600 * 1000
"""An application without an end counts as killed if the archive has events that are this much later
than its last.
"""
LATEST, ADDED, RUN = "the latest version", "added since the latest version", "run history"
"""Reasons why a proposal is kept."""

_EDGES = "dataJobInputOutput"
_NO_EDGES, _REMOVED = (proposal.encoded_value for proposal in retired_job(""))
_TIME_SERIES = frozenset({"operation"})
_OPEN_SUBMISSIONS = 100


# -- from events to groups

NO_TIME = -1
"""The time of an event without one: before all others of its application."""


LinkKind = Literal["application", "query", "run", "child"]


class Link(NamedTuple):
    """A connection between a run and a group.

    :param kind: ``application``: the run is an application with its own group. ``query``: the run
        is a query that names no application. ``run``: the group holds events of the run, or queries
        that name it as their parent. ``child``: the group holds a run that names this run as its
        parent. It belongs to it only if the parent is an application or the child is a query.
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
    def reader(cls) -> Callable[[bytes], EventHead]:
        """Return a function that reads the head of an event, and raises EventError if it has no run
        id or job name.
        """
        read = EventReader().read
        return lambda text: cls.of(read(text))

    @classmethod
    def of(cls, event: RunEvent) -> EventHead:
        """Return the head of a decoded event."""
        return cls(
            NO_TIME if event.time_ms is None else event.time_ms,
            event.run_id,
            event.job.texts.job_type,
            event.names.parent_run_id,
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
        :meth:`Fold.applications
            <airflow_provider_spark_datahub.conversion.runs.fold.Fold.applications>` and
        :class:`~airflow_provider_spark_datahub.conversion.runs.hive_sessions.HiveSessions` join
            runs.
        """
        group, is_query = self.group, self.job_type in QUERY_TYPES
        yield Link("application" if self.job_type == APPLICATION else "run", self.run_id, group)
        if is_query and self.parent_run_id in ("", self.run_id):
            yield Link("query", self.run_id, group)
        if self.parent_run_id and self.job_type != APPLICATION:
            yield Link("run" if is_query or self.session_id else "child", self.parent_run_id, group)


class _SharedNames:
    """Shared names of groups that belong together: the least of their names."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def join(self, group: str, other: str) -> None:
        if group != other:
            low, high = sorted((self._root(group), self._root(other)))
            self._above[high] = low

    def by_group(self) -> dict[str, str]:
        return {group: self._root(group) for group in self._above}

    def _root(self, group: str) -> str:
        while (parent := self._above.setdefault(group, group)) != group:
            self._above[group] = self._above[parent]
            group = parent
        return group


def merge_groups(links: Iterable[Link]) -> dict[str, str]:
    """Map each group that belongs to others to their shared name: the least of their names.

    :param links: all links. Those of a run that is in one group are not needed, unless it is the
        parent or the name of the group of a child that belongs to its parent.
    """
    shared = _SharedNames()
    first: dict[str, str] = {}
    applications: set[str] = set()
    queries: set[str] = set()
    children: list[Link] = []
    for link in links:
        if link.kind == "child":
            children.append(link)
            continue
        group = first.setdefault(link.run_id, link.group)
        if group != link.group:
            shared.join(group, link.group)
            queries.add(link.run_id)
        if link.kind == "application":
            applications.add(link.run_id)
        elif link.kind == "query":
            queries.add(link.run_id)
    for child in children:
        if child.run_id in applications or child.group in queries:
            shared.join(first.get(child.run_id, child.run_id), child.group)
    return shared.by_group()


class ArchivedEvent(NamedTuple):
    """An event and its position. Events are ordered by time, then by file and offset.

    :param offset: the offset of the event in the decompressed file, in bytes.
    :param text: the event as JSON in UTF-8.
    """

    time_ms: int
    file: str
    offset: int
    text: bytes


class _ArchiveProblem(NamedTuple):
    """A line or dataset that could not be converted, and why.

    :param file: the file of the line; empty for a dataset.
    """

    file: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class ArchiveFilter:
    """Part of an archive to convert. A run is selected by its end, so that no run is converted in
    part.

    :param since_ms: only runs that ended at this time or later, in ms since the epoch.
    :param until_ms: only runs that ended before this time.
    :param applications: names of flows, with ``*`` for any text; empty for all.
    :param run_history: keep every run, not only the last one of each job.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    applications: tuple[str, ...] = ()
    run_history: bool = False

    def matches(self, job: JobLineage) -> bool:
        """Return whether to keep a job's run. A run without any time is kept unless times are asked
        for.
        """
        end_ms = job.run.end_ms
        if self.since_ms is not None and (end_ms is None or end_ms < self.since_ms):
            return False
        if self.until_ms is not None and (end_ms is None or end_ms >= self.until_ms):
            return False
        flow_id = job.definition.flow.flow_id
        return not self.applications or any(
            fnmatchcase(flow_id, name) for name in self.applications
        )


@dataclass(frozen=True, slots=True)
class ArchiveFacts:
    """Facts about a whole archive on which the conversion of each group depends.

    :param until_ms: the time of the last event.
    :param damaged: files with unreadable parts: runs with events in them may lack edges.
    """

    until_ms: int = NO_TIME
    damaged: frozenset[str] = frozenset()


class AspectVersion(NamedTuple):
    """An aspect as one run wrote it. Versions sort in the order in which they are replayed.

    :param place: the entity's URN; for a DataJob and a run, that of the application's DataJob, so
        that an application's DataJobs and runs stay together.
    :param time_ms: the end of the run, in ms since the epoch.
    :param number: the position among all aspects of the run.
    :param submission: the run that started this one: applications of one ``spark-submit`` share it;
        may be empty.
    :param content: the aspect as JSON in UTF-8.
    """

    place: str
    time_ms: int
    run_id: str
    number: int
    submission: str
    entity_type: str
    entity_urn: str
    aspect_name: str
    change_type: ChangeType
    content: bytes


class _KeptProposal(NamedTuple):
    """A proposal to write.

    :param place: as in :class:`AspectVersion`.
    :param time_ms: the time of the last version in it.
    :param reason: why it is kept.
    """

    place: str
    time_ms: int
    proposal: Proposal
    reason: str


# -- from a group of events to versions of aspects


class GroupConverter:
    """Converter of one group of events. Its memory grows with the number of runs.

    :ivar problems: events and datasets that could not be converted.
    :ivar job_count: jobs that matched the filter.
    """

    def __init__(
        self, settings: LineageSettings, wanted: ArchiveFilter, facts: ArchiveFacts
    ) -> None:
        self._settings = settings
        self._wanted = wanted
        self._facts = facts
        self._converter = Converter(settings)
        self._complete = True
        self._last_ms = NO_TIME
        self.problems: list[_ArchiveProblem] = []
        self.job_count = 0

    def add(self, event: ArchivedEvent) -> None:
        """Add an event; events must come in their order."""
        error = self._converter.add(event.text)
        if error is not None:
            self.problems.append(_ArchiveProblem(event.file, event.offset, str(error)))
        self._complete = self._complete and event.file not in self._facts.damaged
        self._last_ms = max(self._last_ms, event.time_ms)

    def finish(self) -> Iterator[AspectVersion]:
        """Yield the aspects that the runs of the group would have written."""
        silent = self._facts.until_ms - self._last_ms >= STILL_RUNNING_MS
        final = silent or self._converter.all_ended
        ending = Ending(events_complete=self._complete, final=final, one_submission=False)
        conversion = self._converter.finish(ending, known_until_ms=self._facts.until_ms)
        conversion.jobs = [job for job in conversion.jobs if self._wanted.matches(job)]
        self.job_count = len(conversion.jobs)
        self.problems += [
            _ArchiveProblem("", 0, f"dataset {dataset.namespace} {dataset.name}: {reason}")
            for dataset, reason in conversion.diagnostics.unusable_datasets.items()
        ]
        yield from _versions(conversion, self._settings, run_history=self._wanted.run_history)


def _versions(
    conversion: Conversion, settings: LineageSettings, *, run_history: bool
) -> Iterator[AspectVersion]:
    parents = {job.run.parent_urn for job in conversion.jobs}
    sessions = {session.urn: session for session in conversion.sessions if session.urn in parents}
    for urn, session in sessions.items() if run_history else ():
        end_ms = max((activity.end_ms for activity in session.activities), default=NO_TIME)
        yield from _numbered(urn, end_ms, urn, "", session.proposals())
    for job in conversion.jobs:
        proposals = proposals_of(job, settings)
        if job.run.parent_urn in sessions and not run_history:
            # Only the last run of each job is kept, and with it the session above it.
            proposals = [*sessions[job.run.parent_urn].proposals(), *proposals]
        time_ms = NO_TIME if job.run.end_ms is None else job.run.end_ms
        yield from _numbered(job.job_urn, time_ms, job.run.id, job.run.parent_urn or "", proposals)


def _numbered(
    job_urn: str, time_ms: int, run_id: str, submission: str, proposals: Iterable[Proposal]
) -> Iterator[AspectVersion]:
    for number, proposal in enumerate(proposals):
        entity_type, urn = proposal.entity_type, proposal.entity_urn
        yield AspectVersion(
            job_urn if entity_type in ("dataProcessInstance", "dataJob") else urn,
            time_ms,
            run_id,
            number,
            submission,
            entity_type,
            urn,
            proposal.aspect_name,
            proposal.change_type,
            proposal.encoded_value,
        )


# -- from versions of aspects to what DataHub would have kept


def compact_versions(
    versions: Iterable[AspectVersion], *, run_history: bool
) -> Iterator[_KeptProposal]:
    """Yield the proposals that DataHub would have kept, place by place, in the order in which to
    write them.

    :param versions: sorted, at least by place and time.
    :param run_history: keep every run and operation, not only the last one of each place.
    """
    for _, versions_of_place in groupby(versions, key=itemgetter(0)):
        yield from _compact_place(versions_of_place, run_history=run_history)


def _compact_place(
    versions: Iterable[AspectVersion], *, run_history: bool
) -> Iterator[_KeptProposal]:
    aspects: dict[tuple[str, str], _Aspect] = {}
    edges = _Edges()
    last_run: list[AspectVersion] = []
    for version in versions:
        if version.entity_type == "dataProcessInstance" or version.aspect_name in _TIME_SERIES:
            if run_history:
                yield _kept(version, RUN)
            elif last_run and last_run[0].run_id == version.run_id:
                last_run.append(version)
            else:
                last_run = [version]
        elif version.aspect_name == _EDGES:
            edges.add(version)
        else:
            aspects.setdefault((version.entity_urn, version.aspect_name), _Aspect()).add(version)
    edges.close()
    for (urn, _), aspect in aspects.items():
        if urn not in edges.left_out:
            yield from aspect.kept()
    yield from edges.kept()
    for version in last_run:
        yield _kept(version, LATEST)


def _kept(version: AspectVersion, reason: str) -> _KeptProposal:
    proposal = Proposal(
        version.entity_type,
        version.entity_urn,
        version.aspect_name,
        msgspec.Raw(version.content),
        version.change_type,
    )
    return _KeptProposal(version.place, version.time_ms, proposal, reason)


@dataclass(slots=True)
class _Aspect:
    """The last whole version of an aspect, and the patches after it as one.

    :param last: the last patch.
    :param operations: those of the patches by path: the last operation on a path wins.
    """

    whole: AspectVersion | None = None
    last: AspectVersion | None = None
    operations: dict[str, Any] = field(default_factory=dict)
    keys: Any = None

    def add(self, version: AspectVersion) -> None:
        if version.change_type == "PATCH":
            self.patch(version)
        else:
            self.whole, self.last, self.operations, self.keys = version, None, {}, None

    def patch(self, version: AspectVersion) -> None:
        """Add the operations of a patch, or all edges of a whole version."""
        content = msgspec.json.decode(version.content)
        if version.change_type != "PATCH":
            content = edge_patch(content)
        elif isinstance(content, dict):
            self.keys, content = content["arrayPrimaryKeys"], content["patch"]
        self.join(version, content)

    def add_only(self) -> None:
        """Turn the whole version into additions, before the patches."""
        if self.whole is None:
            return
        first, last, others = self.whole, self.last, self.operations
        self.whole, self.operations = None, {}
        self.patch(first)
        self.join(last, others.values())

    def join(self, last: AspectVersion | None, operations: Iterable[Any]) -> None:
        for operation in operations:
            self.operations.pop(operation["path"], None)
            self.operations[operation["path"]] = operation
        self.last = last or self.last

    def kept(self) -> Iterator[_KeptProposal]:
        if self.whole is not None:
            yield _kept(self.whole, LATEST)
        if self.last is None or not self.operations:
            return
        operations: Any = list(self.operations.values())
        if self.keys is not None:
            operations = {"arrayPrimaryKeys": self.keys, "patch": operations}
        yield _kept(
            self.last._replace(change_type="PATCH", content=msgspec.json.encode(operations)), ADDED
        )


class _Submission:
    """The edges of one application's DataJobs by the applications of one ``spark-submit``.

    The first application's are whole as long as the events of all applications are complete; the
    others are added.
    """

    def __init__(self, first: AspectVersion) -> None:
        self.jobs: dict[str, _Aspect] = {}
        self.patch_only = False
        self.last = first

    def add(self, version: AspectVersion) -> None:
        self.last = version
        if version.change_type == "PATCH" and not self.patch_only:
            self.patch_only = True
            for aspect in self.jobs.values():
                aspect.add_only()
        aspect = self.jobs.setdefault(version.entity_urn, _Aspect())
        if self.patch_only or aspect.whole is not None:
            aspect.patch(version)
        else:
            aspect.whole = version


class _Edges:
    """The edges of one application's DataJobs over many submissions.

    Applications of one submission may be up to a hundred submissions of the job apart.

    :ivar left_out: URNs of DataJobs that the last complete submission lacks, or whose edges the
        application's own DataJob has.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, _Aspect] = {}
        self._open: dict[str, _Submission] = {}
        self.left_out: set[str] = set()

    def add(self, version: AspectVersion) -> None:
        submission = version.submission or f"run {version.run_id}"
        if submission not in self._open:
            self._open[submission] = _Submission(version)
            if len(self._open) > _OPEN_SUBMISSIONS:
                self._close(next(iter(self._open)))
        self._open[submission].add(version)

    def close(self) -> None:
        for submission in list(self._open):
            self._close(submission)

    def kept(self) -> Iterator[_KeptProposal]:
        for urn, aspect in self._jobs.items():
            yield from aspect.kept()
            if urn in self.left_out and aspect.whole is not None:
                yield _kept(aspect.whole._replace(aspect_name="status", content=_REMOVED), LATEST)

    def _close(self, submission: str) -> None:
        closed = self._open.pop(submission)
        if closed.patch_only:
            self._add(closed)
            return
        retired = self._jobs.keys() - closed.jobs.keys() - self.left_out
        for urn in retired:
            self._jobs[urn] = _Aspect(closed.last._replace(entity_urn=urn, content=_NO_EDGES))
        self.left_out = (self.left_out | retired) - closed.jobs.keys()
        self._jobs |= closed.jobs

    def _add(self, closed: _Submission) -> None:
        """Add edges, except to DataJobs whose edges the application's own has."""
        known = _Aspect()
        own = self._jobs.get(closed.last.place)
        if own is not None and own.whole is not None:
            known.patch(own.whole)
        for urn, aspect in closed.jobs.items():
            edges = {path for path in aspect.operations if "DatasetEdges/" in path}
            is_new = urn not in self._jobs or urn in self.left_out
            if is_new and edges and edges <= known.operations.keys():
                self.left_out.add(urn)
                continue
            self.left_out.discard(urn)
            self._jobs.setdefault(urn, _Aspect()).join(aspect.last, aspect.operations.values())

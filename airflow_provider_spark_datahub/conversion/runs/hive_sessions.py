"""Hive sessions: the queries of one session below one run (conversion rules, section 9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.events import (
    FAILED_TYPES,
    TERMINAL_TYPES,
    RunEvent,
    as_object,
    as_text,
    parse_time_ms,
)
from airflow_provider_spark_datahub.conversion.facets.properties import (
    HIVE_SESSION,
    hive_session_id,
    hive_session_properties,
)
from airflow_provider_spark_datahub.conversion.facets.run import KIND, run_event, run_properties
from airflow_provider_spark_datahub.conversion.proposals import Proposal

_APPLICATION = "APPLICATION"
_SPARK_TYPES = frozenset({"SQL_JOB", "RDD_JOB", _APPLICATION})
_NEVER = 1 << 63


@dataclass(frozen=True, slots=True)
class Activity:
    """A time in which a session was never idle for as long as the timeout. Times are in ms since the epoch.

    :param result: the event type that stands for how the session's queries ended up to here (``COMPLETE``, ``FAIL``,
        ``ABORT``); empty where none of them told its end.
    :param closed: the session was idle for the timeout after it.
    """

    start_ms: int
    end_ms: int
    result: str
    closed: bool


@dataclass(frozen=True, slots=True)
class HiveSession:
    """One Hive session.

    :param session_id: as the ``hive_session`` facet has it; where no facet tells, the id of the session's own run.
    :param urn: its DataProcessInstance.
    :param parent_urn: the DataProcessInstance below which it runs.
    :param told: the session's own run sent events, from which it is written; only what these lack is added.
    :param told_end: those events tell its end, or are coalesced with its queries into one job, whose end it is.
    :param properties: the facet's, by key.
    :param activities: when it was active, in order; more than one where it went on after it had been closed.
    """

    session_id: str
    urn: str
    parent_urn: str | None
    told: bool
    told_end: bool
    properties: dict[str, str]
    activities: tuple[Activity, ...]

    @property
    def closed(self) -> bool:
        """Whether its end was told, or nothing came of it for the timeout."""
        return self.told_end or (bool(self.activities) and self.activities[-1].closed)


@dataclass(slots=True)
class _Run:
    """What the events of one run say of sessions."""

    run_id: str
    session_id: str = ""
    parent: str = ""
    parent_is_session: bool = False
    may_be_session: bool = True
    is_application: bool = False
    first_ms: int | None = None
    last_ms: int | None = None
    failures: set[str] = field(default_factory=set)
    ended: bool = False

    def learn(self, event: RunEvent, session_id: str) -> None:
        self.session_id = session_id or self.session_id
        if event.parent_run_id and event.parent_run_id != self.run_id:
            self.parent = event.parent_run_id
        self.parent_is_session = self.parent_is_session or _names_its_session_as_parent(event)
        self.may_be_session = self.may_be_session and not _is_query(event)
        self.is_application = self.is_application or event.job_type == _APPLICATION
        if event.time_ms is not None:
            self.first_ms = event.time_ms if self.first_ms is None else min(self.first_ms, event.time_ms)
            self.last_ms = event.time_ms if self.last_ms is None else max(self.last_ms, event.time_ms)
        self.ended = self.ended or event.type in TERMINAL_TYPES
        if event.type in FAILED_TYPES:
            self.failures.add(event.type)


@dataclass(slots=True)
class _Group:
    """The queries of one session, and its own run where there is one.

    :param own: the id of its own run, or empty.
    :param told: that run, where it sent events.
    """

    session_id: str
    own: str = ""
    told: _Run | None = None
    queries: list[_Run] = field(default_factory=list)

    @property
    def parent(self) -> str:
        """The id of the run below which the session runs: the one that its own run, or all of its queries, name."""
        if self.told is not None:
            return self.told.parent
        members = {query.run_id for query in self.queries}
        named = {query.parent for query in self.queries} - members - {"", self.own}
        return named.pop() if len(named) == 1 else ""

    def parents(self, cluster: str | None) -> Iterator[tuple[str, str]]:
        """Each query's run id with the URN of the run below which it belongs."""
        urn, session_parents = self.urn(cluster), ("", self.own, self.parent)
        for query in self.queries:
            yield query.run_id, urn if query.parent in session_parents else urns.dpi_urn(query.parent)

    def urn(self, cluster: str | None) -> str:
        """The session's DataProcessInstance."""
        if self.own:
            return urns.dpi_urn(self.own)
        key = {"orchestrator": "hive", "session_id": self.session_id}
        return urns.dpi_urn(urns.guid({**key, "cluster": cluster} if cluster else key))


class HiveSessions:
    """Collects the sessions of a stream of events, in whatever order these come.

    What it keeps grows with the runs and sessions of Hive, not with the number of events. Ask it after the last event.

    A session has either a run of its own, told by the producer (run id = session id, or the ``parent`` facet of its
    queries names a run that is called ``<user>@<client address>`` or that sent events of Hive without being a query),
    or the facet alone, and then the run is named after the session id. Job namespaces are no part of that name: a user
    may set another one for each query of a session, and the hook of OpenLineage 1.34 made one of each query's text.

    :param timeout_ms: a session that sent no event for so long is closed.
    :param cluster: the configured ``platform_instance``, which tells Hives with the same session ids apart.
    :raises ValueError: where the timeout is not positive.
    """

    def __init__(self, timeout_ms: int, cluster: str | None = None) -> None:
        if timeout_ms <= 0:
            raise ValueError(f"the timeout of Hive sessions is {timeout_ms} ms, want more than 0")
        self._timeout_ms = timeout_ms
        self._cluster = cluster
        self._runs: dict[str, _Run] = {}
        # Of a session's values the earliest counts, so that the order of the events does not.
        self._values: dict[str, dict[str, tuple[int, str]]] = {}
        self._latest_ms = -_NEVER
        self._groups: list[_Group] | None = None
        self._parents: dict[str, str] = {}

    def observe(self, event: RunEvent) -> None:
        """Take one more event, of any producer: those of others only tell how late it is."""
        if event.time_ms is not None and event.time_ms > self._latest_ms:
            self._latest_ms = event.time_ms
        if not is_of_hive(event):
            return
        session_id = hive_session_id(event)
        self._groups = None
        run = self._runs.get(event.run_id)
        if run is None:
            run = self._runs[event.run_id] = _Run(event.run_id)
        run.learn(event, session_id)
        if session_id:
            self._learn_values(session_id, event)

    def sessions(self, known_until_ms: int | None = None) -> list[HiveSession]:
        """All sessions, by start and id.

        :param known_until_ms: up to when it is known that there are no more events, where that is later than the
            last event: closes the sessions that have been idle for the timeout by then.
        """
        until_ms = self._latest_ms if known_until_ms is None else max(self._latest_ms, known_until_ms)
        found = [self._session(group, until_ms) for group in self._resolved()]
        return sorted(found, key=_by_start)

    def parent_of(self, run_id: str) -> str | None:
        """The DataProcessInstance below which a query's run belongs; ``None`` for a run that is of no session.

        That is its session, unless the query itself names another parent that is not the session's parent as well: a
        task whose lineage must not be lost to a connection that it shares with others.

        :param run_id: the query's, as in :class:`RunEvent`.
        """
        self._resolved()
        return self._parents.get(run_id)

    def _learn_values(self, session_id: str, event: RunEvent) -> None:
        known = self._values.setdefault(session_id, {})
        time_ms = _NEVER if event.time_ms is None else event.time_ms
        for key, value in hive_session_properties(event.run_facets[HIVE_SESSION]).items():
            if key != "creationTime" or parse_time_ms(value) is not None:
                known[key] = min(known.get(key, (time_ms, value)), (time_ms, value))

    def _resolved(self) -> list[_Group]:
        if self._groups is None:
            self._groups = list(self._grouped().values())
            self._parents = {
                run_id: parent for group in self._groups for run_id, parent in group.parents(self._cluster)
            }
        return self._groups

    def _grouped(self) -> dict[str, _Group]:
        """Groups by the id of the session."""
        groups: dict[str, _Group] = {}
        for run in self._runs.values():
            if run.session_id:
                group = groups.setdefault(run.session_id, _Group(run.session_id))
                if run.run_id != run.session_id.lower():
                    group.queries.append(run)
        self._find_own_runs(groups)
        by_own = {group.own: group for group in groups.values() if group.own}
        for run in self._runs.values():
            if run.session_id or run.may_be_session or not run.parent:
                continue
            if run.parent not in by_own and self._is_session(run.parent, ""):
                by_own[run.parent] = groups[run.parent] = _Group(run.parent, run.parent, self._runs[run.parent])
            if run.parent in by_own:
                by_own[run.parent].queries.append(run)
        return groups

    def _find_own_runs(self, groups: dict[str, _Group]) -> None:
        claims: dict[str, set[str]] = {}
        for group in groups.values():
            for run in group.queries:
                for own in self._possible_own_runs(run):
                    claims.setdefault(own, set()).add(group.session_id)
        for group in groups.values():
            own = group.session_id.lower()
            if own not in self._runs and own not in {query.parent for query in group.queries}:
                # A run that several sessions name stands above them.
                own = min((run for run, claimed in claims.items() if claimed == {group.session_id}), default="")
            group.own, group.told = own, self._runs.get(own)
            group.queries = [query for query in group.queries if query.run_id != own]

    def _possible_own_runs(self, run: _Run) -> Iterator[str]:
        """Which runs, by what this one says, may be that of its session."""
        if run.may_be_session:
            yield run.run_id
        if self._is_session(run.parent, run.session_id) or (run.parent_is_session and run.parent not in self._runs):
            yield run.parent

    def _is_session(self, run_id: str, session_id: str) -> bool:
        """Whether it is a run of Hive, but of no query, and of no other session."""
        run = self._runs.get(run_id)
        return run is not None and run.may_be_session and run.session_id in ("", session_id)

    def _session(self, group: _Group, until_ms: int) -> HiveSession:
        values = self._values.get(group.session_id, {})
        properties = {key: value for key, (_, value) in sorted(values.items())}
        creation_ms = parse_time_ms(properties.get("creationTime"))
        told, parent = group.told, group.parent
        if creation_ms is None and told is not None:
            creation_ms = told.first_ms
        return HiveSession(
            session_id=group.session_id,
            urn=group.urn(self._cluster),
            parent_urn=urns.dpi_urn(parent) if parent else None,
            told=told is not None,
            told_end=told is not None and (told.ended or told.is_application),
            properties=properties,
            activities=tuple(_activities(group, creation_ms, until_ms, self._timeout_ms)),
        )


def session_proposals(session: HiveSession) -> list[Proposal]:
    """The session's run. Of one that told itself only the end that no event told, and when it went on after that."""
    return [*_entity(session), *_run_events(session)]


def _entity(session: HiveSession) -> Iterator[Proposal]:
    if session.told:
        return
    start_ms = session.activities[0].start_ms if session.activities else None
    name = session.properties.get("sessionId", session.session_id)
    yield from run_properties(session.urn, name=name, created_ms=start_ms, custom=session.properties)
    parent = {"parentInstance": session.parent_urn} if session.parent_urn else {}
    relationships = {**parent, "upstreamInstances": []}
    yield Proposal(KIND, session.urn, "dataProcessInstanceRelationships", relationships)


def _run_events(session: HiveSession) -> Iterator[Proposal]:
    if session.told_end:
        return
    for number, activity in enumerate(session.activities):
        # GMS takes the latest event for the state: of two that are of the same millisecond only the end counts.
        told = (number == 0 and session.told) or (activity.closed and activity.start_ms == activity.end_ms)
        if not told:
            yield run_event(session.urn, activity.start_ms, "STARTED")
        if activity.closed:
            kind = "FAILURE" if activity.result in FAILED_TYPES else "SUCCESS"
            yield run_event(
                session.urn,
                activity.end_ms,
                "COMPLETE",
                result={"type": kind, "nativeResultType": activity.result} if activity.result else None,
                durationMillis=activity.end_ms - activity.start_ms,
            )


def _activities(group: _Group, creation_ms: int | None, until_ms: int, timeout_ms: int) -> Iterator[Activity]:
    """The times in which the session was not idle for the timeout; a query that runs is no idleness.

    Each shows how the queries ended up to its end: a failure stays (conversion rules, section 7).
    """
    runs = sorted(_active(group), key=lambda run: (run.first_ms or 0, run.last_ms or 0))
    failures: set[str] = set()
    ended, start_ms, end_ms = False, None, 0
    for run in runs:
        first_ms, last_ms = run.first_ms or 0, run.last_ms or 0
        if start_ms is None:
            start_ms = _start(creation_ms, first_ms)
        elif first_ms - end_ms >= timeout_ms:
            yield Activity(start_ms, end_ms, _result(failures, ended), closed=True)
            start_ms = first_ms
        end_ms = max(end_ms, last_ms)
        ended = ended or run.ended
        failures |= run.failures
    if start_ms is not None:
        yield Activity(start_ms, end_ms, _result(failures, ended), closed=until_ms - end_ms >= timeout_ms)


def _active(group: _Group) -> Iterator[_Run]:
    """The runs that tell when the session was active: its queries, and its own run where that says more than START."""
    queries = [query for query in group.queries if query.first_ms is not None]
    yield from queries
    own = group.told
    if own is not None and own.first_ms is not None and (not queries or own.last_ms != own.first_ms):
        yield own


def _start(creation_ms: int | None, first_ms: int) -> int:
    """When the session was created; its first event, where the creation is not known, later, or before 1970."""
    return creation_ms if creation_ms is not None and 0 <= creation_ms <= first_ms else first_ms


def _result(failures: Iterable[str], ended: bool) -> str:
    return max(failures, default="COMPLETE" if ended else "")


def _by_start(session: HiveSession) -> tuple[int, str]:
    return (session.activities[0].start_ms if session.activities else _NEVER, session.session_id)


def is_of_hive(event: RunEvent) -> bool:
    """Whether the event may tell of a Hive session."""
    if (
        hive_session_id(event)
        or event.producer.endswith("/integration/hive")
        or event.job_namespace.startswith("hive://")
    ):
        return True
    if event.job_type in _SPARK_TYPES:
        return False
    return as_text(event.run_facets["processing_engine"].get("name")).lower() == "hive"


def _is_query(event: RunEvent) -> bool:
    return bool(event.inputs or event.outputs or "hive_query" in event.run_facets or event.job_type == "QUERY")


def _names_its_session_as_parent(event: RunEvent) -> bool:
    """Whether the parent's job is called the way a session's is: ``<user>@<client address>``."""
    if HIVE_SESSION not in event.run_facets:
        return False
    facet, parent = event.run_facets[HIVE_SESSION], event.run_facets["parent"]
    name = as_text(as_object(parent.get("job")).get("name"))
    return name == f"{as_text(facet.get('username'))}@{as_text(facet.get('clientIp'))}" != "@"

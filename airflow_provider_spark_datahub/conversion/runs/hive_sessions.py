"""Hive sessions: each session is a run above the runs of its queries (conversion rules, section 9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.events import (
    APPLICATION,
    FAILED_TYPES,
    TERMINAL_TYPES,
    RunEvent,
    as_object,
    as_text,
    parse_time_ms,
)
from airflow_provider_spark_datahub.conversion.facets.properties import HIVE_SESSION, hive_session_properties
from airflow_provider_spark_datahub.conversion.facets.run import KIND, run_event, run_properties
from airflow_provider_spark_datahub.conversion.proposals import Proposal

_NEVER = 1 << 63


@dataclass(frozen=True, slots=True)
class _Activity:
    """Span in which a session was never idle for as long as the timeout.

    :param result: event type of the worst end of a query until then; empty if no query has ended.
    :param closed: the session was idle for the timeout afterwards.
    """

    start_ms: int
    end_ms: int
    result: str
    closed: bool


@dataclass(frozen=True, slots=True)
class HiveSession:
    """Hive session.

    :param session_id: as in the ``hive_session`` facet; without a facet, the id of the session's own run.
    :param parent_urn: DataProcessInstance of the parent run.
    :param reported: the session's own run sent events and is converted from them: only the rest is written here.
    :param end_reported: those events contain its end, or the job that they are coalesced into reports the end.
    :param activities: in order; several if the session went on after it had been closed.
    """

    session_id: str
    urn: str
    parent_urn: str | None
    reported: bool
    end_reported: bool
    properties: dict[str, str]
    activities: tuple[_Activity, ...]

    def proposals(self) -> list[Proposal]:
        """Return the proposals of the session's run; only the missing end and later activities if events report it."""
        events = list(_run_events(self))
        if self.reported:
            return events
        start_ms = self.activities[0].start_ms if self.activities else None
        name = self.properties.get("sessionId", self.session_id)
        parent = {"parentInstance": self.parent_urn} if self.parent_urn else {}
        relationships = {**parent, "upstreamInstances": []}
        return [
            *run_properties(self.urn, name=name, created_ms=start_ms, custom=self.properties),
            Proposal(KIND, self.urn, "dataProcessInstanceRelationships", relationships),
            *events,
        ]


@dataclass(slots=True)
class _Run:
    """State of one run, as far as sessions depend on it."""

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
        is_query = event.inputs or event.outputs or "hive_query" in event.run_facets or event.job_type == "QUERY"
        self.may_be_session = self.may_be_session and not is_query
        self.is_application = self.is_application or event.job_type == APPLICATION
        if event.time_ms is not None:
            self.first_ms = min(event.time_ms, event.time_ms if self.first_ms is None else self.first_ms)
            self.last_ms = max(event.time_ms, event.time_ms if self.last_ms is None else self.last_ms)
        self.ended = self.ended or event.type in TERMINAL_TYPES
        if event.type in FAILED_TYPES:
            self.failures.add(event.type)


@dataclass(slots=True)
class _Group:
    """Queries of one session.

    :param own: id of the session's own run, or empty.
    :param own_run: that run, if it sent events.
    """

    session_id: str
    own: str = ""
    own_run: _Run | None = None
    queries: list[_Run] = field(default_factory=list)

    @property
    def parent(self) -> str:
        """Id of the parent run, as named by the session's own run or by all of its queries."""
        if self.own_run is not None:
            return self.own_run.parent
        members = {query.run_id for query in self.queries}
        named = {query.parent for query in self.queries} - members - {"", self.own}
        return named.pop() if len(named) == 1 else ""

    def parents(self, cluster: str | None) -> Iterator[tuple[str, str]]:
        """Yield the run id of each query with the URN of its parent run."""
        urn, session_parents = self.urn(cluster), ("", self.own, self.parent)
        for query in self.queries:
            yield query.run_id, urn if query.parent in session_parents else urns.dpi_urn(query.parent)

    def urn(self, cluster: str | None) -> str:
        """Return the URN of the session's DataProcessInstance."""
        if self.own:
            return urns.dpi_urn(self.own)
        key = {"orchestrator": "hive", "session_id": self.session_id}
        return urns.dpi_urn(urns.guid({**key, "cluster": cluster} if cluster else key))


class HiveSessions:
    """Collector of the sessions in a stream of events, in any order.

    A session has a run of its own if the producer sends one: its run id is the session id, or it is in the ``parent``
    facet of the queries and either is called ``<user>@<client address>`` or sent events of Hive without being a query.
    Otherwise the run is named after the session id in the facet, without the job namespace, which varies by query.

    :param timeout_ms: a session without events for this long is closed.
    :param cluster: the configured ``platform_instance``, which distinguishes Hives with the same session ids.
    :raises ValueError: if the timeout is not positive.
    """

    def __init__(self, timeout_ms: int, cluster: str | None = None) -> None:
        if timeout_ms <= 0:
            raise ValueError(f"the timeout of Hive sessions is {timeout_ms} ms, want more than 0")
        self._timeout_ms = timeout_ms
        self._cluster = cluster
        self._runs: dict[str, _Run] = {}
        # The earliest value of a session's property wins, so that the order of events does not matter.
        self._values: dict[str, dict[str, tuple[int, str]]] = {}
        self._latest_ms = -_NEVER
        self._groups: list[_Group] | None = None
        self._parents: dict[str, str] = {}

    def observe(self, event: RunEvent) -> None:
        """Add an event of any producer. Events of producers other than Hive only advance the time."""
        if event.time_ms is not None and event.time_ms > self._latest_ms:
            self._latest_ms = event.time_ms
        if not event.is_of_hive:
            return
        session_id = event.names.hive_session_id
        self._groups = None
        self._runs.setdefault(event.run_id, _Run(event.run_id)).learn(event, session_id)
        if session_id:
            self._learn_values(session_id, event)

    def sessions(self, known_until_ms: int | None = None) -> list[HiveSession]:
        """Return all sessions, by start and id.

        :param known_until_ms: up to when there are no more events, if that is later than the last event.
        """
        until_ms = self._latest_ms if known_until_ms is None else max(self._latest_ms, known_until_ms)
        return sorted((self._session(group, until_ms) for group in self._resolved()), key=_by_start)

    def parent_of(self, run_id: str) -> str | None:
        """Return the parent's URN for the run of a query; ``None`` if the run belongs to no session.

        The parent is the session, unless the query names another parent that is not the session's parent.
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
        """Return the groups by session id."""
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
                # A run that several sessions name is their parent.
                own = min((run for run, claimed in claims.items() if claimed == {group.session_id}), default="")
            group.own, group.own_run = own, self._runs.get(own)
            group.queries = [query for query in group.queries if query.run_id != own]

    def _possible_own_runs(self, run: _Run) -> Iterator[str]:
        """Yield the ids of runs that may be that of a run's session."""
        if run.may_be_session:
            yield run.run_id
        if self._is_session(run.parent, run.session_id) or (run.parent_is_session and run.parent not in self._runs):
            yield run.parent

    def _is_session(self, run_id: str, session_id: str) -> bool:
        """Return whether it is a run of Hive that is not a query, and that belongs to no other session."""
        run = self._runs.get(run_id)
        return run is not None and run.may_be_session and run.session_id in ("", session_id)

    def _session(self, group: _Group, until_ms: int) -> HiveSession:
        values = self._values.get(group.session_id, {})
        properties = {key: value for key, (_, value) in sorted(values.items())}
        creation_ms = parse_time_ms(properties.get("creationTime"))
        own_run, parent = group.own_run, group.parent
        if creation_ms is None and own_run is not None:
            creation_ms = own_run.first_ms
        return HiveSession(
            session_id=group.session_id,
            urn=group.urn(self._cluster),
            parent_urn=urns.dpi_urn(parent) if parent else None,
            reported=own_run is not None,
            end_reported=own_run is not None and (own_run.ended or own_run.is_application),
            properties=properties,
            activities=tuple(_activities(group, creation_ms, until_ms, self._timeout_ms)),
        )


def _run_events(session: HiveSession) -> Iterator[Proposal]:
    if session.end_reported:
        return
    for number, activity in enumerate(session.activities):
        # GMS takes the latest event for the state: if start and end are in the same millisecond, only the end counts.
        at_once = activity.closed and activity.start_ms == activity.end_ms
        if not (at_once or (number == 0 and session.reported)):
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


def _activities(group: _Group, creation_ms: int | None, until_ms: int, timeout_ms: int) -> Iterator[_Activity]:
    """Yield the spans in which the session was not idle for the timeout. A failed query fails all later spans, too."""
    runs = sorted(_active(group), key=lambda run: (run.first_ms or 0, run.last_ms or 0))
    failures: set[str] = set()
    ended, start_ms, end_ms = False, None, 0
    for run in runs:
        first_ms, last_ms = run.first_ms or 0, run.last_ms or 0
        if start_ms is None:
            # The creation may be unknown, later than the first event, or before 1970.
            start_ms = creation_ms if creation_ms is not None and 0 <= creation_ms <= first_ms else first_ms
        elif first_ms - end_ms >= timeout_ms:
            yield _Activity(start_ms, end_ms, _result(failures, ended), closed=True)
            start_ms = first_ms
        end_ms = max(end_ms, last_ms)
        ended = ended or run.ended
        failures |= run.failures
    if start_ms is not None:
        yield _Activity(start_ms, end_ms, _result(failures, ended), closed=until_ms - end_ms >= timeout_ms)


def _active(group: _Group) -> Iterator[_Run]:
    """Yield the runs that show when the session was active: queries, and its own run unless it only sent START."""
    queries = [query for query in group.queries if query.first_ms is not None]
    yield from queries
    own = group.own_run
    if own is not None and own.first_ms is not None and (not queries or own.last_ms != own.first_ms):
        yield own


def _result(failures: Iterable[str], ended: bool) -> str:
    return max(failures, default="COMPLETE" if ended else "")


def _by_start(session: HiveSession) -> tuple[int, str]:
    return (session.activities[0].start_ms if session.activities else _NEVER, session.session_id)


def _names_its_session_as_parent(event: RunEvent) -> bool:
    """Return whether the parent's job has the name of a session: ``<user>@<client address>``."""
    if HIVE_SESSION not in event.run_facets:
        return False
    facet, parent = event.run_facets[HIVE_SESSION], event.run_facets["parent"]
    name = as_text(as_object(parent.get("job")).get("name"))
    return name == f"{as_text(facet.get('username'))}@{as_text(facet.get('clientIp'))}" != "@"

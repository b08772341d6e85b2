"""Hive sessions: each session is a run above the runs of its queries (conversion rules, section 9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_provider_spark_datahub.conversion import urns
from airflow_provider_spark_datahub.conversion.events import (
    FAILED_TYPES,
    TERMINAL_TYPES,
    RunEvent,
    parse_time_ms,
)
from airflow_provider_spark_datahub.conversion.facets.run import (
    HIVE_SESSION,
    ProcessInstance,
    hive_session_properties,
    run_event,
)
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.foundation.memory import grouped_by

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

    :param session_id: as in the ``hive_session`` facet.
    :param parent_urn: DataProcessInstance of the parent run.
    :param activities: in order; several if the session went on after it had been closed.
    """

    session_id: str
    urn: str
    parent_urn: str | None
    properties: dict[str, str]
    activities: tuple[_Activity, ...]

    def proposals(self) -> list[Proposal]:
        """Return the proposals of the session's run."""
        instance = ProcessInstance(
            self.urn,
            name=self.session_id,
            created_ms=self.activities[0].start_ms if self.activities else None,
            properties=self.properties,
            parent_urn=self.parent_urn,
        )
        return [*instance.proposals(), *self._run_events()]

    def _run_events(self) -> Iterator[Proposal]:
        for activity in self.activities:
            # GMS takes the latest event for the state: of a start and an end in one millisecond,
            # only the end counts.
            if not activity.closed or activity.start_ms != activity.end_ms:
                yield run_event(self.urn, activity.start_ms, "STARTED")
            if activity.closed:
                kind = "FAILURE" if activity.result in FAILED_TYPES else "SUCCESS"
                yield run_event(
                    self.urn,
                    activity.end_ms,
                    "COMPLETE",
                    result={"type": kind, "nativeResultType": activity.result}
                    if activity.result
                    else None,
                    durationMillis=activity.end_ms - activity.start_ms,
                )


@dataclass(slots=True)
class _Query:
    """State of one query, as far as sessions depend on it."""

    run_id: str
    session_id: str = ""
    parent: str = ""
    first_ms: int = _NEVER
    last_ms: int = -_NEVER
    failures: set[str] = field(default_factory=set)
    ended: bool = False

    def learn(self, event: RunEvent) -> None:
        self.session_id = event.names.hive_session_id or self.session_id
        if event.names.parent_run_id and event.names.parent_run_id != self.run_id:
            self.parent = event.names.parent_run_id
        if event.time_ms is not None:
            self.first_ms, self.last_ms = (
                min(self.first_ms, event.time_ms),
                max(self.last_ms, event.time_ms),
            )
        self.ended = self.ended or event.type in TERMINAL_TYPES
        if event.type in FAILED_TYPES:
            self.failures.add(event.type)


def _parent(queries: Iterable[_Query]) -> str:
    """Return the id of the run that all queries of a session name as their parent, if they name
    one.
    """
    queries = list(queries)
    named = {query.parent for query in queries} - {query.run_id for query in queries} - {""}
    return named.pop() if len(named) == 1 else ""


class HiveSessions:
    """Collector of the sessions in a stream of events, in any order.

    A session's run is named after the session id in the facet, without the job namespace, which
    varies by query.

    :param timeout_ms: a session without events for this long is closed.
    :param cluster: the configured ``platform_instance``, which distinguishes Hives with the same
        session ids.
    :raises ValueError: if the timeout is not positive.
    """

    def __init__(self, timeout_ms: int, cluster: str | None = None) -> None:
        if timeout_ms <= 0:
            raise ValueError(f"the timeout of Hive sessions is {timeout_ms} ms, want more than 0")
        self._timeout_ms = timeout_ms
        self._cluster = cluster
        self._queries: dict[str, _Query] = {}
        # The earliest value of a session's property wins, so that the order of events does not
        # matter.
        self._values: dict[str, dict[str, tuple[int, str]]] = {}
        self._latest_ms = -_NEVER
        self._parents: dict[str, str] | None = None

    def observe(self, event: RunEvent) -> None:
        """Add an event of any producer. Events of producers other than Hive only advance the time."""
        if event.time_ms is not None and event.time_ms > self._latest_ms:
            self._latest_ms = event.time_ms
        if not event.is_of_hive:
            return
        self._parents = None
        self._queries.setdefault(event.run_id, _Query(event.run_id)).learn(event)
        if session_id := event.names.hive_session_id:
            self._learn_values(session_id, event)

    def sessions(self, known_until_ms: int | None = None) -> list[HiveSession]:
        """Return all sessions, by start and id.

        :param known_until_ms: up to when there are no more events, if that is later than the last
            event.
        """
        until_ms = (
            self._latest_ms if known_until_ms is None else max(self._latest_ms, known_until_ms)
        )
        sessions = [
            self._session(name, queries, until_ms) for name, queries in self._by_session().items()
        ]
        return sorted(sessions, key=_by_start)

    def parent_of(self, run_id: str) -> str | None:
        """Return the parent's URN for the run of a query; ``None`` if the run belongs to no
        session.

        The parent is the session, unless the query names another parent that is not the session's
        parent.
        """
        if self._parents is None:
            self._parents = {}
            for session_id, queries in self._by_session().items():
                urn, above = self._urn(session_id), ("", _parent(queries))
                self._parents |= {
                    query.run_id: urn if query.parent in above else urns.dpi_urn(query.parent)
                    for query in queries
                }
        return self._parents.get(run_id)

    def _by_session(self) -> Mapping[str, list[_Query]]:
        queries = (query for query in self._queries.values() if query.session_id)
        return grouped_by(queries, lambda query: query.session_id)

    def _urn(self, session_id: str) -> str:
        key = {"orchestrator": "hive", "session_id": session_id}
        return urns.dpi_urn(urns.guid({**key, "cluster": self._cluster} if self._cluster else key))

    def _learn_values(self, session_id: str, event: RunEvent) -> None:
        values = self._values.setdefault(session_id, {})
        time_ms = _NEVER if event.time_ms is None else event.time_ms
        for key, value in hive_session_properties(event.run_facets[HIVE_SESSION]).items():
            if key != "creationTime" or parse_time_ms(value) is not None:
                values[key] = min(values.get(key, (time_ms, value)), (time_ms, value))

    def _session(self, session_id: str, queries: list[_Query], until_ms: int) -> HiveSession:
        properties = {
            key: value for key, (_, value) in sorted(self._values.get(session_id, {}).items())
        }
        creation_ms, parent = parse_time_ms(properties.get("creationTime")), _parent(queries)
        return HiveSession(
            session_id=session_id,
            urn=self._urn(session_id),
            parent_urn=urns.dpi_urn(parent) if parent else None,
            properties=properties,
            activities=tuple(_activities(queries, creation_ms, until_ms, self._timeout_ms)),
        )


def _activities(
    queries: Iterable[_Query], creation_ms: int | None, until_ms: int, timeout_ms: int
) -> Iterator[_Activity]:
    """Yield the spans in which the session was not idle for the timeout. A failed query fails all
    later spans, too.
    """
    failures: set[str] = set()
    ended, start_ms, end_ms = False, None, 0
    timed = (query for query in queries if query.first_ms < _NEVER)
    for query in sorted(timed, key=lambda query: (query.first_ms, query.last_ms)):
        first_ms = query.first_ms
        if start_ms is None:
            # The creation may be unknown, later than the first event, or before 1970.
            start_ms = (
                creation_ms
                if creation_ms is not None and 0 <= creation_ms <= first_ms
                else first_ms
            )
        elif first_ms - end_ms >= timeout_ms:
            yield _Activity(start_ms, end_ms, _result(failures, ended), closed=True)
            start_ms = first_ms
        end_ms = max(end_ms, query.last_ms)
        ended = ended or query.ended
        failures |= query.failures
    if start_ms is not None:
        yield _Activity(
            start_ms, end_ms, _result(failures, ended), closed=until_ms - end_ms >= timeout_ms
        )


def _result(failures: Iterable[str], ended: bool) -> str:
    return max(failures, default="COMPLETE" if ended else "")


def _by_start(session: HiveSession) -> tuple[int, str]:
    return (session.activities[0].start_ms if session.activities else _NEVER, session.session_id)

"""Hive sessions, in events as OpenLineage's Hive hook sends them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from datahub.metadata.schema_classes import DataProcessRunStatusClass, RunResultTypeClass
from hypothesis import given, settings as hypothesis_settings, strategies as st

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.facets.run import hive_session_properties
from airflow_provider_spark_datahub.conversion.runs.hive_sessions import HiveSession, HiveSessions
from tests.cases import cases
from tests.conversion.builders import Json, application, event, find, find_all
from tests.oracles.strict import canonical_violations

HIVE = "https://github.com/OpenLineage/OpenLineage/tree/1.40.0/integration/hive"
NAMESPACE = "hive://hs2.example.com:10000"
SESSION = "26bf2036-9a37-4f76-a696-a39fddbc8ba3"
OTHER_SESSION = "0ba6765b-3019-4172-b748-63c257158d20"
Q1, Q2, Q3 = (f"01900000-0000-7000-8000-00000000000{number}" for number in (1, 2, 3))
TASK = "01900000-0000-7000-8000-0000000000f1"
CREATED = "2026-01-01T00:00:00Z"
MINUTE = 60_000
TIMEOUT = 30 * MINUTE


def at(minute: int) -> int:
    """Return a time in ms since the epoch; the session was created in minute 0."""
    return int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000) + minute * MINUTE


def facet(session_id: object = SESSION, created: object = CREATED, **more: object) -> Json:
    """Return the facet as ``HiveSessionInfoFacet`` writes it, without nulls."""
    content = {
        "username": "hive",
        "clientIp": "127.0.0.1",
        "sessionId": session_id,
        "creationTime": created,
        **more,
    }
    return {
        "_producer": HIVE,
        **{key: value for key, value in content.items() if value is not None},
    }


def query(
    run_id: str = Q1,
    minute: int = 1,
    kind: str = "COMPLETE",
    *,
    session: Json | None = None,
    parent: str | None = None,
    parent_job: str = "daily.load",
    namespace: str = NAMESPACE,
) -> Json:
    """Return a query event of ``HiveOpenLineageHook`` (``Faceting.getRunEvent``), by default in the
    session.
    """
    facets: Json = {
        "processing_engine": {
            "name": "hive",
            "version": "3.1.3",
            "openlineageAdapterVersion": "1.40.0",
        },
        "hive_query": {
            "queryId": f"hive_20260101_{run_id}",
            "operationName": "CREATETABLE_AS_SELECT",
        },
        "hive_properties": {"properties": {"hive.execution.engine": "mr"}},
        "hive_session": facet() if session is None else session,
    }
    if parent:
        facets["parent"] = {
            "run": {"runId": parent},
            "job": {"namespace": "airflow", "name": parent_job},
        }
    orders = {"namespace": "hive://metastore:9083", "name": "shop.orders", "facets": {}}
    daily = {**orders, "name": "shop.daily"}
    job = "createtable_as_select.shop.daily"
    return timed(
        event(
            kind,
            run_id=run_id,
            job=job,
            job_type="QUERY",
            run_facets=facets,
            inputs=[orders],
            outputs=[daily],
        ),
        minute,
        producer=HIVE,
        namespace=namespace,
    )


def without_facet(query_event: Json) -> Json:
    del query_event["run"]["facets"]["hive_session"]
    return query_event


def airflow_task(run_id: str = TASK, minute: int = 0) -> Json:
    sent = event("START", run_id=run_id, job="daily.load", job_type="TASK")
    return timed(
        sent, minute, producer="https://github.com/apache/airflow/tree/x", namespace="airflow"
    )


def timed(sent: Json, minute: int, *, producer: str, namespace: str) -> Json:
    time = datetime.fromtimestamp(at(minute) / 1000, tz=UTC).isoformat().replace("+00:00", "Z")
    return {
        **sent,
        "eventTime": time,
        "producer": producer,
        "job": {**sent["job"], "namespace": namespace},
    }


def observed(*events: Json, cluster: str | None = None) -> HiveSessions:
    found = HiveSessions(TIMEOUT, cluster)
    for each in events:
        found.observe(RunEvent.parse(each))
    return found


def only(found: HiveSessions, **more: Any) -> HiveSession:
    (session,) = found.sessions(**more)
    return session


def is_closed(session: HiveSession) -> bool:
    return session.activities[-1].closed


def written(*events: Json, known_until_ms: int | None = None) -> list[Proposal]:
    """Return the proposals of the only session; check that GMS accepts each and that it equals
    acryl-datahub's.
    """
    proposals = only(observed(*events), known_until_ms=known_until_ms).proposals()
    assert [
        violation for each in proposals for violation in canonical_violations(each.to_obj())
    ] == []
    return proposals


def run_events(proposals: Iterable[Proposal]) -> list[tuple[Any, ...]]:
    """Return (status, minute, result, native result) of each run event."""
    return [
        (
            each.aspect["status"],
            (each.aspect["timestampMillis"] - at(0)) / MINUTE,
            *each.aspect.get("result", {}).values(),
        )
        for each in find_all(proposals, "dataProcessInstanceRunEvent")
    ]


def dpi(run_id: str) -> str:
    return f"urn:li:dataProcessInstance:{run_id}"


STARTED, COMPLETE = DataProcessRunStatusClass.STARTED, DataProcessRunStatusClass.COMPLETE
SUCCESS, FAILURE = RunResultTypeClass.SUCCESS, RunResultTypeClass.FAILURE


# The facet


def test_run_and_job_have_the_session_properties() -> None:
    assert hive_session_properties(facet()) == {
        "username": "hive",
        "clientIp": "127.0.0.1",
        "sessionId": SESSION,
        "creationTime": CREATED,
    }


@pytest.mark.parametrize("key", ["username", "clientIp", "sessionId", "creationTime"])
@pytest.mark.parametrize("wrong", [None, "", " ", 7, True, [], {"x": 1}], ids=json.dumps)
def test_a_wrong_value_affects_no_other(key: str, wrong: object) -> None:
    sent = {**facet(), key: wrong}
    assert hive_session_properties(sent).keys() == {
        "username",
        "clientIp",
        "sessionId",
        "creationTime",
    } - {key}
    sessions = observed(query(session=sent)).sessions()
    assert [one.properties for one in sessions] == (
        [hive_session_properties(sent)] if key != "sessionId" else []
    )


def test_secrets_are_not_shown() -> None:
    shown = hive_session_properties(facet(username="jdbc:hive2://jane:geheim@h"))
    assert "geheim" not in json.dumps(shown)


# One run for the queries of a session


def test_the_run_is_named_by_the_session_id() -> None:
    # md5 of {"orchestrator":"hive","session_id":"26bf2036-…"}: the way acryl-datahub makes the ids
    # of its keys.
    urn = dpi("52dbad739bdca08f43fec0b61e720edf")
    assert only(observed(query())).urn == urn
    assert only(observed(query(session=facet(created=None)))).urn == urn
    # A user may set another job namespace for a query; OpenLineage 1.34 made one of each query's
    # text.
    assert only(observed(query(), query(Q2, namespace="c0ffee"))).urn == urn
    assert only(observed(query(), cluster="prod-eu")).urn != urn


def test_the_run_of_a_session_has_all_its_aspects() -> None:
    proposals = written(query(Q1, 1, "START"), query(Q1, 5), known_until_ms=at(35))
    assert [(each.entity_urn, each.aspect_name) for each in proposals] == [
        (only(observed(query())).urn, name)
        for name in (
            "dataProcessInstanceProperties",
            "status",
            "dataProcessInstanceRelationships",
            "dataProcessInstanceRunEvent",
            "dataProcessInstanceRunEvent",
        )
    ]
    properties = find(proposals, "dataProcessInstanceProperties").aspect
    assert properties["name"] == SESSION
    assert properties["customProperties"] == hive_session_properties(facet())
    assert properties["created"] == {"time": at(0), "actor": "urn:li:corpuser:datahub"}
    assert find(proposals, "dataProcessInstanceRelationships").aspect == {"upstreamInstances": []}
    started, complete = find_all(proposals, "dataProcessInstanceRunEvent")
    assert (started.aspect["timestampMillis"], complete.aspect["timestampMillis"]) == (at(0), at(5))
    assert complete.aspect["durationMillis"] == 5 * MINUTE


# Its start


@cases("hive_sessions")
def test_a_session_starts_at_its_creation_or_first_event(created: str | None, start: int) -> None:
    session = only(
        observed(
            query(Q2, 2, session=facet(created=created)),
            query(Q1, 1, session=facet(created=created)),
        )
    )
    assert session.activities[0].start_ms == start


def test_a_later_event_fills_in_missing_values_of_the_first() -> None:
    session = only(observed(query(Q1, 1, session=facet(created="yesterday")), query(Q2, 2)))
    assert session.activities[0].start_ms == at(0)


# Its end


@pytest.mark.parametrize(("minute", "closed"), [(30, False), (31, True), (500, True)])
def test_a_session_is_closed_after_the_timeout(minute: int, closed: bool) -> None:
    # Measured between event times: by the events of another session, of an application, or what the
    # caller knows.
    other = timed(application("START"), minute, producer="spark", namespace="default")
    assert is_closed(only(observed(query(), other))) is closed
    assert is_closed(only(observed(query()), known_until_ms=at(minute))) is closed
    sessions = observed(
        query(), query(Q2, minute, session=facet(OTHER_SESSION, created=None))
    ).sessions()
    assert [is_closed(session) for session in sessions] == [closed, False]


@cases("hive_sessions")
def test_a_session_starts_and_ends(
    queries: list[tuple[str, int, str]], known_until: int | None, expected: list[list[Any]]
) -> None:
    known_until_ms = at(known_until) if known_until is not None else None
    found = written(*(query(*one) for one in queries), known_until_ms=known_until_ms)
    assert [list(one) for one in run_events(found)] == expected


def test_start_and_end_in_the_same_millisecond_are_the_end() -> None:
    alone = query(Q1, 1, session=facet(created=None))
    assert run_events(written(alone, known_until_ms=at(100))) == [
        (COMPLETE, 1, SUCCESS, "COMPLETE")
    ]


def test_a_session_without_event_times_has_no_run_events() -> None:
    timeless = query(session=facet(created=None))
    timeless["eventTime"] = "soon"
    assert run_events(written(timeless)) == []


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_is_positive(timeout_ms: int) -> None:
    with pytest.raises(ValueError, match=f"is {timeout_ms} ms"):
        HiveSessions(timeout_ms)


# Parents of queries and of sessions


def from_case(run: str, kind: str, more: Json | None = None) -> Json:
    """Return an event as the cases spell it: its run, its kind, and what else is special."""
    more = dict(more or {})
    if kind in ("application", "spark query"):
        return (
            application("START", run_id=run) if kind == "application" else event(run_id=run, **more)
        )
    if kind == "task":
        return airflow_task(run)
    session = {"other": facet(OTHER_SESSION, created=None)}.get(more.pop("session", ""))
    sent = query(
        run, session=session, **{name: value for name, value in more.items() if name != "facet"}
    )
    return sent if more.get("facet", True) else without_facet(sent)


@cases("hive_sessions")
def test_queries_and_sessions_have_parents(
    events: list[list[Any]], sessions: dict[str, str | None], parents: dict[str, str | None]
) -> None:
    own = {
        only(observed(query(session=facet(one)))).urn: name
        for one, name in ((SESSION, "S"), (OTHER_SESSION, "T"))
    }

    def named(urn: str | None) -> str | None:
        return own.get(urn, urn.removeprefix(dpi(""))) if urn else None

    sent = [from_case(*one) for one in events]
    for found in (observed(*sent), observed(*reversed(sent))):
        assert {
            named(session.urn): named(session.parent_urn) for session in found.sessions()
        } == sessions
        assert {run: named(found.parent_of(run)) for run in parents} == parents


# Hostile content


texts = st.text(max_size=8) | st.sampled_from(
    [SESSION, OTHER_SESSION, Q1, Q2, TASK, CREATED, "hive@127.0.0.1", ","]
)
values = texts | st.none() | st.integers() | st.lists(texts, max_size=2)
run_ids = st.sampled_from([Q1, Q2, Q3, SESSION, TASK, "a,b(c)"])
facets = st.dictionaries(
    st.sampled_from(["username", "clientIp", "sessionId", "creationTime"]), values
) | values  # fmt: skip
hostile = st.builds(
    lambda run_id, minute, kind, session, parent, parent_job: query(
        run_id, minute, kind, session=session, parent=parent, parent_job=parent_job
    ),
    run_ids,
    st.integers(-30_000_000, 100),
    st.sampled_from(["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER", ""]),
    facets.filter(lambda session: session is not None),
    st.none() | run_ids,
    texts,
)


@pytest.mark.slow
@given(st.lists(hostile, max_size=6), st.none() | st.integers(0, at(10_000)))
@hypothesis_settings(deadline=None)
def test_gms_accepts_the_proposals_of_any_events(
    events: list[Json], known_until_ms: int | None
) -> None:
    found = observed(*events)
    sessions = found.sessions(known_until_ms)
    for session in sessions:
        for each in session.proposals():
            assert canonical_violations(each.to_obj()) == []
        assert all(one.start_ms <= one.end_ms for one in session.activities)
        pairs = itertools.pairwise(session.activities)
        assert all(one.closed and two.start_ms - one.end_ms >= TIMEOUT for one, two in pairs)
    for run_id in (Q1, Q2, Q3, SESSION, TASK):
        assert found.parent_of(run_id) != dpi(run_id)

"""Groups of an archive never separate events that the converter joins."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from airflow_provider_spark_datahub.conversion.archive.grouping import EventHead, Link, merge_groups
from airflow_provider_spark_datahub.conversion.events import RunEvent
from airflow_provider_spark_datahub.conversion.runs.fold import Fold
from airflow_provider_spark_datahub.conversion.runs.hive_sessions import HiveSessions
from tests.conversion.builders import CORPUS, Json, application, event, json_lines, query, settings

RUNS = ("a", "b", "c", "d", "e")


def groups(events: Iterable[Json]) -> dict[str, str]:
    """Map each run to the one group that all of its events are in."""
    heads = [EventHead.of(RunEvent.parse(json.dumps(one).encode())) for one in events]
    shared = merge_groups(link for head in heads for link in head.links())
    found: dict[str, str] = {}
    for head in heads:
        group = shared.get(head.group, head.group)
        # Events of one run are never apart.
        assert found.setdefault(head.run_id, group) == group
    return found


def test_a_query_is_in_the_group_of_its_application() -> None:
    found = groups([application("START", run_id="a"), query(run_id="b", parent="a"), query(run_id="c", parent="a")])
    assert found == {"a": "a", "b": "a", "c": "a"}


def test_two_applications_of_one_task_are_two_groups() -> None:
    task = event(run_id="task", job_type="TASK", parent="dag")
    found = groups(
        [task, application("START", run_id="a", parent="task"), application("START", run_id="b", parent="task")]
    )
    assert len(set(found.values())) == 3


def test_a_query_of_a_query_is_in_the_group_of_the_application() -> None:
    found = groups([query(run_id="c", parent="b"), query(run_id="b", parent="a"), application("START", run_id="a")])
    assert len(set(found.values())) == 1


def test_a_run_that_names_its_parent_only_once_is_in_one_group() -> None:
    found = groups([query(run_id="b", parent="a"), event(run_id="b"), application("START", run_id="a")])
    assert len(set(found.values())) == 1


def test_other_runs_belong_to_their_parent_only_if_it_is_an_application() -> None:
    below_application = [event(run_id="b", job_type="STEP", parent="a"), application("START", run_id="a")]
    below_task = [event(run_id="b", job_type="STEP", parent="a"), event(run_id="a", job_type="TASK")]
    assert len(set(groups(below_application).values())) == 1
    assert len(set(groups(below_task).values())) == 2


TYPES = st.fixed_dictionaries(dict.fromkeys(RUNS, st.sampled_from(("APPLICATION", "SQL_JOB", "RDD_JOB", "TASK", None))))
EVENTS = st.lists(
    st.tuples(st.sampled_from(RUNS), st.booleans(), st.sampled_from((*RUNS, None))),
    max_size=12,
)


@pytest.mark.slow
@given(TYPES, EVENTS)
def test_runs_of_one_application_are_in_one_group(
    types: dict[str, str | None], drawn: list[tuple[str, bool, str | None]]
) -> None:
    # Whatever an event leaves out of its run's type and parent.
    events = [
        event(run_id=run_id, job_type=types[run_id] if typed else None, parent=parent)
        for run_id, typed, parent in drawn
    ]
    fold = Fold(settings())
    for one in events:
        fold.add(RunEvent.parse(json.dumps(one).encode()))
    group = groups(events)
    for found in fold.applications():
        assert len({group[run.run_id] for run in found.runs}) == 1


HIVE_EVENTS = st.builds(
    lambda run_id, parent, session, is_query: event(
        run_id=run_id,
        job_type=None,
        parent=parent,
        namespace="hive://metastore",
        inputs=[{"namespace": "hive", "name": "t"}] if is_query else [],
        run_facets={"hive_session": {"sessionId": session}} if session else {},
    ),
    st.sampled_from(RUNS),
    st.sampled_from((*RUNS, None)),
    st.sampled_from(("S1", "S2", "A", None)),
    st.booleans(),
)


@pytest.mark.slow
@given(st.lists(HIVE_EVENTS, max_size=12))
def test_events_that_decide_sessions_are_in_one_group(events: list[Json]) -> None:
    # Each run has the same parent whether its group alone is seen or the whole archive.

    def parents(of: Iterable[Json]) -> dict[str, str | None]:
        sessions, parsed = HiveSessions(1000), [RunEvent.parse(json.dumps(one).encode()) for one in of]
        for one in parsed:
            sessions.observe(one)
        return {one.run_id: sessions.parent_of(one.run_id) for one in parsed}

    group = groups(events)
    by_group: dict[str, list[Json]] = {}
    for one in events:
        by_group.setdefault(group[one["run"]["runId"]], []).append(one)
    apart = {run: parent for of in by_group.values() for run, parent in parents(of).items()}
    assert apart == parents(events)


@pytest.mark.parametrize("path", sorted((CORPUS / "events").glob("*.ndjson")), ids=lambda path: path.stem)
def test_real_applications_need_no_joining(path: Path) -> None:
    heads = [EventHead.of(RunEvent.parse(json.dumps(one).encode())) for one in json_lines(path) if "run" in one]
    assert merge_groups(link for head in heads for link in head.links()) == {}


def test_names_of_joined_groups_do_not_depend_on_the_order() -> None:
    links = [Link("run", f"r{index // 2}", group) for index, group in enumerate("bcabdeca")]
    expected = {"a": "a", "b": "a", "c": "a", "d": "d", "e": "d"}
    assert merge_groups(links) == merge_groups(reversed(links)) == expected

"""Properties that hold for the events of any application: order, repetition, and whatever facets
they lack.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from airflow_provider_spark_datahub.conversion import Conversion, convert_events
from tests.cases import tables
from tests.conversion.builders import Json, application, file, query, settings, texts
from tests.oracles.strict import violations

OPTIONS = settings(
    datasets="schemas", dataset_details=("documentation", "owners", "tags"), capture_spark_plan=True
)
PATHS = ("/a", "/b", "/c", "/c/day=1")
FACETS: dict[str, Any] = dict(tables("any_events"))


def subset_of(facets: dict[str, Json]) -> st.SearchStrategy[Json]:
    return st.sets(st.sampled_from(sorted(facets))).map(
        lambda names: {name: facets[name] for name in sorted(names)}
    )


datasets = st.builds(
    lambda path, facets: file(path, **facets),
    st.sampled_from(PATHS),
    subset_of(FACETS["dataset_facets"]),
)
queries = st.builds(
    query,
    st.sampled_from(["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER"]),
    run_id=st.sampled_from(["q1", "q2", "q3"]),
    second=st.integers(0, 58),
    job_type=st.sampled_from(["SQL_JOB", "RDD_JOB"]),
    inputs=st.lists(datasets, max_size=2),
    outputs=st.lists(datasets, max_size=2),
    run_facets=subset_of(FACETS["run_facets"]),
    job_facets=subset_of(FACETS["job_facets"]),
)
events_of_an_application = st.lists(queries, max_size=5).map(
    lambda queries: [application("START"), *queries, application("COMPLETE", second=59)]
)
relaxed = hypothesis_settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)


def written(conversion: Conversion) -> str:
    return "".join(proposal.to_json() + "\n" for proposal in conversion.proposals(OPTIONS))


def edges(conversion: Conversion) -> Any:
    return (
        conversion.inputs,
        conversion.outputs,
        sorted(
            json.dumps(one, sort_keys=True)
            for job in conversion.jobs
            for one in job.lineage.fine_grained
        ),
        [
            (
                job.run.result and job.run.result.type,
                job.run.start_ms,
                job.run.end_ms,
                job.run.details.properties.keys(),
            )
            for job in conversion.jobs
        ],
    )


@pytest.mark.no_cover
@pytest.mark.slow
@given(events_of_an_application)
@relaxed
def test_gms_accepts_all_proposals_and_equal_events_give_equal_bytes(events: list[Json]) -> None:
    conversion = convert_events(texts(events), OPTIONS)
    assert conversion.diagnostics.rejected_events == 0
    assert [
        problem for one in conversion.proposals(OPTIONS) for problem in violations(one.to_obj())
    ] == []
    assert written(conversion) == written(convert_events(texts(events), OPTIONS))
    assert written(conversion) == written(convert_events(events, OPTIONS))


@pytest.mark.slow
@pytest.mark.no_cover
@given(events_of_an_application, st.data())
@relaxed
def test_a_repeated_event_changes_nothing(events: list[Json], data: st.DataObject) -> None:
    # At-least-once delivery repeats an event right after itself.
    index = data.draw(st.integers(0, len(events) - 1))
    repeated = [*events[: index + 1], *events[index:]]
    once, twice = (convert_events(texts(stream), OPTIONS) for stream in (events, repeated))
    assert written(once) == written(twice)


@pytest.mark.no_cover
@pytest.mark.slow
@given(events_of_an_application, st.randoms(use_true_random=False))
@relaxed
def test_runs_may_come_in_any_order(events: list[Json], random: Any) -> None:
    # Queries run side by side: only the order of the events of one run means something.
    by_run: dict[str, list[Json]] = {}
    for event in events:
        by_run.setdefault(event["run"]["runId"], []).append(event)
    lanes = [list(lane) for lane in by_run.values()]
    mixed = []
    while lanes:
        lane = random.choice(lanes)
        mixed.append(lane.pop(0))
        lanes = [one for one in lanes if one]
    assert edges(convert_events(texts(events), OPTIONS)) == edges(
        convert_events(texts(mixed), OPTIONS)
    )

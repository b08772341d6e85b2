"""Further real Spark jobs: self-join, union, cache, views, UDF, tables, several queries and several sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion.coalesce import Ending, JobLineage
from airflow_provider_spark_datahub.conversion.convert import convert_events
from tests.conversion.builders import APP, Json, file, proposals, query, settings, whole_application
from tests.conversion.test_corpus import edges, told_edges
from tests.oracles.strict import canonical_violations

FOLDER = Path(__file__).parents[1] / "data" / "more_jobs"
OTHER_APP, OTHER_QUERY = (f"01900000-0000-7000-8000-0000000000{end}" for end in ("bb", "cc"))
TRUTH: dict[str, Json] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
all_cases = pytest.mark.parametrize("case", TRUTH)


def converted(case: str) -> list[JobLineage]:
    lines = (FOLDER / "events" / f"{case}.ndjson").read_bytes().splitlines()
    return convert_events(lines, settings(), Ending(succeeded=True)).jobs


@all_cases
def test_edges_are_what_the_job_read_and_wrote(case: str) -> None:
    truth, found = TRUTH[case], edges(converted(case))
    assert told_edges(truth) - found == set(), "missing"
    assert found - told_edges(truth) - told_edges(truth, "either_") == set(), "false"


@all_cases
def test_columns(case: str) -> None:
    found = {
        (upstream, downstream)
        for job in converted(case)
        for lineage in job.fine_grained
        for upstream in lineage["upstreams"]
        for downstream in lineage["downstreams"]
    }
    for source, column, target, of in TRUTH[case].get("columns", ()):
        assert (f"urn:li:schemaField:({source},{column})", f"urn:li:schemaField:({target},{of})") in found


@all_cases
def test_gms_takes_every_proposal(case: str) -> None:
    for job in converted(case):
        assert [wrong for one in proposals(job) for wrong in canonical_violations(one.to_obj())] == []


def test_an_application_is_not_named_after_the_session_before_it() -> None:
    """The first event of a second session still carries the first one's name, and calls the job ``unknown``."""
    first, second = converted("q_two_sessions")
    assert (first.flow.flow_id, second.flow.flow_id) == ("q_two_sessions", "q_second")
    assert (list(first.outputs), list(second.outputs)) == (
        ["urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/q/first,PROD)"],
        ["urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/q/second,PROD)"],
    )


def sessions(*outputs: str) -> list[Json]:
    """Two applications of one name in one file, each of which writes one of the outputs."""
    first, second = outputs
    return [
        *whole_application(query(outputs=[file(first)])),
        *whole_application(query(parent=OTHER_APP, run_id=OTHER_QUERY, outputs=[file(second)]), run_id=OTHER_APP),
    ]


@pytest.mark.parametrize(("ending", "adds_only"), [(True, [False, True]), (False, [True, True])])
def test_sessions_of_one_name_keep_each_others_edges(ending: bool, adds_only: list[bool]) -> None:
    """They are runs of one job: what the second wrote must not take away what the first did."""
    first, second = convert_events(sessions("/a", "/b"), settings(), Ending(succeeded=ending)).jobs
    assert first.job_urn == second.job_urn
    assert [first.adds_only, second.adds_only] == adds_only
    assert first.run_urn != second.run_urn
    assert APP in first.run_urn

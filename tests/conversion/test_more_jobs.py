"""Further real Spark jobs, of Spark 3.5 to 4.3: databases, table formats, Kafka, Hive, renames, views, sessions …"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion import Converter, Ending, JobLineage, convert_events
from tests.conversion.builders import APP, Json, file, proposals, query, settings, whole_application
from tests.conversion.test_corpus import edges, expected_edges
from tests.oracles.strict import canonical_violations

FOLDER = Path(__file__).parents[1] / "data" / "more_jobs"
OTHER_APP, OTHER_QUERY = (f"01900000-0000-7000-8000-0000000000{end}" for end in ("bb", "cc"))
TRUTH: dict[str, Json] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
RECORDINGS = [recording for case, truth in TRUTH.items() for recording in truth.get("recorded", [case])]
all_recordings = pytest.mark.parametrize("recording", RECORDINGS)


def converted(recording: str) -> list[JobLineage]:
    """Return the jobs of a recording's events, with Spark's own event log if that was recorded, too."""
    converter = Converter(settings())
    for line in recorded("events", recording):
        converter.add(line)
    for line in recorded("logs", recording):
        converter.add_log_event(json.loads(line))
    return converter.finish(Ending(succeeded=True)).jobs


def recorded(kind: str, recording: str) -> list[bytes]:
    packed = FOLDER / kind / f"{recording}.ndjson.gz"
    if packed.exists():
        return gzip.decompress(packed.read_bytes()).splitlines()
    plain = FOLDER / kind / f"{recording}.ndjson"
    return plain.read_bytes().splitlines() if plain.exists() else []


def truth_of(recording: str) -> Json:
    return TRUTH[recording.partition("-")[0]]


@all_recordings
def test_precision_and_recall_are_1(recording: str) -> None:
    truth, found = truth_of(recording), edges(converted(recording))
    assert expected_edges(truth) - found == set(), "missing"
    assert found - expected_edges(truth) - expected_edges(truth, "either_") == set(), "false"


@pytest.mark.parametrize("recording", [one for one in RECORDINGS if "jobs" in truth_of(one)])
def test_each_edge_belongs_to_the_right_job(recording: str) -> None:
    found = {
        job.definition.id: {"inputs": list(job.lineage.inputs), "outputs": list(job.lineage.outputs)}
        for job in converted(recording)
    }
    assert found == truth_of(recording)["jobs"]


@all_recordings
def test_columns_are_those_of_the_truth(recording: str) -> None:
    found = {
        (upstream, downstream)
        for job in converted(recording)
        for lineage in job.lineage.fine_grained
        for upstream in lineage["upstreams"]
        for downstream in lineage["downstreams"]
    }
    for source, column, target, of in truth_of(recording).get("columns", ()):
        assert (f"urn:li:schemaField:({source},{column})", f"urn:li:schemaField:({target},{of})") in found


def test_a_password_in_a_statement_is_not_shown() -> None:
    recording = "jdbc-4.3.0"
    assert b"s3cret" in b"".join(recorded("events", recording))
    assert "s3cret" not in repr([one.to_obj() for job in converted(recording) for one in proposals(job)])


@pytest.mark.slow
@all_recordings
def test_gms_accepts_every_proposal(recording: str) -> None:
    for job in converted(recording):
        assert [wrong for one in proposals(job) for wrong in canonical_violations(one.to_obj())] == []


def test_an_application_is_not_named_after_the_session_before_it() -> None:
    # The first event of a second session still carries the first one's name, and calls the job ``unknown``.
    first, second = converted("q_two_sessions")
    assert (first.definition.flow.flow_id, second.definition.flow.flow_id) == ("q_two_sessions", "q_second")
    assert (list(first.lineage.outputs), list(second.lineage.outputs)) == (
        ["urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/q/first,PROD)"],
        ["urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/q/second,PROD)"],
    )


def sessions(*outputs: str) -> list[Json]:
    """Return the events of two applications with the same name. Each writes one of the outputs."""
    first, second = outputs
    return [
        *whole_application(query(outputs=[file(first)])),
        *whole_application(query(parent=OTHER_APP, run_id=OTHER_QUERY, outputs=[file(second)]), run_id=OTHER_APP),
    ]


@pytest.mark.parametrize(("ending", "adds_only"), [(True, [False, True]), (False, [True, True])])
def test_sessions_of_one_name_keep_each_others_edges(ending: bool, adds_only: list[bool]) -> None:
    # They are runs of one job: what the second wrote must not take away what the first did.
    first, second = convert_events(sessions("/a", "/b"), settings(), Ending(succeeded=ending)).jobs
    assert first.job_urn == second.job_urn
    assert [first.patch_edges, second.patch_edges] == adds_only
    assert first.run_urn != second.run_urn
    assert APP in first.run_urn

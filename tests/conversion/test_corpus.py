"""Real Spark jobs: their lineage against what the jobs truly read and wrote, by ``truth.json``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Conversion, Converter, Ending, convert_events
from tests.conversion.builders import (
    APP,
    CORPUS,
    OTHER_APP,
    OTHER_QUERY,
    Json,
    corpus_events,
    file,
    file_urns,
    find_all,
    jobs,
    json_lines,
    only_job,
    proposals,
    query,
    settings,
    whole_application,
)
from tests.conversion.recordings import (
    CORPUS_TRUTH as TRUTH,
    RECORDINGS,
    column_pairs,
    edges,
    expected_columns,
    expected_edges,
    recorded,
    truth_of,
)
from tests.oracles.strict import canonical_violations

CAPTURED: Json = {"dataset_details": ["documentation", "owners", "tags"]}
CONFIGURATIONS: dict[str, Json] = {
    "default": {},
    "all aspects": {
        "datasets": "schemas",
        "capture_spark_plan": True,
        "platform_instance": "prod-eu",
        "dataset_platform_instance": "lake",
        "tags": "spark,daily",
        "domains": "urn:li:domain:sales",
        "owners": "jane",
        "parent_job_urn": "urn:li:dataJob:(urn:li:dataFlow:(airflow,dag,prod),task)",
        **CAPTURED,
    },
    "patch": {"use_patch": True, "tags": "spark,daily"},
}
all_cases = pytest.mark.parametrize("case", TRUTH)
all_recordings = pytest.mark.parametrize("recording", RECORDINGS)


@all_cases
@pytest.mark.parametrize("knows_exit", [True, False], ids=["exit code known", "events alone"])
def test_edges_columns_and_result_are_those_of_the_job(case: str, knows_exit: bool) -> None:
    truth = TRUTH[case]
    found = jobs(
        corpus_events(case), Ending(succeeded=truth["result"] == "SUCCESS") if knows_exit else None
    )
    got, either = edges(found), expected_edges(truth, "either_")
    missing = expected_edges(truth) - got
    if truth.get("min_outputs"):
        # Which of its writes a killed job reported is luck.
        missing = {edge for edge in missing if edge[0] == "inputs"}
        assert len([edge for edge in got if edge[0] == "outputs"]) >= truth["min_outputs"]
    assert got - expected_edges(truth) - either == set()
    assert missing - either == set()
    assert expected_columns(truth) <= column_pairs(found)
    allowed = [truth["result"], *([] if knows_exit else truth.get("either_result", []))]
    assert len(found) == truth.get("applications", 1)
    assert all(job.run.result is not None and job.run.result.type in allowed for job in found)


@pytest.mark.slow
@all_cases
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_gms_accepts_every_proposal(case: str, configuration: str) -> None:
    options = CONFIGURATIONS[configuration]
    found = [
        each for job in jobs(corpus_events(case), **options) for each in proposals(job, **options)
    ]
    assert found
    assert [violation for each in found for violation in canonical_violations(each.to_obj())] == []


@all_cases
def test_entities_are_those_of_the_java_listener(case: str) -> None:
    # Who switches must not get a second copy of a flow, job, run or dataset.
    written = json_lines(CORPUS / "java-listener" / f"{case}.coalesced.jsonl")
    java_entities = {line["entityUrn"] for line in written}
    (job, *others) = jobs(corpus_events(case))
    if others:
        # The Java listener converts the events of one driver; here it was fed those of two as one
        # application, which it names after the last event's job (`l_a`), not as a listener does
        # after the application (`l_A`).
        assert job.run_urn in java_entities
    else:
        assert {job.definition.flow.urn, job.job_urn, job.run_urn} <= java_entities
    (edge_aspect,) = (
        line["aspect"] for line in written if line["aspectName"] == "dataJobInputOutput"
    )
    java_edges: set[Any] = {
        edge["destinationUrn"]
        for key in ("inputDatasetEdges", "outputDatasetEdges")
        for edge in edge_aspect[key]
    }
    assert {
        urn for each in (job, *others) for urn in (*each.lineage.inputs, *each.lineage.outputs)
    } <= java_edges


def test_a_killed_driver_failed_and_only_adds_edges() -> None:
    # No end of the application, a query in flight: a failure that adds edges and takes none away.
    job = only_job(corpus_events("k_killed"))
    assert job.run.result is not None
    assert (job.run.result.type, job.patch_edges) == ("FAILURE", True)
    edges = find_all(proposals(job), "dataJobInputOutput")
    assert {proposal.change_type for proposal in edges} == {"PATCH"}


def test_the_exit_code_counts_more_than_the_events() -> None:
    """The application event of ``c_fail_midway`` says COMPLETE though ``spark-submit`` returned 1,
    and a stopped streaming query of ``h_streaming`` FAILs though it returned 0 (Deviation 13).
    """
    failed = only_job(corpus_events("c_fail_midway"), Ending(succeeded=False))
    streamed = only_job(corpus_events("h_streaming"), Ending(succeeded=True))
    assert failed.run.result is not None
    assert streamed.run.result is not None
    assert (failed.run.result.type, streamed.run.result.type) == ("FAILURE", "SUCCESS")


def test_two_applications_in_one_file_are_two_jobs() -> None:
    first, second = jobs(corpus_events("l_append"))
    assert list(first.lineage.outputs) == file_urns(
        *(f"/lake/out/l_A/p{number}" for number in range(4))
    )
    assert list(second.lineage.outputs) == file_urns(
        *(f"/lake/out/l_B/p{number}" for number in range(4))
    )
    assert (
        list(first.lineage.inputs)
        == list(second.lineage.inputs)
        == file_urns("/lake/raw/orders.csv")
    )
    assert (first.definition.flow.flow_id, second.definition.flow.flow_id) == ("l_A", "l_B")


def test_the_exit_code_belongs_to_the_last_of_two_applications() -> None:
    found = jobs(corpus_events("l_append"), Ending(succeeded=False))
    assert [job.run.result and job.run.result.type for job in found] == ["SUCCESS", "FAILURE"]


# -- Further jobs, of Spark 3.5 to 4.3: databases, table formats, Kafka, Hive, renames, views,
# sessions …


def conversion_of(recording: str) -> Conversion:
    """Return the result for a recording's events, and for Spark's own event log if that was
    recorded, too.
    """
    converter = Converter(settings())
    for line in recorded("events", recording):
        converter.add(line)
    for line in recorded("logs", recording):
        converter.add_log_event(json.loads(line))
    return converter.finish(Ending(succeeded=True))


@all_recordings
def test_precision_and_recall_are_1_and_no_table_is_unreported(recording: str) -> None:
    truth, conversion = truth_of(recording), conversion_of(recording)
    found = edges(conversion.jobs)
    assert expected_edges(truth) - found == set(), "missing"
    assert found - expected_edges(truth) - expected_edges(truth, "either_") == set(), "false"
    assert expected_columns(truth) <= column_pairs(conversion.jobs)
    assert conversion.diagnostics.unreported_messages() == []


@pytest.mark.parametrize("recording", [one for one in RECORDINGS if "jobs" in truth_of(one)])
def test_each_edge_belongs_to_the_right_job(recording: str) -> None:
    found = {
        job.definition.id: {
            "inputs": list(job.lineage.inputs),
            "outputs": list(job.lineage.outputs),
        }
        for job in conversion_of(recording).jobs
    }
    assert found == truth_of(recording)["jobs"]


def test_an_application_is_not_named_after_the_session_before_it() -> None:
    # The first event of a second session still carries the first one's name, and calls the job
    # ``unknown``.
    first, second = conversion_of("q_two_sessions").jobs
    assert (first.definition.flow.flow_id, second.definition.flow.flow_id) == (
        "q_two_sessions",
        "q_second",
    )
    assert (list(first.lineage.outputs), list(second.lineage.outputs)) == (
        ["urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/q/first,PROD)"],
        ["urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/q/second,PROD)"],
    )


def sessions(*outputs: str) -> list[Json]:
    """Return the events of two applications with the same name. Each writes one of the outputs."""
    first, second = outputs
    return [
        *whole_application(query(outputs=[file(first)])),
        *whole_application(
            query(parent=OTHER_APP, run_id=OTHER_QUERY, outputs=[file(second)]), run_id=OTHER_APP
        ),
    ]


@pytest.mark.parametrize(("ending", "adds_only"), [(True, [False, True]), (False, [True, True])])
def test_sessions_of_one_name_keep_each_others_edges(ending: bool, adds_only: list[bool]) -> None:
    # They are runs of one job: what the second wrote must not take away what the first did.
    first, second = convert_events(sessions("/a", "/b"), settings(), Ending(succeeded=ending)).jobs
    assert first.job_urn == second.job_urn
    assert [first.patch_edges, second.patch_edges] == adds_only
    assert first.run_urn != second.run_urn
    assert APP in first.run_urn

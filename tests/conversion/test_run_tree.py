"""The run tree (Airflow identity rules): URNs byte for byte, run events, and life beside DataHub's
own plugin.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from datahub.metadata.schema_classes import (
    OwnerClass,
    OwnershipSourceClass,
    OwnershipSourceTypeClass,
    OwnershipTypeClass,
    TagAssociationClass,
)
from datahub.metadata.urns import DataFlowUrn, DataJobUrn
from datahub.specific.datajob import DataJobPatchBuilder

from airflow_provider_spark_datahub.conversion import (
    DataInterval,
    Ending,
    LineageSettings,
    Proposal,
)
from airflow_provider_spark_datahub.conversion.convert import convert_single
from airflow_provider_spark_datahub.conversion.run_tree import (
    AirflowInfo,
    AirflowSite,
    AttemptResult,
    DagRun,
    TaskAttempt,
    UpstreamTask,
    owner_urns,
    tag_urns,
)
from tests.cases import cases
from tests.conversion.builders import (
    START_MS,
    file,
    file_urns,
    find,
    find_all,
    only_job,
    proposals,
    query,
    whole_application,
)
from tests.oracles.strict import canonical_violations

RUN_ID = "scheduled__2026-01-01T00:00:00+00:00"
SITE, SETTINGS = AirflowSite(), LineageSettings()
RUN = DagRun(
    SITE,
    "d",
    RUN_ID,
    kind="BATCH_SCHEDULED",
    start_ms=START_MS,
    url="http://af/run",
    dag=AirflowInfo(url="http://af/d"),
)
ATTEMPT = TaskAttempt(
    RUN, "t", 2, start_ms=START_MS + 1_000, log_url="http://af/log", upstream=(UpstreamTask("u"),)
)
JOB = only_job(whole_application(query(inputs=[file("/a")], outputs=[file("/z")])))
SPARK_JOB = "urn:li:dataJob:(urn:li:dataFlow:(spark,shop,default),d.t)"
TASK_JOB = "urn:li:dataJob:(urn:li:dataFlow:(airflow,d,prod),t)"


INFO = AirflowInfo(
    "daily",
    "http://af/d",
    {"catchup": "false"},
    owner_urns(["ann", "urn:li:corpGroup:etl"]),
    tag_urns(["a/b", "nightly"]),
)


def ended(result: AttemptResult = "SUCCESS", attempt: TaskAttempt = ATTEMPT) -> TaskAttempt:
    return attempt.ended(START_MS + 61_000, result)


def of(found: list[Proposal], urn: str) -> list[Proposal]:
    return [each for each in found if each.entity_urn == urn]


@cases("run_tree")
def test_task_runs_have_datahubs_urn(
    cluster: str, dag_id: str, task_id: str, run_id: str, guid: str
) -> None:
    urn = f"urn:li:dataProcessInstance:{guid}"
    assert AirflowSite(cluster).task_run_urn(dag_id, task_id, run_id) == urn
    # The platform instance is in no key of a run.
    assert AirflowSite(cluster, "eu").task_run_urn(dag_id, task_id, run_id) == urn


@pytest.mark.parametrize(
    ("site", "dag_id", "task_id", "flow_id"),
    [
        (SITE, "d", "t", "d"),
        (AirflowSite("PROD", "team"), "d", "group.t", "team.d"),
        (AirflowSite("stage"), "größe (1,2)", "a,b(c)", "größe (1,2)"),
    ],
)
def test_flow_and_job_are_spelled_as_acryl_datahub_spells_them(
    site: AirflowSite, dag_id: str, task_id: str, flow_id: str
) -> None:
    flow = DataFlowUrn("airflow", flow_id, site.cluster)
    assert site.flow_urn(dag_id) == flow.urn()
    assert site.job_urn(dag_id, task_id) == DataJobUrn(flow, task_id).urn()


def test_runs_are_children_of_their_task_run_and_dag_run() -> None:
    found = [
        *ended().proposals([JOB]),
        *(one for job in ATTEMPT.attach([JOB], SETTINGS) for one in proposals(job)),
    ]
    parents = {
        each.entity_urn: (
            each.aspect["parentTemplate"],
            each.aspect.get("parentInstance"),
            each.aspect["upstreamInstances"],
        )
        for each in find_all(found, "dataProcessInstanceRelationships")
    }
    assert parents == {
        RUN.urn: (SITE.flow_urn("d"), None, []),
        ATTEMPT.urn: (TASK_JOB, RUN.urn, [SITE.task_run_urn("d", "u", RUN_ID)]),
        JOB.run_urn: (SPARK_JOB, ATTEMPT.urn, []),
    }
    edges = {
        each.entity_urn: each.aspect["inputDatajobs"]
        for each in find_all(found, "dataJobInputOutput")
    }
    assert edges == {TASK_JOB: [SITE.job_urn("d", "u")], SPARK_JOB: [TASK_JOB]}
    assert list(parents) == [RUN.urn, ATTEMPT.urn, JOB.run_urn]


def test_all_runs_of_a_mapped_upstream_task_are_upstream() -> None:
    attempt = TaskAttempt(RUN, "t", 1, upstream=(UpstreamTask("m", (0, 1)),))
    found = attempt.ended(START_MS, "SUCCESS").proposals([])
    relationships = of(find_all(found, "dataProcessInstanceRelationships"), attempt.urn)[0].aspect
    runs = [SITE.task_run_urn("d", "m", RUN_ID, index) for index in (0, 1)]
    assert relationships["upstreamInstances"] == runs
    edges = find(found, "dataJobInputOutput").aspect
    assert [edge["path"] for edge in edges] == [f"/inputDatajobEdges/{SITE.job_urn('d', 'm')}"]


def test_a_started_attempt_has_a_run_without_result() -> None:
    found = ATTEMPT.proposals()
    (event,) = (
        each.aspect for each in of(find_all(found, "dataProcessInstanceRunEvent"), ATTEMPT.urn)
    )
    assert (event["status"], event["timestampMillis"], event["attempt"]) == (
        "STARTED",
        START_MS + 1_000,
        2,
    )
    (run_event,) = (
        each.aspect for each in of(find_all(found, "dataProcessInstanceRunEvent"), RUN.urn)
    )
    assert (run_event["status"], run_event.get("attempt")) == ("STARTED", None)
    assert find_all(found, "dataJobInputOutput") == []


@pytest.mark.parametrize("result", ["SUCCESS", "UP_FOR_RETRY", "FAILURE", "SKIPPED"])
def test_an_ended_attempt_has_its_result(result: AttemptResult) -> None:
    found = ended(result).proposals([JOB])
    _, event = (
        each.aspect for each in of(find_all(found, "dataProcessInstanceRunEvent"), ATTEMPT.urn)
    )
    assert event["result"] == {"type": result, "nativeResultType": "airflow"}
    assert (event["status"], event["attempt"], event["durationMillis"]) == ("COMPLETE", 2, 60_000)
    assert find(found, "dataProcessInstanceInput").aspect == {"inputs": file_urns("/a")}
    assert find(found, "dataProcessInstanceOutput").aspect == {"outputs": file_urns("/z")}
    # Deviation 10: a bad try takes no edge away.
    assert find(found, "dataJobInputOutput").change_type == (
        "UPSERT" if result == "SUCCESS" else "PATCH"
    )


@pytest.mark.parametrize(
    ("result", "sent"), [("SUCCESS", True), ("UP_FOR_RETRY", False), ("FAILURE", False)]
)
def test_a_failure_before_the_first_read_leaves_the_datasets_of_earlier_attempts(
    result: AttemptResult, sent: bool
) -> None:
    found = ended(result).proposals([])
    for side in ("Input", "Output"):
        assert bool(find_all(found, f"dataProcessInstance{side}")) is sent, side


@cases("run_tree")
def test_a_failed_or_incomplete_attempt_only_adds_edges(
    result: AttemptResult, complete: bool, change_types: list[str]
) -> None:
    # Deviation 10, for the task's own edges: also where events of its Spark job are missing.
    job = only_job(whole_application(query(inputs=[file("/a")])), Ending(events_complete=complete))
    found = ended(result).proposals([job])
    assert [each.change_type for each in find_all(found, "dataJobInputOutput")] == change_types


def test_a_successful_attempt_without_lineage_removes_no_edge() -> None:
    attempt = ended(attempt=TaskAttempt(RUN, "t", 1))
    assert find_all(attempt.proposals(), "dataJobInputOutput") == []


def test_runs_have_airflows_properties() -> None:
    properties = find_all(ATTEMPT.proposals(), "dataProcessInstanceProperties")
    found = {each.entity_urn: each.aspect for each in properties}
    assert found[ATTEMPT.urn]["customProperties"] == {
        "dag_id": "d",
        "task_id": "t",
        "run_id": RUN_ID,
    }
    assert (found[ATTEMPT.urn]["externalUrl"], found[RUN.urn]["externalUrl"]) == (
        "http://af/log",
        "http://af/run",
    )
    assert found[ATTEMPT.urn]["type"] == found[RUN.urn]["type"] == "BATCH_SCHEDULED"


def test_gms_keeps_all_events_of_one_millisecond() -> None:
    # GMS keeps one per run, time, granularity, message id and partition
    # (``TimeseriesAspectTransformer.getDocId``).
    attempts = [
        TaskAttempt(RUN, "t", number, start_ms=START_MS).ended(START_MS, "FAILURE")
        for number in (1, 2)
    ]
    events = [
        each.aspect
        for attempt in attempts
        for each in of(find_all(attempt.proposals(), "dataProcessInstanceRunEvent"), attempt.urn)
    ]
    assert len(events) == 4
    assert {event["timestampMillis"] for event in events} == {START_MS}
    assert [event["messageId"] for event in events] == [
        "STARTED 1",
        "COMPLETE 1",
        "STARTED 2",
        "COMPLETE 2",
    ]


DAY = DataInterval(START_MS, START_MS + 86_400_000)
DAY_SPEC = {"partition": "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z", "type": "PARTITION"}


def test_the_data_interval_of_the_dag_run_applies_to_the_runs_below_it() -> None:
    run = replace(RUN, interval=DAY)
    attempt = replace(ATTEMPT, dag_run=run).ended(START_MS + 61_000, "SUCCESS")
    found = [
        *attempt.proposals([JOB]),
        *run.end_proposals(START_MS + 90_000, "SUCCESS"),
        *(one for job in attempt.attach([JOB], SETTINGS) for one in proposals(job)),
    ]
    events = find_all(found, "dataProcessInstanceRunEvent")
    assert {each.entity_urn for each in events} == {run.urn, attempt.urn, JOB.run_urn}
    for each in events:
        assert each.aspect["partitionSpec"] == DAY_SPEC
        assert each.aspect["eventGranularity"] == {"unit": "DAY", "multiple": 1}
    shown = {
        each.entity_urn: each.aspect for each in find_all(found, "dataProcessInstanceProperties")
    }
    for urn in (run.urn, attempt.urn):
        assert shown[urn]["customProperties"]["data_interval_start"] == "2026-01-01T00:00:00Z"
        assert shown[urn]["customProperties"]["data_interval_end"] == "2026-01-02T00:00:00Z"
    assert shown[JOB.run_urn]["type"] == "BATCH_SCHEDULED"
    assert [problem for each in found for problem in canonical_violations(each.to_obj())] == []


def test_each_spark_job_belongs_to_its_task() -> None:
    (job,) = ATTEMPT.attach([JOB], SETTINGS)
    assert (job.job_urn, job.definition.name) == (SPARK_JOB, "shop")
    # One DataJob per event: no other task may share it, either.
    event = query()
    (single,) = ATTEMPT.attach(convert_single(event, SETTINGS).jobs, SETTINGS)
    assert single.job_urn == f"{SPARK_JOB[:-1]}.{event['job']['name']})"
    (listeners,) = ATTEMPT.attach([JOB], LineageSettings(spark_job_id="application"))
    assert listeners.job_urn == JOB.job_urn


def test_details_of_the_events_win_over_the_dag_run() -> None:
    hour = {
        "nominalTime": {
            "nominalStartTime": "2026-01-01T03:00:00Z",
            "nominalEndTime": "2026-01-01T04:00:00Z",
        }
    }
    job = only_job(whole_application(run_facets=hour))
    (job,) = replace(ATTEMPT, dag_run=replace(RUN, interval=DAY)).attach([job], SETTINGS)
    assert job.run.details.interval == DataInterval(
        START_MS + 3 * 3_600_000, START_MS + 4 * 3_600_000
    )


def test_a_mapped_run_has_its_map_index() -> None:
    mapped = TaskAttempt(RUN, "t", 1, map_index=3)
    properties = of(find_all(mapped.proposals(), "dataProcessInstanceProperties"), mapped.urn)[
        0
    ].aspect
    assert properties["customProperties"]["map_index"] == "3"
    assert properties["name"].endswith("_3")


def test_without_a_start_there_is_no_duration() -> None:
    attempt = TaskAttempt(DagRun(SITE, "d", RUN_ID), "t", 1).ended(START_MS, "SUCCESS")
    found = [*attempt.proposals(), *attempt.dag_run.end_proposals(START_MS, "SUCCESS")]
    events = [each.aspect for each in find_all(found, "dataProcessInstanceRunEvent")]
    assert [event["status"] for event in events] == ["COMPLETE", "COMPLETE"]
    assert not any("durationMillis" in event for event in events)


def test_beside_datahubs_own_plugin_only_what_it_lacks() -> None:
    attempt = ended(attempt=TaskAttempt(RUN, "t", 1, written_by_plugin=True))
    found = attempt.proposals([JOB])
    assert {each.entity_urn for each in found} == {RUN.urn, ATTEMPT.urn}
    assert [each.aspect_name for each in of(found, ATTEMPT.urn)] == [
        "dataProcessInstanceRelationships"
    ]


def test_beside_datahubs_own_plugin_the_runs_of_a_mapped_task_are_below_its_run() -> None:
    # The plugin writes one run for all of them.
    attempt = ended(
        attempt=TaskAttempt(RUN, "t", 1, map_index=3, start_ms=START_MS, written_by_plugin=True)
    )
    found = attempt.proposals([JOB])
    assert {each.entity_urn for each in found} == {RUN.urn, ATTEMPT.urn, attempt.urn}
    parents = {
        each.entity_urn: each.aspect.get("parentInstance")
        for each in find_all(found, "dataProcessInstanceRelationships")
    }
    assert parents == {RUN.urn: None, ATTEMPT.urn: RUN.urn, attempt.urn: ATTEMPT.urn}
    assert [each.aspect_name for each in of(found, ATTEMPT.urn)] == [
        "dataProcessInstanceRelationships"
    ]
    assert {each.aspect_name for each in of(found, attempt.urn)} == {
        "dataProcessInstanceProperties",
        "dataProcessInstanceRelationships",
        "dataProcessInstanceInput",
        "dataProcessInstanceOutput",
        "dataProcessInstanceRunEvent",
        "status",
    }
    events = [
        each.aspect
        for each in find_all(found, "dataProcessInstanceRunEvent")
        if each.entity_urn == attempt.urn
    ]
    assert [(event["status"], event["attempt"]) for event in events] == [
        ("STARTED", 1),
        ("COMPLETE", 1),
    ]


def test_owners_and_tags_are_added_as_acryl_datahubs_builders_add_them() -> None:
    attempt = replace(ATTEMPT, dag_run=replace(RUN, dag=INFO), task=INFO)
    # Its builder of the DataFlow has the same two methods.
    for urn in (SITE.flow_urn("d"), TASK_JOB):
        builder = DataJobPatchBuilder(TASK_JOB)
        for owner in ("urn:li:corpGroup:etl", "urn:li:corpuser:ann"):
            source = OwnershipSourceClass(OwnershipSourceTypeClass.SERVICE)
            builder.add_owner(OwnerClass(owner, OwnershipTypeClass.DEVELOPER, source=source))
        for tag in ("urn:li:tag:a/b", "urn:li:tag:nightly"):
            builder.add_tag(TagAssociationClass(tag))
        expected = {
            str(mcp.aspectName): json.loads(mcp.aspect.value)
            for mcp in builder.build()
            if mcp.aspect
        }
        found = {each.aspect_name: each for each in of(attempt.proposals(), urn)}
        assert {name: found[name].aspect for name in expected} == expected
        assert {found[name].change_type for name in expected} == {"PATCH"}
    # They are the plugin's if it is there.
    names = {each.aspect_name for each in replace(attempt, written_by_plugin=True).proposals()}
    assert names.isdisjoint({"ownership", "globalTags", "dataFlowInfo", "dataJobInfo"})


def test_gms_accepts_every_proposal() -> None:
    site = AirflowSite("PROD", "eu")
    run = DagRun(site, "d,(x)", RUN_ID, start_ms=None, dag=INFO)
    mapped = TaskAttempt(
        run, "t", 1, map_index=3, start_ms=None, upstream=(UpstreamTask("u"),)
    ).ended(START_MS, "SKIPPED")
    found = [
        *ATTEMPT.proposals(),
        *ended(attempt=replace(ATTEMPT, task=INFO)).proposals([JOB]),
        *mapped.proposals([JOB]),
        *run.end_proposals(START_MS, "FAILURE"),
        *(one for job in ATTEMPT.attach([JOB], SETTINGS) for one in proposals(job)),
    ]
    assert [violation for each in found for violation in canonical_violations(each.to_obj())] == []

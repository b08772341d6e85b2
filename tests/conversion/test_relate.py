from __future__ import annotations

from typing import Any

import pytest
from datahub.api.entities.dataprocess.dataprocess_instance import DataProcessInstance
from datahub.emitter.mcp_builder import DatahubKey
from datahub.utilities.urns.data_flow_urn import DataFlowUrn
from datahub.utilities.urns.data_job_urn import DataJobUrn

from airflow_provider_spark_datahub.conversion.convert import convert_events
from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.conversion.relate import (
    AirflowSite,
    DagRun,
    TaskTry,
    TryResult,
    UpstreamTask,
    below,
    dag_run_ended,
    task_proposals,
)
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from tests.conversion.builders import corpus_events
from tests.oracles.strict import canonical_violations

RUN_ID = "scheduled__2026-01-01T00:00:00+00:00"
JOB = "urn:li:dataJob:(urn:li:dataFlow:(airflow,d,prod),t)"
ENDED_MS = 1_767_225_965_500


class DagRunKey(DatahubKey):
    cluster: str
    orchestrator: str = "airflow"
    dag_id: str
    run_id: str


class MappedTaskRunKey(DatahubKey):
    cluster: str
    orchestrator: str = "airflow"
    id: str
    map_index: str


def task_try(**more: Any) -> TaskTry:
    run = DagRun(AirflowSite(), "d", RUN_ID, "BATCH_SCHEDULED", 1_767_225_890_000, "http://run", "http://dag", "Text")
    return TaskTry(**{"dag_run": run, "task_id": "t", "try_number": 2, "start_ms": 1_767_225_900_000, **more})


def found(proposals: list[Proposal], urn: str, aspect: str) -> list[Any]:
    return [one.aspect for one in proposals if (one.entity_urn, one.aspect_name) == (urn, aspect)]


@pytest.mark.parametrize(
    ("cluster", "dag_id", "task_id", "run_id", "urn"),
    [
        ("prod", "d", "t", RUN_ID, "urn:li:dataProcessInstance:3d4e4af7a99e1d053d80881763570385"),
        ("PROD", "d", "t", RUN_ID, "urn:li:dataProcessInstance:155c18e217b5efe7ae24703b091c0e37"),
        (
            "prod",
            "plugin_sample",
            "ok",
            "manual__2026-11-21T08:02:04.340847+00:00",
            "urn:li:dataProcessInstance:c93028f169a8f3a1cf1c193ab25f067d",
        ),
    ],
)
def test_task_runs_are_those_that_datahubs_plugin_wrote(
    cluster: str, dag_id: str, task_id: str, run_id: str, urn: str
) -> None:
    site = AirflowSite(cluster, "an instance is no part of it")
    assert site.task_run_urn(dag_id, task_id, run_id) == urn
    run_id = f"{dag_id}_{task_id}_{run_id}"
    assert urn == str(DataProcessInstance(id=run_id, orchestrator="airflow", cluster=cluster).urn)


def test_task_runs_of_mapped_tasks_differ() -> None:
    key = MappedTaskRunKey(cluster="prod", id=f"d_t_{RUN_ID}", map_index="0")
    mapped = AirflowSite().task_run_urn("d", "t", RUN_ID, 0)
    assert mapped == f"urn:li:dataProcessInstance:{key.guid()}"
    assert (
        len({mapped, AirflowSite().task_run_urn("d", "t", RUN_ID, 1), AirflowSite().task_run_urn("d", "t", RUN_ID)})
        == 3
    )


def test_dag_runs_of_one_run_id_differ_by_dag() -> None:
    key = DagRunKey(cluster="EU", dag_id="d", run_id=RUN_ID)
    site = AirflowSite("EU")
    assert site.dag_run_urn("d", RUN_ID) == f"urn:li:dataProcessInstance:{key.guid()}"
    assert site.dag_run_urn("e", RUN_ID) != site.dag_run_urn("d", RUN_ID)


@pytest.mark.parametrize(
    ("site", "dag_id", "task_id", "flow_id"),
    [
        (AirflowSite(), "d", "t", "d"),
        (AirflowSite("eu", "team"), "d", "group.t", "team.d"),
        (AirflowSite(), "größe (1,2)", "a,b(c)", "größe (1,2)"),
    ],
)
def test_flows_and_jobs_are_spelled_by_acryl_datahub(
    site: AirflowSite, dag_id: str, task_id: str, flow_id: str
) -> None:
    flow = DataFlowUrn("airflow", flow_id, site.cluster)
    assert site.flow_urn(dag_id) == str(flow)
    assert site.job_urn(dag_id, task_id) == str(DataJobUrn(flow, task_id))


def test_every_proposal_is_strict() -> None:
    jobs = convert_events(corpus_events("a_csv_join_agg"), LineageSettings()).jobs
    one = task_try(upstream=(UpstreamTask("u"), UpstreamTask("m", (0, 1))), map_index=3, log_url="http://log")
    site = AirflowSite("eu", "team")
    instanced = task_try(dag_run=DagRun(site, "d", RUN_ID))
    every = [
        *task_proposals(one),
        *task_proposals(one.ended(ENDED_MS, "SUCCESS"), [below(job, one) for job in jobs]),
        *task_proposals(one.ended(ENDED_MS, "FAILURE"), jobs),
        *task_proposals(instanced),
        *dag_run_ended(one.dag_run, ENDED_MS, "FAILURE"),
    ]
    assert [canonical_violations(proposal.to_obj()) for proposal in every] == [[]] * len(every)


def test_a_try_that_starts() -> None:
    started = task_try(log_url="http://log")
    proposals = task_proposals(started)
    urn = started.urn
    assert found(proposals, urn, "dataProcessInstanceRelationships") == [
        {"parentTemplate": JOB, "parentInstance": started.dag_run.urn, "upstreamInstances": []}
    ]
    assert found(proposals, started.dag_run.urn, "dataProcessInstanceRelationships") == [
        {"parentTemplate": "urn:li:dataFlow:(airflow,d,prod)", "upstreamInstances": []}
    ]
    (properties,) = found(proposals, urn, "dataProcessInstanceProperties")
    assert properties == {
        "customProperties": {"dag_id": "d", "task_id": "t", "run_id": RUN_ID},
        "externalUrl": "http://log",
        "name": f"d_t_{RUN_ID}",
        "type": "BATCH_SCHEDULED",
        "created": {"time": 1_767_225_900_000, "actor": "urn:li:corpuser:datahub"},
    }
    (flow,) = found(proposals, "urn:li:dataFlow:(airflow,d,prod)", "dataFlowInfo")
    assert (flow["name"], flow["description"], flow["externalUrl"]) == ("d", "Text", "http://dag")
    assert [(one["status"], one["attempt"]) for one in found(proposals, urn, "dataProcessInstanceRunEvent")] == [
        ("STARTED", 2)
    ]
    assert [one["status"] for one in found(proposals, started.dag_run.urn, "dataProcessInstanceRunEvent")] == [
        "STARTED"
    ]
    assert found(proposals, JOB, "dataJobInputOutput") == []


@pytest.mark.parametrize("result", ["SUCCESS", "UP_FOR_RETRY", "FAILURE", "SKIPPED"])
def test_a_try_that_ends(result: TryResult) -> None:
    ended = task_try().ended(ENDED_MS, result)
    (started, completed) = found(task_proposals(ended, []), ended.urn, "dataProcessInstanceRunEvent")
    assert (started["status"], started["timestampMillis"]) == ("STARTED", 1_767_225_900_000)
    assert completed == {
        "timestampMillis": ENDED_MS,
        "partitionSpec": {"partition": "FULL_TABLE_SNAPSHOT", "type": "FULL_TABLE"},
        "status": "COMPLETE",
        "attempt": 2,
        "result": {"type": result, "nativeResultType": "airflow"},
        "durationMillis": 65_500,
    }


def test_without_a_start_there_is_no_duration() -> None:
    ended = task_try(start_ms=None).ended(ENDED_MS, "SUCCESS")
    (completed,) = found(task_proposals(ended), ended.urn, "dataProcessInstanceRunEvent")
    assert "durationMillis" not in completed
    (end,) = found(
        dag_run_ended(DagRun(AirflowSite(), "d", RUN_ID), ENDED_MS, "SUCCESS"),
        AirflowSite().dag_run_urn("d", RUN_ID),
        "dataProcessInstanceRunEvent",
    )
    assert "durationMillis" not in end


def test_upstream_runs_and_tasks() -> None:
    one = task_try(upstream=(UpstreamTask("u"), UpstreamTask("m", (0, 2)), UpstreamTask("many", ())))
    site = AirflowSite()
    (relationships,) = found(task_proposals(one), one.urn, "dataProcessInstanceRelationships")
    assert relationships["upstreamInstances"] == [
        site.task_run_urn("d", "u", RUN_ID),
        site.task_run_urn("d", "m", RUN_ID, 0),
        site.task_run_urn("d", "m", RUN_ID, 2),
    ]
    jobs = convert_events(corpus_events("a_csv_join_agg"), LineageSettings()).jobs
    (io,) = found(task_proposals(one.ended(ENDED_MS, "SUCCESS"), jobs), JOB, "dataJobInputOutput")
    assert io["inputDatajobs"] == [site.job_urn("d", name) for name in ("u", "m", "many")]


def test_a_mapped_run_says_which() -> None:
    one = task_try(map_index=3)
    (properties,) = found(task_proposals(one), one.urn, "dataProcessInstanceProperties")
    assert properties["customProperties"]["map_index"] == "3"
    assert properties["name"] == f"d_t_{RUN_ID}_3"


@pytest.mark.parametrize(
    ("result", "has_jobs", "change_types"),
    [
        ("SUCCESS", True, ["UPSERT"]),
        ("UP_FOR_RETRY", True, ["PATCH"]),
        ("FAILURE", True, ["PATCH"]),
        ("SUCCESS", False, []),
    ],
)
def test_what_failed_or_is_unknown_only_adds(result: TryResult, has_jobs: bool, change_types: list[str]) -> None:
    jobs = convert_events(corpus_events("a_csv_join_agg"), LineageSettings()).jobs if has_jobs else []
    proposals = task_proposals(task_try().ended(ENDED_MS, result), jobs)
    assert [one.change_type for one in proposals if one.aspect_name == "dataJobInputOutput"] == change_types


def test_the_spark_job_is_below_the_task() -> None:
    (job,) = convert_events(corpus_events("a_csv_join_agg"), LineageSettings()).jobs
    related = below(below(job, task_try()), task_try())
    assert related.parent_instance == task_try().urn
    assert related.upstream_jobs == (JOB,)
    assert job.parent_instance != task_try().urn  # the event's own parent stays in the original


def test_beside_datahubs_own_plugin_only_what_it_lacks() -> None:
    one = task_try(written_by_plugin=True).ended(ENDED_MS, "SUCCESS")
    jobs = convert_events(corpus_events("a_csv_join_agg"), LineageSettings()).jobs
    assert [(proposal.entity_urn, proposal.aspect_name) for proposal in task_proposals(one, jobs)] == [
        (one.dag_run.urn, "dataProcessInstanceProperties"),
        (one.dag_run.urn, "dataProcessInstanceRelationships"),
        (one.dag_run.urn, "dataProcessInstanceRunEvent"),
        (one.urn, "dataProcessInstanceRelationships"),
    ]


@pytest.mark.parametrize("result", ["SUCCESS", "FAILURE"])
def test_a_dag_run_that_ends(result: Any) -> None:
    run = task_try().dag_run
    proposals = dag_run_ended(run, ENDED_MS, result)
    assert {proposal.entity_urn for proposal in proposals} == {run.urn}
    started, completed = found(proposals, run.urn, "dataProcessInstanceRunEvent")
    assert (started["status"], started["timestampMillis"]) == ("STARTED", 1_767_225_890_000)
    assert completed["result"] == {"type": result, "nativeResultType": "airflow"}
    assert (completed["timestampMillis"], completed["durationMillis"]) == (ENDED_MS, 75_500)

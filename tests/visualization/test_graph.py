from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import Graph, render_json
from airflow_provider_spark_datahub.visualization.model import Attempt, ColumnLineage, RunNode
from airflow_provider_spark_datahub.visualization.names import Column
from tests.cases import cases, tables
from tests.visualization.conftest import (
    QUERY,
    application_run,
    event_at,
    job_of_writes,
    run_proposals,
    spark_job,
)

RUN = "urn:li:dataProcessInstance:{}"
JOB = "urn:li:dataJob:(urn:li:dataFlow:(spark,app,default),app)"
AIRFLOW_JOB = "urn:li:dataJob:(urn:li:dataFlow:(airflow,dag,prod),task)"
A = "urn:li:dataset:(urn:li:dataPlatform:s3,bucket/a,PROD)"
B = "urn:li:dataset:(urn:li:dataPlatform:s3,bucket/b,PROD)"
COLUMN_A = f"urn:li:schemaField:({A},x)"
COLUMN_B = f"urn:li:schemaField:({B},y)"


def run(
    name: str, parent: str | None = None, upstreams: Sequence[str] = (), created_ms: int = 0
) -> list[Proposal]:
    parent_urn = RUN.format(parent) if parent else None
    upstream_urns = [RUN.format(upstream) for upstream in upstreams]
    return run_proposals(RUN.format(name), name, None, parent_urn, upstream_urns, created_ms)


def edges(aspect: Any, *, patch: bool = False, job: str = JOB) -> Proposal:
    return Proposal("dataJob", job, "dataJobInputOutput", aspect, "PATCH" if patch else "UPSERT")


def outline(runs: list[RunNode] | tuple[RunNode, ...]) -> dict[str, Any]:
    return {node.name: outline(node.children) for node in runs}


def add(path: str, op: str = "add") -> dict[str, Any]:
    return {"op": op, "path": path, "value": {}}


def escaped(urn: str) -> str:
    return urn.replace("~", "~0").replace("/", "~1")


@cases("visualization")
def test_the_template_decides_the_kind_of_a_run(template: str | None, kind: str) -> None:
    relationships: dict[str, Any] = {"parentTemplate": template, "upstreamInstances": []}
    urn = RUN.format("r")
    graph = Graph.of(
        [Proposal("dataProcessInstance", urn, "dataProcessInstanceRelationships", relationships)]
    )
    assert [(node.urn, node.kind, node.name) for node in graph.roots] == [(urn, kind, "r")]


@cases("visualization")
def test_every_run_is_in_the_tree_once(runs: list[list[Any]], expected: dict[str, Any]) -> None:
    graph = Graph.of(proposal for each in runs for proposal in run(*each))
    assert outline(graph.roots) == expected
    assert list(outline(graph.roots)) == list(expected)


def test_a_cycle_of_parents_is_reported() -> None:
    graph = Graph.of([*run("a", "b"), *run("b", "c"), *run("c", "b"), *run("other")])
    assert outline(graph.roots) == {"other": {}}
    assert graph.problems == tuple(
        f"{RUN.format(name)} is not shown: its parents form a cycle" for name in "abc"
    )


def test_a_very_deep_tree_can_be_walked() -> None:
    graph = Graph.of([p for n in range(3000) for p in run(str(n), str(n - 1) if n else None)])
    assert [node.name for node in graph.runs()] == [str(number) for number in range(3000)]


@cases("visualization")
def test_events_of_a_run_become_attempts(
    events: list[list[Any]], attempts: list[list[Any]]
) -> None:
    [node] = Graph.of([*run("r"), *(event_at(RUN.format("r"), *each) for each in events)]).roots
    assert node.attempts() == [Attempt(*each) for each in attempts]


@cases("visualization")
def test_the_state_of_an_attempt(attempt: list[Any], state: str) -> None:
    assert Attempt(*attempt).state == state


WHOLE = tables("graph")["test_the_edges_of_a_job"][1][1][0]


def test_a_job_has_the_edges_of_its_aspect_and_the_name_of_its_info() -> None:
    info = Proposal("dataJob", JOB, "dataJobInfo", {"name": "My application"})
    [job] = Graph.of([edges(WHOLE), info]).jobs
    assert (job.name, [*job.inputs], [*job.outputs], job.upstream_jobs) == (
        "My application",
        [A],
        [B],
        (AIRFLOW_JOB,),
    )
    [column] = job.columns
    assert (column.output, column.inputs, column.transformation) == (
        Column(B, "y"),
        (Column(A, "x"),),
        "t",
    )


def test_a_spark_job_has_the_edges_of_the_datajobs_of_its_outputs() -> None:
    """They have its name, its URN, and its statements."""
    evidence = {"source": "EVENT", "queries": f"run {QUERY}"}
    proposals = job_of_writes("daily", ([A], [B], []), ([B], [A], []), statement="SELECT 1")
    proposals[3].aspect["outputDatasetEdges"][0]["properties"] = evidence
    (job,) = Graph.of(proposals).jobs
    assert (job.urn, job.name) == (spark_job("daily"), "daily")
    assert ([*job.inputs], [*job.outputs]) == ([A, B], [B, A])
    assert {(step.urn, *step.inputs, *step.outputs) for step in job.steps()} == {
        (job.urn, A, B),
        (job.urn, B, A),
    }
    edge = job.outputs[B]
    assert edge is not None
    assert [query.statement for query in edge.queries] == ["SELECT 1"]
    (document,) = render_json(Graph.of(proposals))["jobs"]
    assert document["writes"] == [
        {"inputs": [A], "outputs": [B]},
        {"inputs": [B], "outputs": [A]},
    ]


def test_what_only_the_last_run_of_a_job_names_as_read_is_shown() -> None:
    application = application_run(RUN.format("r"), "daily")
    reads = Proposal(
        "dataProcessInstance", RUN.format("r"), "dataProcessInstanceInput", {"inputs": [A, B]}
    )
    (job,) = Graph.of([*job_of_writes("daily", ([A], [B], [])), *application, reads]).jobs
    assert [([*step.inputs], [*step.outputs]) for step in job.steps()] == [([A], [B]), ([B], [])]
    task = run_proposals(RUN.format("t"), "t", AIRFLOW_JOB, None, ())
    of_task = Proposal(
        "dataProcessInstance", RUN.format("t"), "dataProcessInstanceInput", {"inputs": [A]}
    )
    assert Graph.of([*task, of_task]).jobs == ()


@cases("graph")
def test_the_edges_of_a_job(
    aspects: list[dict[str, Any] | list[Any]], inputs: list[str], outputs: list[str], columns: int
) -> None:
    graph = Graph.of(
        edges(aspect, patch=isinstance(aspect, list) or "patch" in aspect) for aspect in aspects
    )
    [job] = graph.jobs
    assert ([*job.inputs], [*job.outputs], len(job.columns)) == (inputs, outputs, columns)
    assert not graph.problems


def test_a_patch_adds_one_input_column_after_the_other() -> None:
    # acryl-datahub's DataJobPatchBuilder:
    # /fineGrainedLineages/<transformation>/<downstream>/<query>/<upstream>
    path = "/fineGrainedLineages/{}/" + escaped(COLUMN_B) + "/NONE/"
    patch = [
        add(path.format("IDENTITY") + escaped(COLUMN_A)),
        add(path.format("IDENTITY") + escaped(f"urn:li:schemaField:({A},z)")),
        add(path.format("SELECT a/b") + escaped(COLUMN_A)),
        add(path.format("NONE") + escaped(A)),
    ]
    [job] = Graph.of([edges(patch, patch=True)]).jobs
    assert [(column.inputs, column.transformation) for column in job.columns] == [
        ((Column(A, "x"), Column(A, "z")), "IDENTITY"),
        ((Column(A, "x"),), "SELECT a/b"),
        ((Column(A, ""),), None),
    ]
    [job] = Graph.of(
        [edges(patch, patch=True), edges([{**patch[3], "op": "remove"}], patch=True)]
    ).jobs
    assert [column.transformation for column in job.columns] == ["IDENTITY", "SELECT a/b"]


@cases("graph")
def test_a_malformed_proposal_is_skipped_and_reported(broken: list[Any]) -> None:
    graph = Graph.of([*run("a"), edges(WHOLE), Proposal(*broken)])
    assert [node.name for node in graph.roots] == ["a"]
    assert [([*job.inputs], [*job.outputs]) for job in graph.jobs] == [([A], [B])]
    assert len(graph.problems) == 1
    assert broken[1] in graph.problems[0]


def test_aspects_that_no_view_shows_are_no_problem() -> None:
    status = Proposal("dataset", A, "status", {"removed": False})
    tags = Proposal(
        "dataFlow", "urn:li:dataFlow:(spark,app,default)", "globalTags", [add("/tags/x")], "PATCH"
    )
    graph = Graph.of([status, status, tags])
    assert (graph.read, graph.problems) == (3, ())


def test_a_task_that_repeats_the_lineage_of_its_spark_job_is_left_out() -> None:
    same = {**WHOLE, "inputDatajobs": [], "fineGrainedLineages": []}
    more = {**same, "inputDatasetEdges": [{"destinationUrn": A}, {"destinationUrn": B}]}
    assert [
        job.urn for job in Graph.of([edges(same, job=AIRFLOW_JOB), edges(WHOLE)]).distinct_jobs()
    ] == [JOB]
    assert len(Graph.of([edges(more, job=AIRFLOW_JOB), edges(WHOLE)]).distinct_jobs()) == 2
    assert len(Graph.of([edges(same, job=AIRFLOW_JOB)]).distinct_jobs()) == 1


def test_a_run_keeps_what_it_read_and_wrote() -> None:
    reads = {"inputs": [A], "inputEdges": [{"destinationUrn": A}, {"destinationUrn": B}]}
    broken = {"outputs": "text"}
    urn = RUN.format("r")
    graph = Graph.of(
        [
            Proposal("dataProcessInstance", urn, "dataProcessInstanceInput", reads),
            Proposal("dataProcessInstance", urn, "dataProcessInstanceOutput", broken),
        ]
    )
    assert [(node.inputs, node.outputs) for node in graph.roots] == [((A, B), ())]
    assert len(graph.problems) == 1


@cases("visualization")
def test_a_transformation_in_a_few_words(transformation: str | None, text: str) -> None:
    lineage = ColumnLineage(Column(B, "y"), (), transformation)
    assert ", ".join(lineage.labels()) == text


def test_numbers_that_datahubs_models_cannot_have_are_reported() -> None:
    large = 10**400
    lineage = {
        "inputDatasetEdges": [
            {"destinationUrn": A, "properties": {"source": "EVENT", "moreQueries": "9" * 5000}}
        ]
    }
    urn = RUN.format("r")
    events = [
        event_at(urn, 1, 1, "SUCCESS", large),
        event_at(urn, large, 2),
        event_at(urn, 5, 3),
    ]
    graph = Graph.of([*run("r"), *events, edges(lineage)])
    (root,) = graph.roots
    assert [attempt.number for attempt in root.attempts()] == [3]
    evidence = graph.jobs[0].inputs[A]
    assert evidence is not None
    assert evidence.more_queries == 0
    assert [problem.rpartition("$.")[2] for problem in graph.problems] == [
        "durationMillis`",
        "timestampMillis`",
    ]

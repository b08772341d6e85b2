"""Differences between two sets of proposals."""

from __future__ import annotations

import random
from typing import Any

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.visualization.difference import Change, ChangedPart, compare
from tests.visualization.conftest import MIDNIGHT, application_run, dataset, event, lineage, spark_job

A, B, C = dataset("a"), dataset("b"), dataset("c")
JOB = spark_job("job")
RUN = "urn:li:dataProcessInstance:1"


def changes_of(before: list[Proposal], after: list[Proposal], **options: Any) -> list[Change]:
    return compare(before, after, **options)[0]


def schema(urn: str, **types: str) -> Proposal:
    fields = [{"fieldPath": path, "nativeDataType": type_} for path, type_ in types.items()]
    return Proposal("dataset", urn, "schemaMetadata", {"fields": fields})


def info(**properties: str) -> Proposal:
    return Proposal("dataJob", JOB, "dataJobInfo", {"name": "job", "customProperties": properties})


def test_the_same_does_not_differ_whatever_its_order(daily_sales: list[Proposal]) -> None:
    shuffled = list(daily_sales)
    random.Random(1).shuffle(shuffled)
    assert changes_of(daily_sales, shuffled) == []


def test_edges() -> None:
    changes = changes_of([lineage("job", [A, B], [C], [])], [lineage("job", [A], [C, B], [])])
    assert changes == [
        Change(ChangedPart.EDGE, JOB, ("reads", B), True, None),
        Change(ChangedPart.EDGE, JOB, ("writes", B), None, True),
    ]
    assert [change.kind for change in changes] == ["removed", "added"]


def test_the_time_of_an_edge_does_not_count() -> None:
    def at(time: int) -> Proposal:
        edge = {"destinationUrn": A, "lastModified": {"time": time, "actor": "urn:li:corpuser:datahub"}}
        return Proposal("dataJob", JOB, "dataJobInputOutput", {"inputDatasetEdges": [edge]})

    assert changes_of([at(1)], [at(2)]) == []


def test_column_edges() -> None:
    before = lineage("job", [A], [B], [(f"{B}#x", [f"{A}#x"], "DIRECT:IDENTITY"), (f"{B}#y", [f"{A}#y"], "")])
    after = lineage("job", [A], [B], [(f"{B}#x", [f"{A}#x"], "DIRECT:TRANSFORMATION")])
    assert changes_of([before], [after]) == [
        Change(ChangedPart.COLUMN_EDGE, JOB, (A, "x", B, "x"), "identity", "transformation"),
        Change(ChangedPart.COLUMN_EDGE, JOB, (A, "y", B, "y"), "", None),
    ]


def test_schemas() -> None:
    changes = changes_of([schema(A, x="int", y="string")], [schema(A, x="bigint", z="date")])
    assert changes == [
        Change(ChangedPart.SCHEMA, A, ("column", "x"), "int", "bigint"),
        Change(ChangedPart.SCHEMA, A, ("column", "y"), "string", None),
        Change(ChangedPart.SCHEMA, A, ("column", "z"), None, "date"),
    ]


def test_a_new_entity_is_listed_once() -> None:
    assert changes_of([], [schema(A, x="int"), info()]) == [
        Change(ChangedPart.ENTITY, JOB, (), None, True),
        Change(ChangedPart.ENTITY, A, (), None, True),
    ]


def test_other_aspects_value_by_value() -> None:
    assert changes_of([info(x="1", y="2")], [info(x="3", z="4")]) == [
        Change(ChangedPart.ASPECT, JOB, ("dataJobInfo", "customProperties.x"), "1", "3"),
        Change(ChangedPart.ASPECT, JOB, ("dataJobInfo", "customProperties.y"), "2", None),
        Change(ChangedPart.ASPECT, JOB, ("dataJobInfo", "customProperties.z"), None, "4"),
    ]


def test_results_of_attempts() -> None:
    def run(result: str) -> list[Proposal]:
        return [*application_run(RUN, "job"), event(RUN, 2, result, attempt=1)]

    assert changes_of(run("FAILURE"), run("SUCCESS")) == [
        Change(ChangedPart.RUN, RUN, ("result of try 1",), "FAILURE", "SUCCESS"),
    ]


def another_day(number: int, result: str) -> list[Proposal]:
    """Return two runs of the job: the first failed, and the second ended with the result."""
    proposals = []
    for order, end in enumerate(["FAILURE", result]):
        urn = f"urn:li:dataProcessInstance:{number}-{9 - order}"
        proposals += [*application_run(urn, "job"), event(urn, order * 60), event(urn, order * 60 + 30, end)]
    created = {"time": MIDNIGHT + number}
    properties = {"appId": f"app-{number}", "startedAt": str(number), "kept": "x"}
    aspect = {"name": "job", "created": created, "customProperties": properties}
    return [*proposals, Proposal("dataJob", JOB, "dataJobInfo", aspect)]


def test_runs_of_another_day_have_other_ids() -> None:
    changes = changes_of(another_day(1, "SUCCESS"), another_day(2, "SUCCESS"))
    assert {change.part for change in changes} == {ChangedPart.RUN, ChangedPart.ASPECT}
    assert changes_of(another_day(1, "SUCCESS"), another_day(2, "SUCCESS"), ignore_run_ids=True) == []


def test_with_ids_ignored_the_results_of_the_same_run_of_a_job_are_compared() -> None:
    (change,) = changes_of(another_day(1, "SUCCESS"), another_day(2, "FAILURE"), ignore_run_ids=True)
    assert (change.urn, change.before, change.after) == ("run 2 of spark job", "SUCCESS", "FAILURE")


def test_unreadable_proposals_are_reported() -> None:
    bad = Proposal("dataJob", JOB, "dataJobInputOutput", "<torn>")
    problem = f"dataJobInputOutput of {JOB} skipped: the aspect is not a JSON object"
    assert compare([bad], [bad])[1] == [problem, problem]

"""Differences between two sets of proposals."""

from __future__ import annotations

import random
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.visualization import Change, ChangedPart, compare
from tests.cases import cases
from tests.visualization.conftest import MIDNIGHT, application_run, dataset, event, lineage, spark_job

JOB = spark_job("job")
RUN = "urn:li:dataProcessInstance:1"
URNS = {"job": JOB, "run": RUN, **{name: dataset(name) for name in "abc"}}


def changes_of(before: list[Proposal], after: list[Proposal], **options: Any) -> list[Change]:
    return compare(before, after, **options)[0]


def proposals_of(short: dict[str, Any]) -> list[Proposal]:
    """Return the proposals that a case describes: a schema, a run's result, the job's properties, or its edges."""
    match short:
        case {"schema": name, "types": types}:
            fields = [{"fieldPath": path, "nativeDataType": type_} for path, type_ in types.items()]
            return [Proposal("dataset", dataset(name), "schemaMetadata", {"fields": fields})]
        case {"result": result}:
            return [*application_run(RUN, "job"), event(RUN, 2, result, attempt=1)]
        case {"properties": properties}:
            return [Proposal("dataJob", JOB, "dataJobInfo", {"name": "job", "customProperties": properties})]
    columns = [(_full(output), [_full(source)], text) for output, source, text in short.get("columns", ())]
    edges = lineage(
        "job", [dataset(name) for name in short["reads"]], [*map(dataset, short.get("writes", ""))], columns
    )
    for edge in edges.aspect["inputDatasetEdges"]:
        edge["lastModified"] = {"time": short.get("time", 0), "actor": "urn:li:corpuser:datahub"}
    return [edges]


def _full(column: str) -> str:
    name, _, path = column.partition("#")
    return f"{dataset(name)}#{path}"


def test_the_same_does_not_differ_whatever_its_order(daily_sales: list[Proposal]) -> None:
    shuffled = list(daily_sales)
    random.Random(1).shuffle(shuffled)
    assert changes_of(daily_sales, shuffled) == []


@cases("difference")
def test_changes(before: list[dict[str, Any]], after: list[dict[str, Any]], changes: list[list[Any]]) -> None:
    sides = ([proposal for short in side for proposal in proposals_of(short)] for side in (before, after))
    found = changes_of(*sides)
    assert [(change.part, change.urn, [*change.what], change.before, change.after) for change in found] == [
        (part, URNS[entity], [URNS.get(word, word) for word in what], old, new)
        for part, entity, what, old, new in changes
    ]


def test_a_change_adds_removes_or_changes() -> None:
    changes = changes_of([lineage("job", [dataset("a")], [], [])], [lineage("job", [], [dataset("b")], [])])
    assert [change.kind for change in changes] == ["removed", "added"]


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

"""Compaction keeps of all versions of an aspect what DataHub would have kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.conversion.archive.replay import (
    ADDED,
    LATEST,
    RUN,
    AspectVersion,
    _KeptProposal,
    compact_versions,
)
from airflow_provider_spark_datahub.conversion.aspects import input_output
from tests.cases import cases
from tests.oracles.strict import canonical_violations

FLOW = "urn:li:dataFlow:(spark,shop,default)"
JOB = f"urn:li:dataJob:({FLOW},shop)"


def dataset(name: str) -> str:
    return f"urn:li:dataset:(urn:li:dataPlatform:file,/{name},PROD)"


def version(
    proposal: Proposal, time_ms: int, *, run_id: str = "", submission: str = "", place: str = ""
) -> AspectVersion:
    return AspectVersion(
        place or proposal.entity_urn,
        time_ms,
        run_id or f"run-{time_ms}",
        0,
        submission,
        proposal.entity_type,
        proposal.entity_urn,
        proposal.aspect_name,
        proposal.change_type,
        proposal.value.encode(),
    )


def edges(change: str, names: Iterable[str], time_ms: int, submission: str = "") -> AspectVersion:
    """Return a patch or replacement of a job's edges: the datasets that it read."""
    inputs: dict[str, dict[str, str]] = {dataset(name): {} for name in names}
    more: Any = {"outputs": {}, "upstream_jobs": [], "time_ms": time_ms, "patch": change == "PATCH"}
    (proposal,) = input_output(JOB, inputs=inputs, **more)
    return version(proposal, time_ms, submission=submission)


def kept(versions: Iterable[AspectVersion], *, run_history: bool = False) -> list[_KeptProposal]:
    found = list(compact_versions(sorted(versions), run_history=run_history))
    assert [canonical_violations(json.loads(one.proposal.to_json())) for one in found] == [[] for _ in found]
    return found


def contents(one: _KeptProposal) -> list[Any]:
    """Return the change type, the names of the read datasets, the time and the reason."""
    aspect = json.loads(one.proposal.value)
    listed = aspect["inputDatasetEdges"] if one.proposal.change_type == "UPSERT" else aspect
    urns = [edge.get("destinationUrn") or edge["value"]["destinationUrn"] for edge in listed]
    names = [urn.split(",")[1].removeprefix("/") for urn in urns]
    return [one.proposal.change_type, names, one.time_ms, {LATEST: "latest", ADDED: "added"}[one.reason]]


def status(urn: str, *, removed: bool) -> Proposal:
    return Proposal(urn.split(":")[2], urn, "status", {"removed": removed})


def test_the_last_whole_version_wins_whatever_the_order() -> None:
    versions = [version(status(JOB, removed=number != 3), number) for number in (2, 3, 1)]
    (found,) = kept(versions)
    assert (found.time_ms, found.reason, json.loads(found.proposal.value)) == (3, LATEST, {"removed": False})


def test_aspects_and_entities_do_not_replace_each_other() -> None:
    info = Proposal("dataFlow", FLOW, "dataFlowInfo", {"customProperties": {}, "name": "shop"})
    found = kept([version(status(FLOW, removed=False), 1), version(info, 2), version(status(JOB, removed=False), 1)])
    assert {(one.proposal.entity_urn, one.proposal.aspect_name) for one in found} == {
        (FLOW, "status"),
        (FLOW, "dataFlowInfo"),
        (JOB, "status"),
    }


@cases("archive")
def test_edges_of_all_runs_are_compacted(versions: list[Any], expected: list[Any]) -> None:
    assert [contents(one) for one in kept(edges(*one) for one in versions)] == expected


def test_a_long_history_ends_as_its_last_runs() -> None:
    versions = [edges("UPSERT", [str(number)], number, f"s{number}") for number in range(1000)]
    found = kept([*versions, edges("PATCH", ["x"], 1000)])
    assert [contents(one)[:2] for one in found] == [["UPSERT", ["999"]], ["PATCH", ["x"]]]
    patches = kept(edges("PATCH", [str(number % 3)], number) for number in range(30))
    assert [contents(one)[:2] for one in patches] == [["PATCH", ["0", "1", "2"]]]


def test_patches_with_keys_of_arrays_are_joined() -> None:
    keys = {"tags": ["tag", "attribution␟source"]}

    def tagged(tag: str) -> Proposal:
        operation = {"op": "add", "path": f"/tags/urn:li:tag:{tag}/", "value": {"tag": f"urn:li:tag:{tag}"}}
        patch = {"arrayPrimaryKeys": keys, "patch": [operation]}
        return Proposal("dataFlow", FLOW, "globalTags", patch, "PATCH")

    (found,) = kept([version(tagged("a"), 1), version(tagged("b"), 2), version(tagged("a"), 3)])
    patch: dict[str, Any] = json.loads(found.proposal.value)
    assert patch["arrayPrimaryKeys"] == keys
    assert [operation["value"]["tag"] for operation in patch["patch"]] == ["urn:li:tag:b", "urn:li:tag:a"]


def run(name: str, time_ms: int) -> list[AspectVersion]:
    urn = f"urn:li:dataProcessInstance:{name}"
    aspects: dict[str, dict[str, Any]] = {
        "dataProcessInstanceInput": {"inputs": []},
        "dataProcessInstanceOutput": {"outputs": []},
    }
    proposals = [Proposal("dataProcessInstance", urn, aspect, content) for aspect, content in aspects.items()]
    return [
        version(one, time_ms, run_id=name, place=JOB)._replace(number=number) for number, one in enumerate(proposals)
    ]


def test_only_the_last_run_is_kept_with_all_its_aspects() -> None:
    found = kept([*run("a", 1), *run("b", 2)])
    assert [one.proposal.entity_urn[-1] for one in found] == ["b", "b"]


def test_with_history_every_run_is_kept() -> None:
    found = kept([*run("b", 2), *run("a", 1)], run_history=True)
    assert [(one.proposal.entity_urn[-1], one.reason) for one in found] == [("a", RUN)] * 2 + [("b", RUN)] * 2


@pytest.mark.parametrize(("run_history", "times"), [(False, [2]), (True, [1, 2])])
def test_operations_are_run_history(run_history: bool, times: list[int]) -> None:
    def operation(time_ms: int) -> AspectVersion:
        aspect = {
            "timestampMillis": time_ms,
            "partitionSpec": {"partition": "FULL_TABLE_SNAPSHOT", "type": "FULL_TABLE"},
            "operationType": "INSERT",
            "lastUpdatedTimestamp": time_ms,
        }
        return version(Proposal("dataset", dataset("a"), "operation", aspect), time_ms)

    found = kept([operation(1), operation(2)], run_history=run_history)
    assert [one.time_ms for one in found] == times

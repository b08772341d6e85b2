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


def edges(*names: str, time_ms: int, patch: bool = False, submission: str = "", run_id: str = "") -> AspectVersion:
    """Return a patch or replacement of a job's edges: the datasets that it read."""
    (proposal,) = input_output(
        JOB,
        inputs={dataset(name): {} for name in names},
        outputs={},
        upstream_jobs=[],
        time_ms=time_ms,
        patch=patch,
    )
    return version(proposal, time_ms, submission=submission, run_id=run_id)


def kept(versions: Iterable[AspectVersion], *, run_history: bool = False) -> list[_KeptProposal]:
    found = list(compact_versions(sorted(versions), run_history=run_history))
    assert [canonical_violations(json.loads(one.proposal.to_json())) for one in found] == [[] for _ in found]
    return found


def contents(found: Iterable[_KeptProposal]) -> list[tuple[str, list[str]]]:
    """Return the change type and the names of the read datasets, of each proposal."""
    listed: list[tuple[str, list[str]]] = []
    for one in found:
        aspect = json.loads(one.proposal.value)
        if one.proposal.change_type == "PATCH":
            urns = [operation["value"]["destinationUrn"] for operation in aspect]
        else:
            urns = [edge["destinationUrn"] for edge in aspect["inputDatasetEdges"]]
        listed.append((one.proposal.change_type, [urn.split(",")[1].removeprefix("/") for urn in urns]))
    return listed


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


def test_a_complete_run_replaces_the_edges_of_earlier_runs() -> None:
    assert contents(kept([edges("a", time_ms=1), edges("b", time_ms=2)])) == [("UPSERT", ["b"])]


def test_failed_runs_add_to_the_last_complete_run() -> None:
    versions = [
        edges("old", time_ms=1, patch=True),
        edges("a", time_ms=2),
        edges("b", time_ms=3, patch=True),
        edges("a", "c", time_ms=4, patch=True),
    ]
    found = kept(versions)
    assert contents(found) == [("UPSERT", ["a"]), ("PATCH", ["b", "a", "c"])]
    assert [one.reason for one in found] == [LATEST, ADDED]
    assert [one.time_ms for one in found] == [2, 4]


def test_without_a_complete_run_there_is_one_patch() -> None:
    versions = [edges(str(number % 3), time_ms=number, patch=True) for number in range(30)]
    assert contents(kept(versions)) == [("PATCH", ["0", "1", "2"])]


def test_applications_of_one_submission_keep_each_others_edges() -> None:
    versions = [
        edges("old", time_ms=1, submission="s1"),
        edges("a", time_ms=2, submission="s2"),
        edges("b", time_ms=3, submission="s2"),
    ]
    assert contents(kept(versions)) == [("UPSERT", ["a"]), ("PATCH", ["b"])]


def test_a_submission_of_which_one_application_failed_only_adds() -> None:
    # A failing night must not erase a good run's lineage, whichever of its sessions came first.
    good = edges("good", time_ms=1, submission="s1")
    whole, failed = ("a", False), ("b", True)
    for first, second in ((whole, failed), (failed, whole)):
        versions = [
            good,
            edges(first[0], time_ms=2, patch=first[1], submission="s2"),
            edges(second[0], time_ms=3, patch=second[1], submission="s2"),
        ]
        assert contents(kept(versions)) == [("UPSERT", ["good"]), ("PATCH", [first[0], second[0]])]


def test_a_long_history_ends_as_its_last_runs() -> None:
    versions = [edges(str(number), time_ms=number, submission=f"s{number}") for number in range(1000)]
    assert contents(kept([*versions, edges("x", time_ms=1000, patch=True)])) == [("UPSERT", ["999"]), ("PATCH", ["x"])]


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

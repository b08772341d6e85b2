"""Proposals as they are stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from datahub.emitter.mcp import MetadataChangeProposalWrapper
from datahub.metadata.schema_classes import StatusClass

from airflow_provider_spark_datahub.conversion.proposals import (
    Proposal,
    ProposalFormatError,
    RepeatedProposal,
    SharedObject,
    json_lines,
)
from tests.conversion.builders import urn

DATASET = urn("hive", "db.größe")
UPSERT = Proposal("dataset", DATASET, "status", {"removed": False})
PATCH = Proposal("dataset", DATASET, "globalTags", [{"op": "add", "path": "/tags/ü", "value": {}}], "PATCH")


def test_an_upsert_is_stored_as_acryl_datahub_stores_it() -> None:
    wrapper = MetadataChangeProposalWrapper(entityUrn=DATASET, aspect=StatusClass(removed=False))
    assert UPSERT.to_obj() == wrapper.to_obj(simplified_structure=True)


def test_a_patch_keeps_its_content_type() -> None:
    aspect = PATCH.to_obj()["aspect"]
    assert aspect["contentType"] == PATCH.content_type == "application/json-patch+json"
    assert json.loads(aspect["value"]) == PATCH.aspect
    assert UPSERT.content_type == "application/json"


@pytest.mark.parametrize("proposal", [UPSERT, PATCH])
def test_a_stored_proposal_can_be_read_again(proposal: Proposal) -> None:
    line = proposal.to_json()
    assert line.count("\n") == 0
    assert "größe" in line
    assert Proposal.from_obj(json.loads(line)) == proposal


@pytest.mark.parametrize("text", ["plain", "größe\n", "half of a pair: \ud83d"])
def test_many_proposals_are_written_as_lines(text: str) -> None:
    encoded = Proposal.encoded("dataset", DATASET, "datasetProperties", {"description": text})
    many = [UPSERT, PATCH, encoded, Proposal("dataset", DATASET, "datasetProperties", {"description": text})]
    assert json_lines(many).decode() == "".join(f"{proposal.to_json()}\n" for proposal in many)
    assert json_lines([]) == b""


@pytest.mark.parametrize("text", ["plain", "größe\n", 'as in an aspect: "time":0', '{"time":0}', '""'])
def test_a_repeated_proposal_changes_only_its_time(text: str) -> None:
    def aspect(time_ms: int) -> dict[str, Any]:
        stamp = {"time": time_ms, "actor": text}
        return {"": "", "edges": [{"destinationUrn": text, "lastModified": stamp}, {"lastModified": stamp}], text: "0"}

    repeated = RepeatedProposal(Proposal("dataJob", "", "dataJobInputOutput", aspect(0)))
    for job, time_ms in (("urn:li:dataJob:a", 0), ('urn:li:dataJob:"time":0', 1_795_000_000_000)):
        whole, again = Proposal("dataJob", job, "dataJobInputOutput", aspect(time_ms)), repeated.of(job, time_ms)
        assert json_lines([again]) == json_lines([whole])
        assert again == whole
        assert again.aspect == whole.aspect
        assert again.value == whole.value


@pytest.mark.parametrize(
    "change",
    [
        {"aspect": None},
        {"aspect": {}},
        {"aspect": {"value": "{"}},
        {"aspect": {"value": None}},
        {"entityUrn": 5},
        {"entityType": {}},
        {"aspectName": ["status"]},
        {"changeType": []},
    ],
)
def test_malformed_stored_proposals_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ProposalFormatError, match="not a stored proposal"):
        Proposal.from_obj({**UPSERT.to_obj(), **change})


@pytest.mark.parametrize("obj", ["a text", 5, None, []])
def test_other_json_is_no_stored_proposal(obj: Any) -> None:
    with pytest.raises(ProposalFormatError, match="it is not a JSON object"):
        Proposal.from_obj(obj)


@pytest.mark.parametrize("key", ["entityType", "entityUrn", "changeType", "aspectName", "aspect"])
def test_a_stored_proposal_needs_all_its_parts(key: str) -> None:
    stored = UPSERT.to_obj()
    del stored[key]
    with pytest.raises(ProposalFormatError, match=key):
        Proposal.from_obj(stored)


def test_a_cached_proposal_equals_a_new_one() -> None:
    remembered = Proposal.encoded("dataset", DATASET, "status", {"removed": False})
    assert remembered == UPSERT
    assert {remembered, UPSERT} == {UPSERT}
    assert remembered.to_json() == UPSERT.to_json()
    assert remembered != Proposal.encoded("dataset", DATASET, "status", {"removed": True})
    assert UPSERT != PATCH
    assert UPSERT.to_obj() != UPSERT


def test_shared_objects_are_keys_by_identity_and_equal_by_content() -> None:
    content = {"name": "größe"}
    one, other = SharedObject(content), SharedObject(content)
    assert one == other == content
    assert {one: 1}[one] == 1
    assert other not in {one: 1}

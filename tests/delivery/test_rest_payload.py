"""Bodies of the Rest.li endpoint, compared with those of acryl-datahub's emitter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from datahub.emitter.rest_emitter import DataHubRestEmitter, EmitMode
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from airflow_provider_spark_datahub.conversion.proposals import Proposal
from airflow_provider_spark_datahub.delivery.sink import to_mcp
from airflow_provider_spark_datahub.delivery.sinks.rest_transport import _batch_bodies, _system_metadata
from tests.delivery.samples import patch, upsert, upserts

HOSTILE = [upsert("a", title='broken \ud800 "name"\n\u2028'), upsert("\ud800"), upsert("ü€😀"), patch("b")]


class _Recorder(HTTPAdapter):
    """Answers every request as GMS does, and keeps its body."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str | None, Any]] = []

    def send(self, request: PreparedRequest, *_: object, **__: object) -> Response:
        assert isinstance(request.body, str)
        self.requests.append((request.url, json.loads(request.body)))
        answer = Response()
        answer.status_code = 200
        return answer


def without_moment(body: Any) -> Any:
    for proposal in body["proposals"]:
        assert proposal["systemMetadata"].pop("lastObserved") > 1_700_000_000_000
    return body


def ours(proposals: list[Proposal], *, is_async: bool = False, largest: int = 1_000_000) -> list[Any]:
    bodies = _batch_bodies(proposals, is_async=is_async, system_metadata=_system_metadata(), largest=largest)
    return [json.loads(body) for body in bodies]


@pytest.mark.parametrize("mode", [EmitMode.SYNC_PRIMARY, EmitMode.SYNC_WAIT, EmitMode.ASYNC])
@pytest.mark.parametrize("proposals", [upserts(3), HOSTILE], ids=["plain", "hostile"])
def test_the_bodies_are_those_of_datahubs_emitter(mode: EmitMode, proposals: list[Proposal]) -> None:
    recorder = _Recorder()
    emitter = DataHubRestEmitter("http://gms", openapi_ingestion=False)
    emitter._session.mount("http://", recorder)
    emitter.emit_mcps([to_mcp(proposal) for proposal in proposals], emit_mode=mode)
    ((url, theirs),) = recorder.requests
    assert url == "http://gms/aspects?action=ingestProposalBatch"
    (body,) = ours(proposals, is_async=mode is EmitMode.ASYNC)
    assert without_moment(body) == without_moment(theirs)


def test_no_body_is_larger_than_it_may_be() -> None:
    proposals = upserts(100)
    (whole,) = _batch_bodies(proposals, is_async=False, system_metadata={})
    limit = len(whole) // 3
    bodies = list(_batch_bodies(proposals, is_async=False, system_metadata={}, largest=limit))
    assert all(len(body) <= limit + 2 for body in bodies)
    assert len(bodies) in (3, 4)
    urns = [sent["entityUrn"] for body in bodies for sent in json.loads(body)["proposals"]]
    assert urns == [proposal.entity_urn for proposal in proposals]


def test_a_proposal_that_is_too_large_goes_alone() -> None:
    proposals = [upsert("a"), upsert("b", title="x" * 1000), upsert("c")]
    bodies = ours(proposals, largest=900)
    assert [[sent["entityUrn"] for sent in body["proposals"]] for body in bodies] == [
        [proposal.entity_urn] for proposal in proposals
    ]


def test_nothing_makes_no_body() -> None:
    assert ours([]) == []

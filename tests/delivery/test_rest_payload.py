"""Requests to the Rest.li endpoint, compared with those of acryl-datahub's emitter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from datahub.emitter.rest_emitter import DataHubRestEmitter, EmitMode
from datahub.utilities.caller_context import identify_caller
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.sink import to_mcp
from airflow_provider_spark_datahub.delivery.sinks import RestSettings
from airflow_provider_spark_datahub.delivery.sinks.rest_client import GmsClient, _batch_bodies, _system_metadata
from tests.delivery.samples import patch, upsert, upserts

HOSTILE = [upsert("a", title='broken \ud800 "name"\n\u2028'), upsert("\ud800"), upsert("ü€😀"), patch("b")]


class _Recorder(HTTPAdapter):
    """Server that answers every request as GMS does, and keeps its body."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str | None, Any]] = []
        self.sent: list[tuple[dict[str, str | bytes], object]] = []

    def send(self, request: PreparedRequest, *_: object, **options: object) -> Response:
        assert isinstance(request.body, str | bytes)
        self.requests.append((request.url, json.loads(request.body)))
        # The length depends on blanks in JSON, and what our adapter adds is not here.
        headers = {name: value for name, value in request.headers.items() if name != "Content-Length"}
        self.sent.append((headers, options.get("cert")))
        answer = Response()
        answer.status_code = 200
        answer._content = b'{"value": "success"}'
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
def test_bodies_equal_those_of_datahubs_emitter(mode: EmitMode, proposals: list[Proposal]) -> None:
    recorder = _Recorder()
    emitter = DataHubRestEmitter("http://gms", openapi_ingestion=False)
    emitter._session.mount("http://", recorder)
    emitter.emit_mcps([to_mcp(proposal) for proposal in proposals], emit_mode=mode)
    ((url, theirs),) = recorder.requests
    assert url == "http://gms/aspects?action=ingestProposalBatch"
    (body,) = ours(proposals, is_async=mode is EmitMode.ASYNC)
    assert without_moment(body) == without_moment(theirs)


@pytest.mark.parametrize(
    "variables",
    [
        {"DATAHUB_CALLER": "a b;c/ü" + "x" * 99},
        {"DATAHUB_CALLER": "shop", "DATAHUB_SYSTEM_CLIENT_ID": "me", "DATAHUB_SYSTEM_CLIENT_SECRET": "secret"},
        {"DATAHUB_CALLER": "shop", "DATAHUB_SYSTEM_CLIENT_ID": "me", "DATAHUB_CLIENT_CERT_PATH": "/c.pem"},
        {"DATAHUB_CALLER": "shop", "DATAHUB_CLIENT_CERT_PATH": "/c.pem", "DATAHUB_CLIENT_KEY_PATH": "/k.pem"},
    ],
)
def test_the_session_equals_that_of_datahubs_emitter(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    theirs, ours = _Recorder(), _Recorder()
    identify_caller.cache_clear()
    # It reads DATAHUB_COMPONENT when it is imported.
    emitter = DataHubRestEmitter("http://gms", openapi_ingestion=False, datahub_component="workers")
    identify_caller.cache_clear()
    monkeypatch.setenv("DATAHUB_COMPONENT", "Workers")
    client = GmsClient(RestSettings("http://gms"), Deadline.after(60))
    for session, recorder in ((emitter._session, theirs), (client._session, ours)):
        session.mount("http://", recorder)
    emitter.emit_mcps([to_mcp(upsert("a"))])
    assert client.post([upsert("a")]) is True
    assert ours.sent == theirs.sent


def test_bodies_stay_below_the_limit() -> None:
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


def test_no_proposals_make_no_body() -> None:
    assert ours([]) == []

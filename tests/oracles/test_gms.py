"""The GMS stand-in, through acryl-datahub's emitter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
from datahub.configuration.common import OperationalError
from datahub.emitter.mcp import MetadataChangeProposalWrapper
from datahub.emitter.rest_emitter import DataHubRestEmitter
from datahub.metadata.schema_classes import DataJobInfoClass, DatasetPropertiesClass, StatusClass

from tests.cases import cases
from tests.oracles.gms import GmsStandIn

TABLE = "urn:li:dataset:(urn:li:dataPlatform:hive,db.t,PROD)"
JOB = "urn:li:dataJob:(urn:li:dataFlow:(airflow,etl,prod),load)"
TOO_LONG = f"urn:li:dataset:(urn:li:dataPlatform:hive,{'x' * 600},PROD)"
GOOD = MetadataChangeProposalWrapper(entityUrn=TABLE, aspect=DatasetPropertiesClass(name="t"))
REMOVED = MetadataChangeProposalWrapper(entityUrn=TABLE, aspect=StatusClass(removed=True))
BAD = MetadataChangeProposalWrapper(
    entityUrn=TABLE, aspect=DataJobInfoClass(name="x", type="SPARK")
)
LOST = MetadataChangeProposalWrapper(entityUrn=TOO_LONG, aspect=StatusClass(removed=False))


@pytest.fixture
def gms() -> Iterator[GmsStandIn]:
    with GmsStandIn(token="s3cret") as stand_in:
        yield stand_in


def emitter(gms: GmsStandIn) -> DataHubRestEmitter:
    return DataHubRestEmitter(gms.url, token="s3cret", openapi_ingestion=False, retry_max_times=0)


def stored_names(gms: GmsStandIn) -> list[tuple[str, str]]:
    return [(proposal["changeType"], proposal["aspectName"]) for proposal in gms.stored]


def test_a_batch_is_stored_in_order(gms: GmsStandIn) -> None:
    emitter(gms).emit_mcps([GOOD, REMOVED])
    assert stored_names(gms) == [("UPSERT", "datasetProperties"), ("UPSERT", "status")]
    [write] = [request for request in gms.requests if request.method == "POST"]
    assert write.headers["Authorization"] == "Bearer s3cret"
    assert write.path.startswith("/aspects?action=ingestProposalBatch")
    assert len(write.body) > 100


def test_one_bad_proposal_fails_its_batch(gms: GmsStandIn) -> None:
    with pytest.raises(
        OperationalError, match="unknown aspect 'dataJobInfo' for entity dataset"
    ) as raised:
        emitter(gms).emit_mcps([GOOD, BAD])
    assert raised.value.info.get("status") == 422
    assert gms.stored == []


def test_rest_li_drops_a_bad_entity_urn_and_says_nothing(gms: GmsStandIn) -> None:
    emitter(gms).emit_mcps([LOST, GOOD])
    assert stored_names(gms) == [("UPSERT", "datasetProperties")]
    [(lost, [reason])] = gms.dropped
    assert lost["entityUrn"] == TOO_LONG
    assert "longer than 512 bytes" in reason


@cases("strict")
def test_malformed_requests_are_refused(gms: GmsStandIn, path: str, body: str, status: int) -> None:
    headers = {"Authorization": "Bearer s3cret"}
    answer = requests.post(gms.url + path, data=body, headers=headers, timeout=5)
    assert answer.status_code == status
    assert gms.stored == []

"""The object store sink on a real S3 server, behind Airflow's connections."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from datahub.ingestion.source.file import read_metadata_file
from datahub.metadata.schema_classes import MetadataChangeEventClass

from airflow_provider_spark_datahub.delivery import Deadline, Delivery, Sink
from airflow_provider_spark_datahub.hooks.datahub import DatahubObjectStoreHook
from tests.delivery.faults import Fault, survive
from tests.delivery.samples import patch, upsert, upserts
from tests.servers.s3 import S3


class Bucket:
    """A bucket of a test's own. :ivar folder: what the server keeps it in."""

    def __init__(self, s3: S3) -> None:
        self.s3 = s3
        self.name = f"lineage-{uuid.uuid4().hex[:8]}"
        self.folder = s3.make_bucket(self.name)

    def objects(self) -> list[Path]:
        # The server writes an object under a longer name first. After a fault it may still be at a request of before.
        return sorted(self.folder.rglob("*.json"))


OpenSink = Callable[..., Sink]


@pytest.fixture
def bucket(s3: S3) -> Bucket:
    return Bucket(s3)


@pytest.fixture
def open_sink(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> OpenSink:
    def connect(uri: str | None = None, **changes: object) -> Sink:
        lake = bucket.name.replace("-", "_")  # Airflow keeps what it opened by a connection's id
        monkeypatch.setenv(f"AIRFLOW_CONN_{lake.upper()}", json.dumps(bucket.s3.connection(**changes)))
        host = uri or f"s3://{bucket.name}/a/b"
        connection = {"conn_type": "datahub-object-store", "host": host, "extra": {"storage_conn_id": lake}}
        monkeypatch.setenv("AIRFLOW_CONN_LINEAGE", json.dumps(connection))
        return DatahubObjectStoreHook("lineage").get_conn()

    return connect


def test_a_batch_is_one_object_that_datahub_reads(bucket: Bucket, open_sink: OpenSink) -> None:
    proposals = [upsert("a"), patch("a"), upsert("b", title="broken \ud800 name")]
    assert open_sink().deliver(proposals, Deadline.after(20)) == Delivery(delivered=3, stored=True)
    (found,) = bucket.objects()
    assert found.parent == bucket.folder / "a" / "b"
    read = read_metadata_file(found)
    assert [each.entityUrn for each in read if not isinstance(each, MetadataChangeEventClass)] == [
        each.entity_urn for each in proposals
    ]


def test_a_batch_that_is_delivered_twice_is_there_once(bucket: Bucket, open_sink: OpenSink) -> None:
    for proposals in (upserts(3), upserts(3), upserts(4)):
        assert open_sink().deliver(proposals, Deadline.after(20)).delivered == len(proposals)
    assert len(bucket.objects()) == 2


def test_batches_go_to_the_top_of_a_bucket_without_a_prefix(bucket: Bucket, open_sink: OpenSink) -> None:
    assert open_sink(f"s3://{bucket.name}").deliver(upserts(3), Deadline.after(20)).delivered == 3
    assert [path.parent for path in bucket.objects()] == [bucket.folder]


@pytest.mark.parametrize("changes", [{"password": "canary-wrong-secret"}, {"login": "canary-other-key"}])
def test_wrong_keys_are_reported_at_once(open_sink: OpenSink, bucket: Bucket, changes: dict[str, str]) -> None:
    delivery = open_sink(**changes).deliver(upserts(3), Deadline.after(20))
    assert (delivery.pending, bucket.objects()) == (tuple(upserts(3)), [])
    assert f"the object store at s3://{bucket.name}/a/b refuses the connection's credentials" in str(delivery.problem)
    assert "canary" not in str(delivery.problem)


FAULTS = [
    Fault[Bucket]("store hangs", lambda bucket: bucket.s3.frozen(), "is not available ("),
    Fault[Bucket]("store down", lambda bucket: bucket.s3.stopped(), "is not available ("),
    Fault[Bucket]("bucket gone", lambda bucket: bucket.s3.without_bucket(bucket.name), "bucket does not exist"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_proposals_arrive_after_the_fault(fault: Fault[Bucket], bucket: Bucket, open_sink: OpenSink) -> None:
    proposals = [proposal for number in range(20) for proposal in (upsert(f"job{number}"), patch(f"job{number}"))]
    survive(fault, bucket, open_sink(), proposals)
    (found,) = bucket.objects()
    assert [each["entityUrn"] for each in json.loads(found.read_text())] == [each.entity_urn for each in proposals]

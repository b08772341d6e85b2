"""The object store sink on a real S3 server, and outboxes and results of a backfill on one of GCS,
too.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datahub.ingestion.source.file import read_metadata_file
from datahub.metadata.schema_classes import MetadataChangeEventClass

from airflow_provider_spark_datahub.backfill.delivery import _BATCH
from airflow_provider_spark_datahub.backfill.plan import PLAN_FILE, SUMMARY, BackfillPlan, PlanError
from airflow_provider_spark_datahub.delivery import Deadline, Delivery, Rejection, Sink
from airflow_provider_spark_datahub.delivery.outbox import Drain, Outbox, OutboxError
from airflow_provider_spark_datahub.hooks.datahub import DatahubObjectStoreHook
from airflow_provider_spark_datahub.hooks.storage import open_outbox, result_folder
from tests.backfill.results import write_parts
from tests.cli.commands import run
from tests.delivery.connections import connect, connect_to_files
from tests.delivery.faults import Fault, survive
from tests.delivery.outboxes import Recording, key, put, receipts_in
from tests.delivery.samples import delivered, patch, upsert, upserts
from tests.patience import at_once
from tests.servers.s3 import S3


class Bucket:
    """A bucket of a test's own. :ivar folder: what the server keeps it in."""

    def __init__(self, s3: S3) -> None:
        self.s3 = s3
        self.name = f"lineage-{uuid.uuid4().hex[:8]}"
        self.folder = s3.make_bucket(self.name)

    def objects(self) -> list[Path]:
        # The server writes an object under a longer name first. After a fault it may still be at a
        # request of before.
        return sorted(self.folder.rglob("*.json"))


OpenSink = Callable[..., Sink]


@pytest.fixture
def bucket(s3: S3) -> Bucket:
    return Bucket(s3)


@pytest.fixture
def open_sink(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> OpenSink:
    def opened(uri: str | None = None, **changes: object) -> Sink:
        lake = bucket.name.replace("-", "_")  # Airflow keeps what it opened by a connection's id
        connect(monkeypatch, lake, **bucket.s3.connection(**changes))
        host, extra = uri or f"s3://{bucket.name}/a/b", {"storage_conn_id": lake}
        connect(monkeypatch, "lineage", conn_type="datahub-object-store", host=host, extra=extra)
        return DatahubObjectStoreHook("lineage").get_conn()

    return opened


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


def test_batches_go_to_the_top_of_a_bucket_without_a_prefix(
    bucket: Bucket, open_sink: OpenSink
) -> None:
    assert open_sink(f"s3://{bucket.name}").deliver(upserts(3), Deadline.after(20)).delivered == 3
    assert [path.parent for path in bucket.objects()] == [bucket.folder]


@pytest.mark.parametrize(
    "changes", [{"password": "canary-wrong-secret"}, {"login": "canary-other-key"}]
)
def test_wrong_keys_are_reported_at_once(
    open_sink: OpenSink, bucket: Bucket, changes: dict[str, str]
) -> None:
    delivery = open_sink(**changes).deliver(upserts(3), Deadline.after(20))
    assert (delivery.pending, bucket.objects()) == (tuple(upserts(3)), [])
    assert (
        f"the object store at s3://{bucket.name}/a/b refuses the connection's credentials"
        in str(delivery.problem)
    )
    assert "canary" not in str(delivery.problem)


FAULTS = [
    Fault[Bucket]("store hangs", lambda bucket: bucket.s3.frozen(), "is not available ("),
    Fault[Bucket]("store down", lambda bucket: bucket.s3.stopped(), "is not available ("),
    Fault[Bucket](
        "bucket gone", lambda bucket: bucket.s3.without_bucket(bucket.name), "bucket does not exist"
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_proposals_arrive_after_the_fault(
    fault: Fault[Bucket], bucket: Bucket, open_sink: OpenSink
) -> None:
    proposals = [
        proposal
        for number in range(20)
        for proposal in (upsert(f"job{number}"), patch(f"job{number}"))
    ]
    survive(fault, bucket, open_sink(), proposals)
    (found,) = bucket.objects()
    assert [each["entityUrn"] for each in json.loads(found.read_text())] == [
        each.entity_urn for each in proposals
    ]


# -- outboxes by location


@pytest.fixture
def location(lake: str) -> str:
    return f"{lake}/lineage/outbox"


@pytest.fixture
def outbox(location: str) -> Outbox:
    return open_outbox(location)


def test_an_entry_in_a_bucket_from_its_writing_to_its_receipt(
    outbox: Outbox, location: str
) -> None:
    entry = put(outbox, proposals=3)
    assert str(entry).startswith(f"{location}/pending/shop.group-build-")
    (listed,) = open_outbox(location).entries()
    assert (listed, listed.items()) == (entry, tuple(upserts(3)))
    first, second, third = listed.items()
    rest = listed.settle(
        Delivery(1, (Rejection(second, "no"),), (third,), "later"), [first, second, third]
    )
    assert rest is not None
    assert rest.settle(Delivery(1), [third]) is None
    assert outbox.storage.stored("pending") == {}
    (held,) = outbox.storage.stored("quarantined")
    assert held.endswith(".jsonl")
    (receipt,) = receipts_in(outbox)
    assert (receipt.delivered, receipt.rejected) == (2, 1)


def test_drainers_of_one_bucket_deliver_each_entry_once_in_order(location: str) -> None:
    outbox = open_outbox(location)
    for number in range(6):
        for try_number in (1, 2):
            put(outbox, key(try_number, f"task{number}"), [upsert(f"{number}.{try_number}")])
    sink = Recording()
    at_once([lambda: Drain(open_outbox(location), lambda _: (sink, None)).run()] * 3)
    assert sorted(sink.names) == sorted(f"{number}.{one}" for number in range(6) for one in (1, 2))
    for number in range(6):
        assert sink.names.index(f"{number}.1") < sink.names.index(f"{number}.2")
    assert outbox.names() == []


def test_a_wrong_secret_is_reported_without_its_text(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "mislaid", **s3.connection(password="not-the-secret"))
    wrong = "s3://mislaid@lineage/outbox"
    with pytest.raises(OutboxError, match=f"Cannot write to the outbox {wrong}") as caught:
        put(open_outbox(wrong))
    assert "not-the-secret" not in str(caught.value)


def test_a_location_of_an_unknown_store_is_refused() -> None:
    with pytest.raises(OutboxError, match="Cannot open the outbox nosuchstore://bucket/outbox"):
        open_outbox("nosuchstore://bucket/outbox")


# -- results of a backfill, delivered from there


SUMMARISED: dict[str, Any] = {
    **dict.fromkeys(("events", "runs", "versions", "proposals", "quarantined"), 1),
    "proposals_by_aspect": {},
    "quarantined_by_reason": {},
}
PARTS = [upserts(_BATCH + 5, "a"), upserts(3, "b")]


@pytest.fixture
def results(lake: str, tmp_path: Path) -> str:
    """A folder in a bucket of the test's own, as a backfill leaves it."""
    place = f"{lake.replace('lake@', '')}/out"
    made = write_parts(tmp_path, PARTS)
    folder = result_folder(place, "lake")
    for path in made.rglob("*"):
        if path.is_file():
            (folder / str(path.relative_to(made))).write_bytes(path.read_bytes())
    return place


def test_the_command_delivers_from_there_and_a_second_time_nothing(
    results: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = BackfillPlan(("/events",), results)
    (result_folder(results, "lake") / PLAN_FILE).write_bytes(plan.to_json().encode())
    (result_folder(results, "lake") / SUMMARY).write_bytes(json.dumps(SUMMARISED).encode())
    connect_to_files(monkeypatch, "sink", tmp_path / "sink")
    from_lake = ("backfill", "/events", "--out", results, "--out-connection", "lake")
    for _ in range(2):
        done = run(*from_lake, "--emit", "sink", "--rate", "0")
        assert done.exit_code == 0, done.stderr
    assert delivered(tmp_path / "sink") == [one.to_obj() for part in PARTS for one in part]


def test_a_missing_connection_is_reported(results: str) -> None:
    with pytest.raises(PlanError, match="The conn_id `absent` isn't defined"):
        result_folder(results, "absent")


def test_a_folder_that_cannot_be_reached_is_reported() -> None:
    with pytest.raises(PlanError, match="cannot reach nowhere://bucket/out from here"):
        result_folder("nowhere://bucket/out")

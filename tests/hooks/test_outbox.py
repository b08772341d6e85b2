"""Outboxes by location: folders, and buckets of a real S3 server behind an Airflow connection."""

from __future__ import annotations

import json
import threading

import pytest

from airflow_provider_spark_datahub.delivery import Delivery, Rejection
from airflow_provider_spark_datahub.delivery.outbox import Drain, Outbox, OutboxError
from airflow_provider_spark_datahub.hooks.storage import open_outbox
from tests.delivery.outboxes import Recording, key, put, receipts_in
from tests.delivery.samples import upsert, upserts
from tests.servers.s3 import S3


@pytest.fixture
def location(s3: S3, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of the test's own."""
    bucket = request.node.name.replace("_", "-")[:60].strip("-")
    s3.make_bucket(bucket)
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(s3.connection()))
    return f"s3://lake@{bucket}/lineage/outbox"


@pytest.fixture
def outbox(location: str) -> Outbox:
    return open_outbox(location)


def test_an_entry_in_s3_from_its_writing_to_its_receipt(outbox: Outbox, location: str) -> None:
    entry = put(outbox, proposals=3)
    assert str(entry).startswith(f"{location}/pending/shop.group-build-")
    (listed,) = open_outbox(location).entries()
    assert (listed, listed.items()) == (entry, tuple(upserts(3)))
    first, second, third = listed.items()
    rest = listed.settle(Delivery(1, (Rejection(second, "no"),), (third,), "later"), [first, second, third])
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
    threads = [
        threading.Thread(target=lambda: Drain(open_outbox(location), lambda _: (sink, None)).run()) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(sink.names) == sorted(f"{number}.{one}" for number in range(6) for one in (1, 2))
    for number in range(6):
        assert sink.names.index(f"{number}.1") < sink.names.index(f"{number}.2")
    assert outbox.names() == []


def test_a_wrong_secret_is_reported_without_its_text(s3: S3, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MISLAID", json.dumps(s3.connection(password="not-the-secret")))
    wrong = location.replace("lake@", "mislaid@")
    with pytest.raises(OutboxError, match=f"Cannot write to the outbox {wrong}") as caught:
        put(open_outbox(wrong))
    assert "not-the-secret" not in str(caught.value)


def test_a_location_of_an_unknown_store_is_refused() -> None:
    with pytest.raises(OutboxError, match="Cannot open the outbox nosuchstore://bucket/outbox"):
        open_outbox("nosuchstore://bucket/outbox")

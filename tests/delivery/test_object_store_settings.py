from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import ConnectionParts, SinkSettingsError
from airflow_provider_spark_datahub.delivery.outbox import ObjectStorage
from airflow_provider_spark_datahub.delivery.sinks import ObjectStoreSink
from tests.delivery.test_object_store import Store


def made(host: str | None, extra: dict[str, Any]) -> tuple[ObjectStoreSink, list[tuple[str, str | None]]]:
    """Return the sink, and the stores that were opened for it."""
    openings: list[tuple[str, str | None]] = []

    def open_storage(uri: str, conn_id: str | None) -> ObjectStorage:
        openings.append((uri, conn_id))
        return ObjectStorage(Store(), "bucket", uri)

    return ObjectStoreSink.from_connection(ConnectionParts(host, extra=extra), open_storage), openings


@pytest.mark.parametrize(
    ("host", "extra", "opened"),
    [
        ("s3://bucket/a/b/", {}, ("s3://bucket/a/b", None)),
        ("gs://bucket", {"storage_conn_id": "lake"}, ("gs://bucket", "lake")),
        ("s3://lake@bucket/a", {}, ("s3://lake@bucket/a", "lake")),
        (" s3://bucket ", {"storage_conn_id": ""}, ("s3://bucket", None)),
    ],
)
def test_settings_come_from_the_connection(host: str, extra: dict[str, Any], opened: tuple[str, str | None]) -> None:
    sink, openings = made(host, extra)
    assert openings == [opened]
    assert sink.describe() == f"the object store at {opened[0]}"


@pytest.mark.parametrize(
    ("host", "extra", "message"),
    [
        (None, {}, "must be the URI of a bucket"),
        ("bucket/prefix", {}, "must be the URI of a bucket"),
        ("s3:///prefix", {}, "must be the URI of a bucket"),
        ("s3://[bucket", {}, "must be the URI of a bucket"),
        ("s3://key:canary-1@bucket", {}, "keys belong into the connection"),
        ("s3://bucket?key=canary-1", {}, "keys belong into the connection"),
        ("s3://a@bucket", {"storage_conn_id": "b"}, "given twice"),
        ("s3://bucket", {"storage_conn": "b"}, r"'storage_conn'\. Did you mean 'storage_conn_id'\?"),
        ("s3://bucket", {"storage_conn_id": 7}, "must be text"),
    ],
)
def test_unusable_settings_are_refused(host: str | None, extra: dict[str, Any], message: str) -> None:
    with pytest.raises(SinkSettingsError, match=message) as caught:
        made(host, extra)
    assert "canary-1" not in str(caught.value)

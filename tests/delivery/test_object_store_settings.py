from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery.connection import ConnectionParts
from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError
from airflow_provider_spark_datahub.delivery.sinks.object_store import ObjectStoreSink
from tests.delivery.faults import RefusingStore


@pytest.mark.parametrize(
    ("host", "extra", "settings"),
    [
        ("s3://bucket/a/b/", {}, ObjectStoreSettings("s3://bucket/a/b")),
        ("gs://bucket", {"storage_conn_id": "lake"}, ObjectStoreSettings("gs://bucket", "lake")),
        ("s3://lake@bucket/a", {}, ObjectStoreSettings("s3://lake@bucket/a", "lake")),
        (" s3://bucket ", {"storage_conn_id": ""}, ObjectStoreSettings("s3://bucket")),
    ],
)
def test_settings(host: str, extra: dict[str, Any], settings: ObjectStoreSettings) -> None:
    assert ObjectStoreSettings.from_connection(ConnectionParts(host, extra=extra)) == settings


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
def test_unusable_settings(host: str | None, extra: dict[str, Any], message: str) -> None:
    with pytest.raises(SinkSettingsError, match=message) as caught:
        ObjectStoreSettings.from_connection(ConnectionParts(host, extra=extra))
    assert "canary-1" not in str(caught.value)

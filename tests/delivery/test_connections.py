"""What a connection of each type becomes, and how one that cannot be used is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_provider_spark_datahub.delivery import ConnectionParts, SinkSettingsError, sinks
from airflow_provider_spark_datahub.delivery.outbox import ObjectStorage
from airflow_provider_spark_datahub.delivery.sinks.settings import _mask_secrets
from tests.cases import cases


def object_store(connection: ConnectionParts) -> SimpleNamespace:
    """Return the description of the sink, and the store that was opened for it."""
    opened: list[str | None] = []

    def open_storage(uri: str, conn_id: str | None) -> ObjectStorage:
        opened.extend((uri, conn_id))
        return ObjectStorage(cast("Any", None), "bucket", uri)

    sink = sinks.ObjectStoreSink.from_connection(connection, open_storage)
    return SimpleNamespace(opened=opened, description=sink.describe())


READ: dict[str, Callable[[ConnectionParts], Any]] = {
    "rest": sinks.RestSettings.from_connection,
    "kafka": sinks.KafkaSettings.from_connection,
    "object-store": object_store,
    "file": lambda connection: SimpleNamespace(
        description=sinks.FileSink.from_connection(connection).describe()
    ),
}


def read(kind: str, connection: dict[str, Any]) -> Any:
    return READ[kind](ConnectionParts(**connection))


@cases("connections")
def test_settings_come_from_the_connection(
    kind: str, connection: dict[str, Any], settings: dict[str, Any]
) -> None:
    found = read(kind, connection)
    assert {name: getattr(found, name) for name in settings} == settings


@cases("connections")
def test_unusable_connections_are_refused(
    kind: str, connection: dict[str, Any], message: str
) -> None:
    with pytest.raises(SinkSettingsError, match=message) as caught:
        read(kind, connection)
    assert "canary" not in str(caught.value)


@cases("connections")
def test_secrets_are_neither_in_the_repr_nor_in_redacted_text(
    kind: str, connection: dict[str, Any], redacted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAHUB_SYSTEM_CLIENT_SECRET", "canary-system")
    settings = read(kind, connection)
    assert "canary" not in repr(settings)
    assert "canary" not in repr(ConnectionParts(**connection))
    assert {text: settings.redact(text) for text in redacted} == redacted


@pytest.mark.slow
def test_kafkas_defaults_and_keys_are_those_of_acryl_datahub() -> None:
    from datahub.configuration.kafka import KafkaProducerConnectionConfig
    from datahub.ingestion.sink.datahub_kafka import KafkaSinkConfig

    settings, theirs = read("kafka", {"host": "broker:9092"}), KafkaSinkConfig()
    assert settings.topic == theirs.topic_routes["MetadataChangeProposal"]
    assert settings.client_timeout_seconds == KafkaProducerConnectionConfig().client_timeout_seconds
    extra = theirs.model_dump(exclude={"connection": {"bootstrap"}})
    every = read("kafka", {"host": "broker:9092", "extra": extra})
    assert every.schema_registry_url == extra["connection"]["schema_registry_url"]


@cases("connections")
def test_the_address_of_datahubs_ui_is_known(server: str, address: str) -> None:
    assert sinks.RestSink(read("rest", {"host": server})).web_address == address


@cases("connections")
def test_the_password_of_an_address_is_masked(url: str) -> None:
    password = "S3cret@PW" if "S3cret@PW" in url else "S3cretPW"
    assert password not in _mask_secrets(f"401 for user:{password} and {password}", {"url": url})

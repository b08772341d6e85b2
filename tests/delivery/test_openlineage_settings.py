from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import ConnectionParts, SinkSettingsError
from airflow_provider_spark_datahub.delivery.sinks import OpenLineageSettings, OpenLineageSink

HTTP = {"type": "http", "url": "http://marquez:5000"}


@pytest.mark.parametrize(
    ("host", "port", "schema", "extra", "transport"),
    [
        ("http://marquez:5000", None, None, {}, HTTP),
        ("http://marquez", 5000, None, {}, HTTP),
        ("marquez", 5000, None, {}, HTTP),
        ("marquez", None, "https", {"timeout": 3}, {"type": "http", "url": "https://marquez", "timeout": 3}),
        (None, None, None, HTTP, HTTP),
        ("", None, None, {"type": "file", "log_file_path": "/e"}, {"type": "file", "log_file_path": "/e"}),
    ],
)
def test_the_transport_comes_from_the_connection(
    host: str | None, port: int | None, schema: str | None, extra: dict[str, Any], transport: dict[str, Any]
) -> None:
    connection = ConnectionParts(host, port, schema, extra=extra)
    assert OpenLineageSettings.from_connection(connection).transport == transport


@pytest.mark.parametrize(
    ("host", "password", "extra", "message"),
    [
        (None, None, {}, "no host"),
        ("http://a", None, {"url": "http://b"}, "'url' is given twice"),
        ("http://a", "canary-1", {"auth": {"type": "api_key", "apiKey": "canary-2"}}, "'auth' is given twice"),
        ("http://a", None, {"type": "console"}, "Configure the transport 'console' in the extra alone"),
        (None, None, {"type": "async_http", "url": "http://a"}, "'async_http' .* does not report which events arrived"),
        (None, None, {"type": "composite", "transports": [{"type": "kafka"}]}, "'kafka' within 'composite' does not"),
        (None, None, {"type": "composite", "transports": {"a": {"type": "async_http"}}}, "'async_http' within"),
        (
            None,
            None,
            {"type": "composite", "transports": [{"type": "msk-iam"}]},
            "'msk-iam' within 'composite' does not",
        ),
        (None, None, {"type": "transform", "transport": {"type": "async_http"}}, "'async_http' within 'transform'"),
        (None, None, {"type": "gcplineage", "project_id": "p"}, "'gcplineage' ignores events as Spark wrote them"),
        (
            None,
            None,
            {"type": "transform", "transport": {"type": "amazon_datazone_api"}},
            "'amazon_datazone_api' ignores",
        ),
    ],
)
def test_unusable_settings_are_refused(
    host: str | None, password: str | None, extra: dict[str, Any], message: str
) -> None:
    with pytest.raises(SinkSettingsError, match=message) as caught:
        OpenLineageSettings.from_connection(ConnectionParts(host, password=password, extra=extra))
    assert "canary" not in str(caught.value)


def test_secrets_are_neither_in_the_repr_nor_in_redacted_text() -> None:
    extra = {
        "custom_headers": {"X-Team": "canary-header"},
        "transports": [{"auth": {"type": "api_key", "apiKey": "canary-nested"}}],
        "proxy": "http://me:canary-proxy@proxy",
    }
    connection = ConnectionParts("http://me:canary-url@marquez", password="canary-key", extra=extra)
    settings = OpenLineageSettings.from_connection(connection)
    assert "canary" not in repr(connection)
    assert "canary" not in repr(settings)
    assert OpenLineageSink(settings).describe() == "the OpenLineage backend at http://marquez"
    redacted = settings.redact("canary-header canary-nested me:canary-proxy me:canary-url canary-key")
    assert redacted == "*** *** *** *** ***"
    assert settings.redact("me, canary-url") == "me, ***"

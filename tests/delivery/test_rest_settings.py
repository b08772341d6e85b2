from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import ConnectionParts, SinkSettingsError
from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink


def read(
    host: str | None = "http://gms:8080",
    port: int | None = None,
    schema: str | None = None,
    password: str | None = None,
    **extra: Any,
) -> RestSettings:
    return RestSettings.from_connection(ConnectionParts(host, port, schema, None, password, extra))


@pytest.mark.parametrize(
    ("host", "port", "schema", "server"),
    [
        ("http://gms:8080", None, None, "http://gms:8080"),
        ("http://gms:8080/", None, "https", "http://gms:8080"),
        ("https://acme.example/api/gms/", None, None, "https://acme.example/api/gms"),
        ("http://gms", 8080, None, "http://gms:8080"),
        ("http://gms:8080", 8080, None, "http://gms:8080"),
        ("gms", 8080, None, "http://gms:8080"),
        ("gms", 443, "https", "https://gms:443"),
        ("gms:8080", None, "", "http://gms:8080"),
        ("[::1]", 8080, None, "http://[::1]:8080"),
    ],
)
def test_the_server_comes_from_host_and_port(host: str, port: int | None, schema: str | None, server: str) -> None:
    assert read(host, port, schema).server == server


@pytest.mark.parametrize(
    ("host", "port", "schema", "message"),
    [
        (None, None, None, "no host"),
        (" ", 8080, None, "no host"),
        ("ftp://gms", None, None, "http or https, not 'ftp'"),
        ("gms", 8080, "public", "http or https, not 'public'"),
        ("http://:8080", None, None, "names no machine"),
        ("http://gms:8080", 8081, None, "port 8080, its port field 8081"),
        ("http://gms:no", None, None, "not a URL"),
        ("http://me:canary-1@gms", None, None, "token belongs in the password"),
        ("http://gms?token=canary-1", None, None, "token belongs in the password"),
    ],
)
def test_unusable_hosts_are_refused(host: str | None, port: int | None, schema: str | None, message: str) -> None:
    with pytest.raises(SinkSettingsError, match=message) as caught:
        read(host, port, schema)
    assert "canary-1" not in str(caught.value)


def test_defaults_are_set() -> None:
    settings = read()
    assert (settings.timeout_sec, settings.emit_mode, settings.openapi_ingestion) == (10.0, "SYNC_PRIMARY", False)
    assert (settings.token, settings.retry_max_times, settings.headers()) == (None, None, {})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("timeout_sec", 5, 5.0),
        ("timeout_sec", "2.5", 2.5),
        ("timeout_sec", "", 10.0),
        ("timeout_sec", None, 10.0),
        ("extra_headers", {"X-Team": "shop"}, {"X-Team": "shop"}),
        ("ca_certificate_path", "/etc/ca.pem", "/etc/ca.pem"),
        ("client_certificate_path", "/etc/me.pem", "/etc/me.pem"),
        ("disable_ssl_verification", True, True),
        ("disable_ssl_verification", "True", True),
        ("disable_ssl_verification", "false", False),
        ("retry_max_times", 0, 0),
        ("retry_max_times", "4", 4),
        ("emit_mode", "async", "ASYNC"),
        ("emit_mode", "Sync_Wait", "SYNC_WAIT"),
        ("openapi_ingestion", "true", True),
    ],
)
def test_extras_are_read(key: str, value: Any, expected: object) -> None:
    assert getattr(read(**{key: value}), key) == expected


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("timeout_secs", 5, r"'timeout_secs'\. Did you mean 'timeout_sec'\?"),
        ("Emit-Mode", "ASYNC", r"Did you mean 'emit_mode'\?"),
        ("zzz", 1, "Known keys: timeout_sec, extra_headers"),
        ("timeout_sec", "soon", "'timeout_sec'.* number of seconds above 0"),
        ("timeout_sec", 0, "above 0"),
        ("timeout_sec", "inf", "above 0"),
        ("timeout_sec", True, "above 0, not bool"),
        ("retry_max_times", -1, "whole number"),
        ("retry_max_times", 1.5, "whole number"),
        ("disable_ssl_verification", 1, "true or false"),
        ("disable_ssl_verification", "maybe", "true or false"),
        ("ca_certificate_path", 7, "must be text"),
        ("extra_headers", "X-Key: canary-1", "must be an object"),
        ("extra_headers", {"X-Key": 1}, "'X-Key' in 'extra_headers' must be text"),
        ("extra_headers", {"X-Key": "canary-1\r\nX-Evil: 1"}, "'X-Key' .* HTTP does not allow"),
        ("emit_mode", "ASYNCH", r"one of SYNC_PRIMARY, .*Did you mean ASYNC\?"),
        ("emit_mode", 3, "one of SYNC_PRIMARY"),
        ("emit_mode", "ASYNC_WAIT", "needs openapi_ingestion"),
        ("client_key_path", "/etc/key.pem", "needs client_certificate_path"),
    ],
)
def test_unusable_extras_are_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(SinkSettingsError, match=message) as caught:
        read(**{key: value})
    assert "canary-1" not in str(caught.value)


def test_the_token_is_the_password() -> None:
    assert read(password=" token-of-mine\n").headers() == {"Authorization": "Bearer token-of-mine"}
    assert read(password="").token is None
    with pytest.raises(SinkSettingsError, match="access token") as caught:
        read(password="canary-1 canary-2")
    assert "canary" not in str(caught.value)


def test_secrets_are_neither_in_the_repr_nor_in_redacted_text() -> None:
    headers = {"X-Key": "canary-header", "X-On": "1", "Proxy-Authorization": "Bearer canary-proxy"}
    settings = read(password="canary-token", extra_headers=headers)
    assert "canary" not in repr(settings)
    assert settings.redact("1 canary-token, canary-header") == "1 ***, ***"
    assert settings.redact("Bearer canary-proxy: the token canary-proxy is expired") == "***: the token *** is expired"


def test_the_secret_of_the_environment_is_not_in_redacted_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAHUB_SYSTEM_CLIENT_SECRET", "canary-system")
    assert read().redact("__datahub_system:canary-system is refused") == "__datahub_system:*** is refused"


def test_the_address_of_datahubs_ui_is_known() -> None:
    found = {
        server: RestSink(read(server)).web_address
        for server in (
            "http://localhost:8080",
            "http://datahub.example.com:8080/",
            "https://[::1]:8080",
            "https://acme.example.com/api/gms",
            "https://acme.example.com:8443/gms/",
            "https://example.com/datahub/api/gms",
            "http://datahub-gms:8080",
            "https://datahub.example.com",
        )
    }
    assert list(found.values()) == [
        "http://localhost:9002",
        "http://datahub.example.com:9002",
        "https://[::1]:9002",
        "https://acme.example.com",
        "https://acme.example.com:8443",
        "https://example.com/datahub",
        "",
        "",
    ]

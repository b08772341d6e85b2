from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import ConnectionParts, SinkSettingsError
from airflow_provider_spark_datahub.delivery.sinks import KafkaSettings


def read(
    host: str | None = "broker:9092",
    port: int | None = None,
    login: str | None = None,
    password: str | None = None,
    **extra: Any,
) -> KafkaSettings:
    return KafkaSettings.from_connection(ConnectionParts(host, port, None, login, password, extra))


@pytest.mark.parametrize(
    ("host", "port", "extra", "bootstrap"),
    [
        ("broker:9092", None, {}, "broker:9092"),
        ("broker", 9092, {}, "broker:9092"),
        ("b1:9092,b2:9092", None, {}, "b1:9092,b2:9092"),
        (None, None, {"connection": {"bootstrap": "broker:9092"}}, "broker:9092"),
        ("", None, {"connection": {"bootstrap": "broker:9092"}}, "broker:9092"),
    ],
)
def test_brokers_come_from_host_and_port(
    host: str | None, port: int | None, extra: dict[str, Any], bootstrap: str
) -> None:
    assert read(host, port, **extra).bootstrap == bootstrap


@pytest.mark.slow
def test_defaults_are_those_of_acryl_datahub() -> None:
    from datahub.configuration.kafka import KafkaProducerConnectionConfig
    from datahub.ingestion.sink.datahub_kafka import KafkaSinkConfig

    settings, theirs = read(), KafkaSinkConfig()
    assert settings.topic == theirs.topic_routes["MetadataChangeProposal"]
    assert settings.client_timeout_seconds == KafkaProducerConnectionConfig().client_timeout_seconds
    assert (settings.schema_registry_url, settings.producer_config, settings.schema_registry_config) == (None, {}, {})


def test_every_key_of_acryl_datahubs_settings_is_known() -> None:
    from datahub.ingestion.sink.datahub_kafka import KafkaSinkConfig

    theirs = KafkaSinkConfig().model_dump(exclude={"connection": {"bootstrap"}})
    assert read(**theirs).schema_registry_url == theirs["connection"]["schema_registry_url"]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"conection": {}}, r"extra: 'conection'\. Did you mean 'connection'\?"),
        ({"producer_config": {}}, "'producer_config' belongs into the object 'connection'"),
        (
            {"security_protocol": "SSL", "connection": {"producer_config": {"security.protocol": "canary-1"}}},
            "'security.protocol' is given twice: in the extra, and as field 'security_protocol'",
        ),
        ({"connection": {"schema_registry": "x"}}, r"object 'connection': 'schema_registry'\. Did you mean 'schema_re"),
        ({"connection": "canary-1"}, "'connection' .* must be an object, not str"),
        ({"connection": {"producer_config": ["canary-1"]}}, "'producer_config' .* must be an object, not list"),
        ({"connection": {"client_timeout_seconds": "soon"}}, "number of seconds above 0"),
        ({"connection": {"bootstrap": "other:9092"}}, "given twice"),
        ({"topic_routes": {"MetadataChangeProposals": "x"}}, "Did you mean 'MetadataChangeProposal'"),
        ({"topic_routes": {"MetadataChangeEvent": "x"}}, "names no topic for 'MetadataChangeProposal'"),
        ({"topic_routes": {"MetadataChangeProposal": 7}}, "'topic_routes.MetadataChangeProposal' .* must be text"),
        ({"connection": {"producer_config": {"acks": 0}}}, "'acks' .* must not be 0"),
        ({"connection": {"producer_config": {"request.required.acks": "0"}}}, "'acks' .* must not be 0"),
    ],
)
def test_unusable_extras_are_refused(extra: dict[str, Any], message: str) -> None:
    with pytest.raises(SinkSettingsError, match=message) as caught:
        read(**extra)
    assert "canary-1" not in str(caught.value)


def test_brokers_are_required() -> None:
    with pytest.raises(SinkSettingsError, match="no host"):
        read(" ")


SECURE = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def test_login_and_password_are_those_of_sasl() -> None:
    settings = read(login="me", password="canary-1", connection={"producer_config": SECURE})
    assert settings.producer_config == {**SECURE, "sasl.username": "me", "sasl.password": "canary-1"}


@pytest.mark.parametrize(
    ("producer_config", "message"),
    [
        ({}, "names no 'security.protocol'"),
        ({**SECURE, "sasl.password": "canary-2"}, "'sasl.password' is given twice"),
        ({**SECURE, "sasl.username": "canary-2"}, "'sasl.username' is given twice"),
    ],
)
def test_a_password_without_effect_is_refused(producer_config: dict[str, Any], message: str) -> None:
    with pytest.raises(SinkSettingsError, match=message) as caught:
        read(login="me", password="canary-1", connection={"producer_config": producer_config})
    assert "canary" not in str(caught.value)


def test_secrets_are_neither_in_the_repr_nor_in_redacted_text() -> None:
    connection = {
        "schema_registry_url": "http://me:canary-url@registry",
        "schema_registry_config": {
            "basic.auth.user.info": "me:canary-registry",
            "proxy": "http://me:canary-proxy@proxy:3128",
            "url": "http://[broken",
        },
        "producer_config": {**SECURE, "sasl.oauthbearer.client.secret": "canary-oauth", "client.id": "me"},
    }
    settings = read(password="canary-sasl", connection=connection)
    assert "canary" not in repr(settings)
    redacted = settings.redact("me canary-sasl canary-oauth canary-registry me:canary-registry canary-proxy canary-url")
    assert redacted == "me *** *** *** *** *** ***"

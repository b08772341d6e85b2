"""Secrets of connections in Airflow's API and logs: which are hidden, and how people hear of the
others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.hooks import check_sink, mask
from airflow_provider_spark_datahub.hooks.datahub import DatahubFileHook, _shown_secrets
from tests.airflow_versions import read_names_of_secrets, redact
from tests.delivery.connections import connect

KNOWN = {
    "basic.auth.user.info": "me:canary-1",
    "ssl.key.pem": "canary-2",
    "sasl.jaas.config": "canary-3",
}
OF_OTHERS = ("vault.credential", "jaas.file")


@pytest.fixture(autouse=True)
def names() -> Iterator[None]:
    """Start and end with the names that Airflow itself knows."""
    read_names_of_secrets()
    yield
    read_names_of_secrets()


def shown_by_the_api(extra: dict[str, Any]) -> str:
    """Return what ``GET /connections`` answers for a Kafka connection with this extra."""
    from airflow.api_fastapi.core_api.datamodels.connections import ConnectionResponse

    fields = dict.fromkeys(
        ("description", "host", "login", "schema", "port", "password", "team_name")
    )
    answer: Any = ConnectionResponse
    body = {
        "conn_id": "lineage",
        "conn_type": "datahub-kafka",
        **fields,
        "extra": json.dumps(extra),
    }
    return str(answer.model_validate(body).extra)


def warnings(extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what the checks of a connection with this extra say about its secrets."""
    connect(monkeypatch, "lineage", conn_type="datahub-file", host="/data/lineage", extra=extra)
    results = check_sink("lineage", DatahubFileHook("lineage").get_conn(), Deadline.after(60))
    return [result for result in results if result.subject == "credentials"]


@pytest.mark.parametrize("keys", [KNOWN, OF_OTHERS])
def test_secrets_that_airflows_api_shows_are_named_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, keys: Iterable[str]
) -> None:
    # A value that this process has hidden once stays hidden: these are other values than elsewhere
    # in this file.
    secrets = {key: f"shown-{key}" for key in keys}
    extra = {"connection": {"producer_config": {"acks": "all", **secrets}}}
    assert "shown-" in shown_by_the_api(extra)
    (warning,) = warnings(extra, monkeypatch)
    assert warning.message.startswith(f"Airflow shows {', '.join(sorted(secrets))} of lineage")
    names = warning.advice.rpartition(": ")[2]
    with monkeypatch.context() as patched:
        patched.setenv("AIRFLOW__CORE__SENSITIVE_VAR_CONN_NAMES", names)
        read_names_of_secrets()
        assert "shown-" not in shown_by_the_api(extra)
        assert warnings(extra, monkeypatch) == []


def test_the_logs_hide_the_secrets_of_a_connection_that_was_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extra = {"connection": {"producer_config": {"acks": "all", **KNOWN}}}
    warnings(extra, monkeypatch)
    said = redact([f"producer: {value}" for value in KNOWN.values()])
    assert said == ["producer: ***"] * len(KNOWN)


def test_a_secret_key_is_shown_even_if_this_process_hides_part_of_its_value() -> None:
    mask("seen-elsewhere")
    extra = {
        "connection": {
            "sasl.jaas.config": 'password="seen-elsewhere-too"',
            "acks": "all",
            "ssl.key.pem": "",
        }
    }
    assert _shown_secrets(extra) == {"sasl.jaas.config": "sasl.jaas.config,sasl_jaas_config"}

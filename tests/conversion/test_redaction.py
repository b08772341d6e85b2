"""No secret reaches the catalogue; everything else stays readable (Deviation 7)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from airflow_provider_spark_datahub.conversion import event_without_secrets, redact_text, redacted_trace
from airflow_provider_spark_datahub.conversion.redaction import REDACTED, redact, redact_name
from tests.cases import cases

SECRET = "hunter2"


@cases("redaction")
def test_values_of_secret_keys_are_redacted(key: str) -> None:
    assert redact(key, SECRET) == REDACTED


@cases("redaction")
def test_other_values_are_unchanged(key: str, value: str) -> None:
    assert redact(key, value) == value


@cases("redaction")
def test_the_jobs_own_pattern_applies_too(pattern: str, key: str, is_secret: bool) -> None:
    assert (redact(key, SECRET, pattern) == REDACTED) == is_secret


@cases("redaction")
def test_secrets_in_texts_are_redacted(text: str) -> None:
    assert SECRET not in redact_text(text)
    assert SECRET not in redact("spark.some.property", text)


@cases("redaction")
def test_other_texts_are_unchanged(text: str) -> None:
    assert redact_text(text) == text


@cases("redaction")
def test_text_beside_a_secret_is_unchanged(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@cases("redaction")
def test_names_lose_signed_queries_and_keep_partitions(name: str, expected: str) -> None:
    assert redact_name(name) == expected


pieces = st.sampled_from(
    [
        *[" IN (", "identified by ", "bearer 1234", "->", "sig=", "&", "?", "private key"],
        "password",
        "token",
        "=",
        ":",
        " ",
        "'",
        '"',
        "(",
        ")",
        ";",
        "\\",
        "x",
        "@",
        "/",
        "://",
        "1",
        "{",
        "}",
    ]
)


@given(st.lists(pieces).map("".join))
def test_redacted_text_is_unchanged(text: str) -> None:
    # Redacting twice, as convert and report may do, changes nothing more.
    once = redact_text(text)
    assert redact_text(once) == once


def test_a_stack_trace_has_no_secrets() -> None:
    error = RuntimeError("password=hunter2")
    error.__cause__ = OSError("cannot connect to jdbc:mysql://etl:hunter2@db/shop")
    trace = redacted_trace(error)
    assert "hunter2" not in trace
    assert "OSError: cannot connect to jdbc:mysql://db/shop" in trace
    assert "RuntimeError: password=" in trace


def test_an_event_without_secrets_is_unchanged() -> None:
    event = {"run": {"runId": "1", "facets": {"größe": [1, None, True, {"a": "b"}]}}, "job": {"name": "shop"}}
    assert json.loads(event_without_secrets(json.dumps(event).encode())) == event


def test_an_events_own_pattern_redacts_it() -> None:
    properties = {"spark.redaction.regex": "(?i)vault", "spark.my.Vault": SECRET, "spark.app.name": "shop"}
    event = {
        "run": {"facets": {"spark_properties": {"properties": properties}}},
        "inputs": [{"namespace": f"postgres://etl:{SECRET}@db:5432", "name": "orders"}],
    }
    kept = event_without_secrets(json.dumps(event).encode()).decode()
    assert SECRET not in kept
    assert "shop" in kept
    assert "orders" in kept


@pytest.mark.parametrize("event", [{}, {"run": None}, {"run": {"facets": {"spark_properties": 7}}}])
def test_an_event_of_another_shape_is_unchanged(event: dict[str, object]) -> None:
    assert json.loads(event_without_secrets(json.dumps(event).encode())) == event

"""No secret reaches the catalogue; everything else stays readable (Deviation 7)."""

from __future__ import annotations

from hypothesis import given, strategies as st

from airflow_provider_spark_datahub.conversion import redact_text, redacted_trace
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

"""Airflow's masker of secrets: texts that its logs hide, and keys of connections that its API
shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from airflow_provider_spark_datahub.foundation.text import SECRET_NAME
from airflow_provider_spark_datahub.hooks.airflow_services import ask


def mask(secret: str) -> None:
    """Make Airflow hide a text in its logs."""
    _masker("mask_secret", secret)


def mask_secrets(extra: Mapping[str, Any]) -> None:
    """Make Airflow hide in its logs what the JSON of a connection holds under names of secrets."""
    for key, value in extra.items():
        if isinstance(value, Mapping):
            mask_secrets(value)
        elif isinstance(value, str) and SECRET_NAME.search(key):
            mask(value)


def shown_secrets(extra: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of a connection's extra that hold secrets but whose values Airflow shows,
    each with its remedy.

    The remedy is what to add to ``[core] sensitive_var_conn_names``.

    Airflow's API hides values by the names of their keys: its own list, and ``[core]
    sensitive_var_conn_names``. So only names are tested. A real value could be hidden here for
    another reason: it contains a password that this process has seen elsewhere.
    """
    keys = _with_placeholders(extra)
    shown = sorted(set(_shown(keys, _masker("redact", keys))))
    return {key: ",".join(_names(key)) for key in shown}


def _names(key: str) -> list[str]:
    """Return the names that make Airflow hide a key. Airflow 3.3 compares them with underscores for
    dots.
    """
    return list(dict.fromkeys((key.lower(), re.sub(r"\W+", "_", key.lower()))))


def _with_placeholders(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys with placeholders for their texts, too short for Airflow to take for a known
    secret.
    """
    return {
        key: _with_placeholders(value) if isinstance(value, Mapping) else "?"
        for key, value in extra.items()
        if isinstance(value, Mapping) or (isinstance(value, str) and value)
    }


def _shown(keys: Mapping[str, Any], redacted: Any) -> Iterator[str]:
    for key, value in keys.items():
        shown = redacted.get(key) if isinstance(redacted, Mapping) else None
        if isinstance(value, Mapping):
            yield from _shown(value, shown)
        elif value == shown and SECRET_NAME.search(str(key)):
            yield str(key)


def _masker(function: str, value: object) -> Any:
    """Call a function of Airflow's masker of secrets; without one, return the value."""
    for module in (
        "airflow.sdk.log",
        "airflow.sdk.execution_time.secrets_masker",
    ):  # since, and before Airflow 3.2
        with suppress(ImportError, AttributeError):
            return ask(
                "the masker of secrets", partial(getattr(import_module(module), function), value)
            )
    return value

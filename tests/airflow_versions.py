"""What differs between Airflow's versions for the tests: what each lacks, with the reason, and
where a name is.

``since`` is the one way to leave a test out on an older Airflow; ``docs/compatibility.md`` says the
same to users.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import pytest

AIRFLOW = tuple(int(part) for part in version("apache-airflow").split(".")[:2])

_SERIALIZATION = importlib.import_module("airflow.serialization.serialized_objects")

DagSerialization: Any = (
    getattr(_SERIALIZATION, "DagSerialization", None) or _SERIALIZATION.SerializedDAG
)
"""Writes DAGs as the database keeps them; before Airflow 3.2, ``SerializedDAG`` does."""


def _since(minor: int, what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif((3, minor) > AIRFLOW, reason=f"since Airflow 3.{minor}, {what}")


CONNECTION_FIELDS = _since(2, "forms of connections have the fields of provider info (conn-fields)")
RECONNECTING = _since(3, "an attempt reconnects to a running driver (the task's state)")
DURABLE = pytest.mark.skipif(
    tuple(int(part) for part in version("apache-airflow-providers-apache-spark").split(".")[:2])
    < (6, 2),
    reason="the Spark provider 6.1 has no `durable`, which deprecates `reconnect_on_retry`",
)


def skip_if_airflow_injects_nothing() -> None:
    """Skip a test of OpenLineage's properties that the Spark provider adds, through the provider
    common-compat.

    With an OpenLineage provider that has no functions for other launchers (2.8), common-compat 1.23
    adds none at all.
    """
    compat: Any = importlib.import_module("airflow.providers.common.compat.openlineage.utils.spark")
    if compat.inject_transport_information_into_spark_properties.__module__ == compat.__name__:
        pytest.skip("common-compat adds nothing with this OpenLineage provider")


def redact(value: object) -> Any:
    """Return a value as Airflow logs it. The function is in another module since Airflow 3.2."""
    for module in ("airflow.sdk.log", "airflow.sdk.execution_time.secrets_masker"):
        with suppress(ImportError, AttributeError):
            return importlib.import_module(module).redact(value)
    raise LookupError("Airflow has no masker of secrets")


def read_names_of_secrets() -> None:
    """Have Airflow read ``[core] sensitive_var_conn_names`` again, which it keeps."""
    settings: Any = importlib.import_module("airflow.settings")
    settings._configure_secrets_masker()


def policies() -> list[Any]:
    """Return what Airflow calls as a cluster policy of tasks."""
    settings: Any = importlib.import_module("airflow.settings")
    manager = (
        settings.get_policy_plugin_manager()
        if AIRFLOW >= (3, 2)
        else settings.POLICY_PLUGIN_MANAGER
    )
    return [each.plugin for each in manager.hook.task_policy.get_hookimpls()]


def new_listener_manager(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return Airflow's manager of listeners with those of all plugins, as a new process has it."""
    listener: Any = importlib.import_module("airflow.listeners.listener")
    if AIRFLOW >= (3, 2):
        listener.get_listener_manager.cache_clear()
    else:
        monkeypatch.setattr(listener, "_listener_manager", None)
    return listener.get_listener_manager()

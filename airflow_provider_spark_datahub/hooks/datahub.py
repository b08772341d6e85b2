"""Airflow connection types for DataHub, the sink of each, and Airflow's masker of their secrets.

Tests: ``tests/hooks/test_datahub.py`` and ``tests/hooks/test_masking.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException, BaseHook

from airflow_provider_spark_datahub import delivery
from airflow_provider_spark_datahub.delivery import sinks
from airflow_provider_spark_datahub.foundation.text import SECRET_NAME
from airflow_provider_spark_datahub.hooks.airflow_services import NoAnswerError, ask, connection_of
from airflow_provider_spark_datahub.hooks.storage import open_outbox, open_store, s3_endpoint
from airflow_provider_spark_datahub.task import Connections

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult
    from airflow_provider_spark_datahub.delivery import CheckResult, ConnectionParts, Sink
    from airflow_provider_spark_datahub.delivery.outbox import ObjectStorage
    from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey


_CHECK_SECONDS = 10.0
"""Time for the test of a connection in Airflow's UI."""


class _DatahubHook(BaseHook):
    """Base class of the connection types.

    :param datahub_conn_id: id of the connection; default: the type's default id.
    """

    conn_name_attr = "datahub_conn_id"
    default_conn_name: ClassVar[str]
    conn_type: ClassVar[str]
    hook_name: ClassVar[str]

    def __init__(self, datahub_conn_id: str | None = None) -> None:
        super().__init__()
        self.datahub_conn_id = datahub_conn_id or self.default_conn_name

    def get_conn(self) -> Sink:
        """Return the sink of the connection."""
        return _SINKS[self.conn_type](_parts(connection_of(self.datahub_conn_id)))

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the connection can be used, and the results of the checks in words. Called
        by Airflow.

        The checks are those of ``spark-datahub doctor``. Nothing is written.
        """
        try:
            deadline = delivery.Deadline.after(_CHECK_SECONDS)
            results = check_sink(self.datahub_conn_id, self.get_conn(), deadline)
        except (AirflowException, delivery.SinkSettingsError) as error:
            return False, str(error)
        bad = [result for result in results if result.status is delivery.CheckStatus.BAD]
        sentences = [
            f"{result.message}{f' ({result.advice})' if result.advice else ''}."
            for result in (bad or results)
        ]
        return not bad, " ".join(sentences)


class DatahubRestHook(_DatahubHook):
    """Connection type ``datahub-rest``: host = GMS, password = token.

    Extra: see :class:`~airflow_provider_spark_datahub.delivery.sinks.settings.RestSettings`.
    """

    default_conn_name = "datahub_rest_default"
    conn_type = "datahub-rest"
    hook_name = "DataHub REST Server"


class DatahubKafkaHook(_DatahubHook):
    """Connection type ``datahub-kafka``: host = brokers, login and password = SASL's.

    Extra: see :class:`~airflow_provider_spark_datahub.delivery.sinks.settings.KafkaSettings`.
    """

    default_conn_name = "datahub_kafka_default"
    conn_type = "datahub-kafka"
    hook_name = "DataHub Kafka Sink"


class DatahubObjectStoreHook(_DatahubHook):
    """Connection type ``datahub-object-store``: host = URI of bucket and prefix.

    Extra: see :class:`~airflow_provider_spark_datahub.delivery.sinks.object_store.ObjectStoreSink`.
    """

    default_conn_name = "datahub_object_store_default"
    conn_type = "datahub-object-store"
    hook_name = "DataHub Object Store"


class DatahubFileHook(_DatahubHook):
    """Connection type ``datahub-file``: host = path of the folder."""

    default_conn_name = "datahub_file_default"
    conn_type = "datahub-file"
    hook_name = "DataHub File"


def _object_store_sink(connection: ConnectionParts) -> Sink:
    def opened(uri: str, conn_id: str | None) -> ObjectStorage:
        try:
            return open_store(uri, conn_id)
        except OSError as error:
            raise delivery.SinkSettingsError(str(error)) from error

    return sinks.ObjectStoreSink.from_connection(connection, opened)


_SINKS: dict[str, Callable[[ConnectionParts], Sink]] = {
    DatahubRestHook.conn_type: lambda parts: sinks.RestSink(
        sinks.RestSettings.from_connection(parts)
    ),
    DatahubKafkaHook.conn_type: lambda parts: sinks.KafkaSink(
        sinks.KafkaSettings.from_connection(parts)
    ),
    DatahubFileHook.conn_type: lambda parts: sinks.FileSink.from_connection(parts),  # noqa: PLW0108 (loads the sink late)
    DatahubObjectStoreHook.conn_type: _object_store_sink,
}


def sink_of(connection_id: str) -> Sink:
    """Return the sink of a connection, by its type.

    :raises SinkSettingsError: if the type does not lead to DataHub, or the connection is incomplete
        or has an unknown option.
    """
    connection = connection_of(connection_id)
    # Airflow turns the dashes of a type into underscores if the connection comes from a URI or the
    # environment.
    conn_type = (connection.conn_type or "").replace("_", "-")
    if conn_type not in _SINKS:
        raise delivery.SinkSettingsError(
            f"connection {connection_id!r} is of type {connection.conn_type!r}; lineage needs a connection of "
            f"type {' or '.join(map(repr, _SINKS))}"
        )
    return _SINKS[conn_type](_parts(connection))


def open_sink(connection_id: str) -> tuple[Sink | None, str | None]:
    """Return the sink of a connection, or the reason why it has none, with what to do about it."""
    try:
        return sink_of(connection_id), None
    except NoAnswerError as error:
        return None, f"Airflow did not answer: {error}"
    except AirflowNotFoundException:
        reason = (
            "it does not exist, or a secrets backend fails (see DEBUG); add it: airflow connections add "
            f"{connection_id} --conn-type datahub-rest --conn-host http://gms:8080, or "
            f"AIRFLOW_CONN_{connection_id.upper()} on a host without access to Airflow's database"
        )
    except (AirflowException, delivery.SinkSettingsError) as error:
        reason = str(error).rstrip(".")
        if "pip install" not in reason:
            reason += f"; edit it in Airflow's UI, or run airflow connections delete {connection_id} and add it again"
    return None, f"connection {connection_id!r} cannot be used: {reason}"


def airflow_connections(
    final_result: Callable[[AttemptKey], AttemptResult | None] = lambda _: None,
) -> Connections:
    """Return the access to Airflow's connections, with a way to ask for the results of task
    instances.
    """
    return Connections(open_sink, open_outbox, final_result, open_store, s3_endpoint)


def check_sink(connection_id: str, sink: Sink, deadline: delivery.Deadline) -> list[CheckResult]:
    """Return the results of all checks of a connection, without writing anything."""
    results = sink.check(deadline)
    if shown := _shown_secrets(connection_of(connection_id).extra_dejson):
        results.append(
            delivery.CheckResult(
                "credentials",
                delivery.CheckStatus.WARNING,
                f"Airflow shows {', '.join(shown)} of {connection_id} to everybody who may read connections",
                "move it to the connection's fields for passwords and keys, or name it in "
                f"[core] sensitive_var_conn_names: {','.join(shown.values())}",
            )
        )
    return results


def _parts(connection: Any) -> ConnectionParts:
    for _, secret, _ in _secrets(connection.extra_dejson):
        mask(secret)
    return delivery.ConnectionParts(
        connection.host,
        connection.port,
        connection.schema,
        connection.login,
        connection.password,
        connection.extra_dejson,
    )


def mask(secret: str) -> None:
    """Make Airflow hide a text in its logs."""
    _masker("mask_secret", secret)


def _secrets(extra: Mapping[str, Any], redacted: Any = None) -> Iterator[tuple[str, str, object]]:
    """Yield what the JSON of a connection holds under names of secrets: its key, itself, and what
    stands for it in the redacted JSON.
    """
    for key, value in extra.items():
        shown = redacted.get(key) if isinstance(redacted, Mapping) else None
        if isinstance(value, Mapping):
            yield from _secrets(value, shown)
        elif isinstance(value, str) and SECRET_NAME.search(key):
            yield key, value, shown


def _shown_secrets(extra: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of a connection's extra that hold secrets but whose values Airflow shows,
    each with its remedy.

    The remedy is what to add to ``[core] sensitive_var_conn_names``.

    Airflow's API hides values by the names of their keys: its own list, and ``[core]
    sensitive_var_conn_names``. So only names are tested. A real value could be hidden here for
    another reason: it contains a password that this process has seen elsewhere.
    """
    keys = _with_placeholders(extra)
    secrets = _secrets(keys, _masker("redact", keys))
    shown = sorted({key for key, value, redacted in secrets if value == redacted})
    return {key: ",".join(_names(key)) for key in shown}


def _names(key: str) -> dict[str, None]:
    """Return the names that make Airflow hide a key. Airflow 3.3 compares them with underscores for
    dots.
    """
    return dict.fromkeys((key.lower(), re.sub(r"\W+", "_", key.lower())))


def _with_placeholders(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys with placeholders for their texts, too short for Airflow to take for a known
    secret.
    """
    return {
        key: _with_placeholders(value) if isinstance(value, Mapping) else "?"
        for key, value in extra.items()
        if isinstance(value, Mapping) or (isinstance(value, str) and value)
    }


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

"""Airflow connections to DataHub, and the sink that each type of them stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, BaseHook

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.sink import Sink


class ConnectionTypeError(ValueError):
    """A connection that is no connection to DataHub; the message names its type and those that are."""


class DatahubHook(BaseHook):
    """A connection to DataHub; its types are the subclasses.

    :param datahub_conn_id: the connection's id; default: that of the type.
    """

    conn_name_attr = "datahub_conn_id"
    default_conn_name: ClassVar[str]
    conn_type: ClassVar[str]
    hook_name: ClassVar[str]

    def __init__(self, datahub_conn_id: str | None = None) -> None:
        super().__init__()
        self.datahub_conn_id = datahub_conn_id or self.default_conn_name

    def get_conn(self) -> Sink:
        """The sink of the connection.

        :raises SinkSettingsError: where the connection is incomplete or has an unknown option.
        """
        return _SINKS[self.conn_type](self.get_connection(self.datahub_conn_id))


class DatahubRestHook(DatahubHook):
    """A connection of type ``datahub-rest``: host = GMS, password = token.

    Extra: see :meth:`RestSettings.from_connection
    <airflow_provider_spark_datahub.delivery.rest_settings.RestSettings.from_connection>`.
    """

    default_conn_name = "datahub_rest_default"
    conn_type = "datahub-rest"
    hook_name = "DataHub REST Server"


class DatahubKafkaHook(DatahubHook):
    """A connection of type ``datahub-kafka``: host = brokers, login and password = SASL's.

    Extra: see :meth:`KafkaSettings.from_connection
    <airflow_provider_spark_datahub.delivery.kafka_settings.KafkaSettings.from_connection>`.
    """

    default_conn_name = "datahub_kafka_default"
    conn_type = "datahub-kafka"
    hook_name = "DataHub Kafka Sink"


class DatahubObjectStoreHook(DatahubHook):
    """A connection of type ``datahub-object-store``: host = URI of bucket and prefix.

    Extra: see :meth:`ObjectStoreSettings.from_connection
    <airflow_provider_spark_datahub.delivery.object_store_settings.ObjectStoreSettings.from_connection>`.
    """

    default_conn_name = "datahub_object_store_default"
    conn_type = "datahub-object-store"
    hook_name = "DataHub Object Store"


class DatahubFileHook(DatahubHook):
    """A connection of type ``datahub-file``: host = path of the file."""

    default_conn_name = "datahub_file_default"
    conn_type = "datahub-file"
    hook_name = "DataHub File"


class OpenLineageHook(DatahubHook):
    """A connection of type ``openlineage``, for raw events beside DataHub: host = URL, password = API key.

    Extra: see :meth:`OpenLineageSettings.from_connection
    <airflow_provider_spark_datahub.delivery.openlineage_settings.OpenLineageSettings.from_connection>`.
    """

    conn_name_attr = "openlineage_conn_id"
    default_conn_name = "openlineage_default"
    conn_type = "openlineage"
    hook_name = "OpenLineage backend"

    def __init__(self, openlineage_conn_id: str | None = None) -> None:
        super().__init__(openlineage_conn_id)


def sink_of(connection_id: str) -> Sink:
    """The sink of a connection, by its type.

    :raises ConnectionTypeError: where it is no connection to DataHub.
    :raises SinkSettingsError: where it is incomplete or has an unknown option.
    """
    connection = BaseHook.get_connection(connection_id)
    # Airflow turns the dashes of a type into underscores where the connection comes from a URI or an environment.
    make = _SINKS.get((connection.conn_type or "").replace("_", "-"))
    if make is None:
        raise ConnectionTypeError(
            f"connection {connection_id!r} is of type {connection.conn_type!r}; lineage goes through a connection of "
            f"type {' or '.join(map(repr, _SINKS))}"
        )
    return make(connection)


def open_sink(connection_id: str) -> tuple[Sink | None, str | None]:
    """The sink of a connection, or the reason why it has none."""
    from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError

    try:
        return sink_of(connection_id), None
    except (AirflowException, ConnectionTypeError, SinkSettingsError) as error:
        return None, f"connection {connection_id!r} cannot be used: {error}"


def _rest_sink(connection: Any) -> Sink:
    from airflow_provider_spark_datahub.delivery.rest import RestSink
    from airflow_provider_spark_datahub.delivery.rest_settings import RestSettings

    return RestSink(
        RestSettings.from_connection(
            connection.host, connection.port, connection.schema, connection.password, connection.extra_dejson
        )
    )


def _kafka_sink(connection: Any) -> Sink:
    from airflow_provider_spark_datahub.delivery.kafka import KafkaSink
    from airflow_provider_spark_datahub.delivery.kafka_settings import KafkaSettings

    return KafkaSink(
        KafkaSettings.from_connection(
            connection.host, connection.port, connection.login, connection.password, connection.extra_dejson
        )
    )


def _file_sink(connection: Any) -> Sink:
    from airflow_provider_spark_datahub.delivery.file import FileSink

    return FileSink.from_connection(connection.host)


def _object_store_sink(connection: Any) -> Sink:
    from airflow_provider_spark_datahub.delivery.object_store import ObjectStoreSink
    from airflow_provider_spark_datahub.delivery.object_store_settings import ObjectStoreSettings
    from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError
    from airflow_provider_spark_datahub.hooks.object_storage import StorageConnectionError, open_storage

    settings = ObjectStoreSettings.from_connection(connection.host, connection.extra_dejson)
    try:
        return ObjectStoreSink(open_storage(settings.uri, settings.storage_conn_id))
    except StorageConnectionError as error:
        raise SinkSettingsError(f"Cannot open {settings.uri}: {error}") from error


def _openlineage_sink(connection: Any) -> Sink:
    from airflow_provider_spark_datahub.delivery.openlineage_backend import OpenLineageSink
    from airflow_provider_spark_datahub.delivery.openlineage_settings import OpenLineageSettings

    return OpenLineageSink(
        OpenLineageSettings.from_connection(
            connection.host, connection.port, connection.schema, connection.password, connection.extra_dejson
        )
    )


_SINKS: dict[str, Callable[[Any], Sink]] = {
    DatahubRestHook.conn_type: _rest_sink,
    DatahubKafkaHook.conn_type: _kafka_sink,
    DatahubFileHook.conn_type: _file_sink,
    DatahubObjectStoreHook.conn_type: _object_store_sink,
    OpenLineageHook.conn_type: _openlineage_sink,
}

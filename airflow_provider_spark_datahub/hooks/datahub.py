"""Airflow connection types for DataHub, and the sink of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, BaseHook

from airflow_provider_spark_datahub import delivery
from airflow_provider_spark_datahub.delivery import sinks
from airflow_provider_spark_datahub.hooks.storage import StorageConnectionError, open_storage

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery import ConnectionParts, Sink


class ConnectionTypeError(ValueError):
    """Connection of a type that does not lead to DataHub; the message names the accepted types."""


class DatahubHook(BaseHook, ABC):
    """Base class of the connection types.

    :param datahub_conn_id: id of the connection; default: that of the type.
    """

    conn_name_attr = "datahub_conn_id"
    default_conn_name: ClassVar[str]
    conn_type: ClassVar[str]
    hook_name: ClassVar[str]

    def __init__(self, datahub_conn_id: str | None = None) -> None:
        super().__init__()
        self.datahub_conn_id = datahub_conn_id or self.default_conn_name

    @staticmethod
    @abstractmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """Return the sink of a connection of this type.

        :raises SinkSettingsError: if the connection is incomplete or has an unknown option.
        """

    def get_conn(self) -> Sink:
        """Return the sink of the connection.

        :raises SinkSettingsError: if the connection is incomplete or has an unknown option.
        """
        return self.make_sink(_parts(self.get_connection(self.datahub_conn_id)))


class DatahubRestHook(DatahubHook):
    """Connection type ``datahub-rest``: host = GMS, password = token.

    Extra: see :meth:`RestSettings.from_connection
    <airflow_provider_spark_datahub.delivery.sinks.rest.RestSettings.from_connection>`.
    """

    default_conn_name = "datahub_rest_default"
    conn_type = "datahub-rest"
    hook_name = "DataHub REST Server"

    @staticmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """Return a :class:`~airflow_provider_spark_datahub.delivery.sinks.rest.RestSink`."""
        return sinks.RestSink(sinks.RestSettings.from_connection(connection))


class DatahubKafkaHook(DatahubHook):
    """Connection type ``datahub-kafka``: host = brokers, login and password = SASL's.

    Extra: see :meth:`KafkaSettings.from_connection
    <airflow_provider_spark_datahub.delivery.sinks.kafka.KafkaSettings.from_connection>`.
    """

    default_conn_name = "datahub_kafka_default"
    conn_type = "datahub-kafka"
    hook_name = "DataHub Kafka Sink"

    @staticmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """Return a :class:`~airflow_provider_spark_datahub.delivery.sinks.kafka.KafkaSink`."""
        return sinks.KafkaSink(sinks.KafkaSettings.from_connection(connection))


class DatahubObjectStoreHook(DatahubHook):
    """Connection type ``datahub-object-store``: host = URI of bucket and prefix.

    Extra: see :meth:`ObjectStoreSettings.from_connection
    <airflow_provider_spark_datahub.delivery.sinks.object_store.ObjectStoreSettings.from_connection>`.
    """

    default_conn_name = "datahub_object_store_default"
    conn_type = "datahub-object-store"
    hook_name = "DataHub Object Store"

    @staticmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """Return an :class:`~airflow_provider_spark_datahub.delivery.sinks.object_store.ObjectStoreSink`."""
        settings = sinks.ObjectStoreSettings.from_connection(connection)
        try:
            return sinks.ObjectStoreSink(open_storage(settings.uri, settings.storage_conn_id))
        except StorageConnectionError as error:
            raise delivery.SinkSettingsError(f"Cannot open {settings.uri}: {error}") from error


class DatahubFileHook(DatahubHook):
    """Connection type ``datahub-file``: host = path of the file."""

    default_conn_name = "datahub_file_default"
    conn_type = "datahub-file"
    hook_name = "DataHub File"

    @staticmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """Return a :class:`~airflow_provider_spark_datahub.delivery.sinks.file.FileSink`."""
        return sinks.FileSink.from_connection(connection)


class OpenLineageHook(DatahubHook):
    """Connection type ``openlineage``, for raw events beside DataHub: host = URL, password = API key.

    Extra: see :meth:`OpenLineageSettings.from_connection
    <airflow_provider_spark_datahub.delivery.sinks.openlineage.OpenLineageSettings.from_connection>`.
    """

    conn_name_attr = "openlineage_conn_id"
    default_conn_name = "openlineage_default"
    conn_type = "openlineage"
    hook_name = "OpenLineage backend"

    def __init__(self, openlineage_conn_id: str | None = None) -> None:
        super().__init__(openlineage_conn_id)

    @staticmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """Return an :class:`~airflow_provider_spark_datahub.delivery.sinks.openlineage.OpenLineageSink`."""
        return sinks.OpenLineageSink(sinks.OpenLineageSettings.from_connection(connection))


_HOOKS: tuple[type[DatahubHook], ...] = (
    DatahubRestHook,
    DatahubKafkaHook,
    DatahubFileHook,
    DatahubObjectStoreHook,
    OpenLineageHook,
)


def sink_of(connection_id: str) -> Sink:
    """Return the sink of a connection, by its type.

    :raises ConnectionTypeError: if the type does not lead to DataHub.
    :raises SinkSettingsError: if the connection is incomplete or has an unknown option.
    """
    connection = BaseHook.get_connection(connection_id)
    # Airflow turns the dashes of a type into underscores if the connection comes from a URI or the environment.
    conn_type = (connection.conn_type or "").replace("_", "-")
    hook = next((hook for hook in _HOOKS if hook.conn_type == conn_type), None)
    if hook is None:
        raise ConnectionTypeError(
            f"connection {connection_id!r} is of type {connection.conn_type!r}; lineage goes through a connection of "
            f"type {' or '.join(repr(hook.conn_type) for hook in _HOOKS)}"
        )
    return hook.make_sink(_parts(connection))


def open_sink(connection_id: str) -> tuple[Sink | None, str | None]:
    """Return the sink of a connection, or the reason why it has none."""
    try:
        return sink_of(connection_id), None
    except (AirflowException, ConnectionTypeError, delivery.SinkSettingsError) as error:
        return None, f"connection {connection_id!r} cannot be used: {error}"


def _parts(connection: Any) -> ConnectionParts:
    return delivery.ConnectionParts(
        connection.host,
        connection.port,
        connection.schema,
        connection.login,
        connection.password,
        connection.extra_dejson,
    )

"""Airflow connections to DataHub, and the sink that each type of them stands for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException, BaseHook

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery import ConnectionParts, Sink


class ConnectionTypeError(ValueError):
    """A connection that is no connection to DataHub; the message names its type and those that are."""


class DatahubHook(BaseHook, ABC):
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

    @staticmethod
    @abstractmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """The sink that a connection of this type stands for.

        :raises SinkSettingsError: where the connection is incomplete or has an unknown option.
        """

    def get_conn(self) -> Sink:
        """The sink of the connection.

        :raises SinkSettingsError: where the connection is incomplete or has an unknown option.
        """
        return self.make_sink(_parts(self.get_connection(self.datahub_conn_id)))


class DatahubRestHook(DatahubHook):
    """A connection of type ``datahub-rest``: host = GMS, password = token.

    Extra: see :meth:`RestSettings.from_connection
    <airflow_provider_spark_datahub.delivery.sinks.rest.RestSettings.from_connection>`.
    """

    default_conn_name = "datahub_rest_default"
    conn_type = "datahub-rest"
    hook_name = "DataHub REST Server"

    @staticmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """A :class:`~airflow_provider_spark_datahub.delivery.sinks.rest.RestSink`."""
        from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink

        return RestSink(RestSettings.from_connection(connection))


class DatahubKafkaHook(DatahubHook):
    """A connection of type ``datahub-kafka``: host = brokers, login and password = SASL's.

    Extra: see :meth:`KafkaSettings.from_connection
    <airflow_provider_spark_datahub.delivery.sinks.kafka.KafkaSettings.from_connection>`.
    """

    default_conn_name = "datahub_kafka_default"
    conn_type = "datahub-kafka"
    hook_name = "DataHub Kafka Sink"

    @staticmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """A :class:`~airflow_provider_spark_datahub.delivery.sinks.kafka.KafkaSink`."""
        from airflow_provider_spark_datahub.delivery.sinks import KafkaSettings, KafkaSink

        return KafkaSink(KafkaSettings.from_connection(connection))


class DatahubObjectStoreHook(DatahubHook):
    """A connection of type ``datahub-object-store``: host = URI of bucket and prefix.

    Extra: see :meth:`ObjectStoreSettings.from_connection
    <airflow_provider_spark_datahub.delivery.sinks.object_store.ObjectStoreSettings.from_connection>`.
    """

    default_conn_name = "datahub_object_store_default"
    conn_type = "datahub-object-store"
    hook_name = "DataHub Object Store"

    @staticmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """An :class:`~airflow_provider_spark_datahub.delivery.sinks.object_store.ObjectStoreSink`."""
        from airflow_provider_spark_datahub.delivery import SinkSettingsError
        from airflow_provider_spark_datahub.delivery.sinks import ObjectStoreSettings, ObjectStoreSink
        from airflow_provider_spark_datahub.hooks.storage import StorageConnectionError, open_storage

        settings = ObjectStoreSettings.from_connection(connection)
        try:
            return ObjectStoreSink(open_storage(settings.uri, settings.storage_conn_id))
        except StorageConnectionError as error:
            raise SinkSettingsError(f"Cannot open {settings.uri}: {error}") from error


class DatahubFileHook(DatahubHook):
    """A connection of type ``datahub-file``: host = path of the file."""

    default_conn_name = "datahub_file_default"
    conn_type = "datahub-file"
    hook_name = "DataHub File"

    @staticmethod
    def make_sink(connection: ConnectionParts) -> Sink:
        """A :class:`~airflow_provider_spark_datahub.delivery.sinks.file.FileSink`."""
        from airflow_provider_spark_datahub.delivery.sinks import FileSink

        return FileSink.from_connection(connection)


class OpenLineageHook(DatahubHook):
    """A connection of type ``openlineage``, for raw events beside DataHub: host = URL, password = API key.

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
        """An :class:`~airflow_provider_spark_datahub.delivery.sinks.openlineage.OpenLineageSink`."""
        from airflow_provider_spark_datahub.delivery.sinks import OpenLineageSettings, OpenLineageSink

        return OpenLineageSink(OpenLineageSettings.from_connection(connection))


_HOOKS: tuple[type[DatahubHook], ...] = (
    DatahubRestHook,
    DatahubKafkaHook,
    DatahubFileHook,
    DatahubObjectStoreHook,
    OpenLineageHook,
)


def sink_of(connection_id: str) -> Sink:
    """The sink of a connection, by its type.

    :raises ConnectionTypeError: where it is no connection to DataHub.
    :raises SinkSettingsError: where it is incomplete or has an unknown option.
    """
    connection = BaseHook.get_connection(connection_id)
    # Airflow turns the dashes of a type into underscores where the connection comes from a URI or an environment.
    conn_type = (connection.conn_type or "").replace("_", "-")
    hook = next((one for one in _HOOKS if one.conn_type == conn_type), None)
    if hook is None:
        raise ConnectionTypeError(
            f"connection {connection_id!r} is of type {connection.conn_type!r}; lineage goes through a connection of "
            f"type {' or '.join(repr(one.conn_type) for one in _HOOKS)}"
        )
    return hook.make_sink(_parts(connection))


def open_sink(connection_id: str) -> tuple[Sink | None, str | None]:
    """The sink of a connection, or the reason why it has none."""
    from airflow_provider_spark_datahub.delivery import SinkSettingsError

    try:
        return sink_of(connection_id), None
    except (AirflowException, ConnectionTypeError, SinkSettingsError) as error:
        return None, f"connection {connection_id!r} cannot be used: {error}"


def _parts(connection: Any) -> ConnectionParts:
    from airflow_provider_spark_datahub.delivery import ConnectionParts

    return ConnectionParts(
        connection.host,
        connection.port,
        connection.schema,
        connection.login,
        connection.password,
        connection.extra_dejson,
    )

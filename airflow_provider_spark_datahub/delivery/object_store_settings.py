"""The settings of the object store sink, read from a ``datahub-object-store`` connection."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from airflow_provider_spark_datahub.delivery.connection import ConnectionParts
from airflow_provider_spark_datahub.delivery.connection_extra import Reader, read_extra, text
from airflow_provider_spark_datahub.delivery.sink import SinkSettingsError


@dataclass(frozen=True, slots=True)
class ObjectStoreSettings:
    """Where in an object store proposals go.

    :param uri: bucket and prefix, e.g. ``s3://bucket/lineage``.
    :param storage_conn_id: the Airflow connection that reaches the store; None for the store's own defaults, such as
        the machine's role.
    """

    uri: str
    storage_conn_id: str | None = None

    @classmethod
    def from_connection(cls, connection: ConnectionParts) -> ObjectStoreSettings:
        """The settings that an Airflow connection holds.

        :param connection: ``host`` is the URI of bucket and prefix, for which Airflow's form
            ``s3://connection@bucket/prefix`` will do, too; ``extra`` may have ``storage_conn_id``.
        :raises SinkSettingsError: where a part is missing, unknown or of the wrong type.
        """
        settings = read_extra(connection.extra, _EXTRA)
        uri = (connection.host or "").strip().rstrip("/")
        try:
            parts = urlsplit(uri)
            secret, bucket, in_uri = parts.password, parts.hostname, parts.username
        except ValueError as error:
            raise SinkSettingsError(_WANTED) from error
        if not (parts.scheme and "://" in uri and bucket):
            raise SinkSettingsError(_WANTED)
        if secret is not None or parts.query or parts.fragment:
            raise SinkSettingsError(
                "The connection's host must be a plain URI: keys belong into the connection that 'storage_conn_id' in "
                "its extra names."
            )
        if in_uri and "storage_conn_id" in settings:
            raise SinkSettingsError(
                "The store's connection is given twice: in the host, and as 'storage_conn_id' in the extra. "
                "Leave one out."
            )
        return cls(uri, settings.get("storage_conn_id", in_uri))


_WANTED = "The connection's host must be the URI of a bucket, with a prefix or without: e.g. s3://bucket/lineage."
_EXTRA: dict[str, Reader] = {"storage_conn_id": text}

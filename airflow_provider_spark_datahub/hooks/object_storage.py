"""Object stores behind Airflow's connections."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowException, BaseHook

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.object_storage import ObjectStorage


class StorageConnectionError(ValueError):
    """A store that cannot even be asked: its connection is missing or wrong, or its client is not installed."""


def open_storage(uri: str, conn_id: str | None = None) -> ObjectStorage:
    """The objects below a URI.

    :param uri: what Airflow's ``ObjectStoragePath`` takes: ``s3://bucket/prefix``, ``s3://connection@bucket/prefix``.
    :param conn_id: the connection that reaches the store; None for that of the URI, or the store's own defaults.
    :raises StorageConnectionError: nothing was sent.
    """
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_spark_datahub.delivery.object_storage import ObjectStorage

    try:
        named = conn_id or urlsplit(uri).username
        if named:
            BaseHook.get_connection(named)  # a missing one would be taken for access without any keys
        path = ObjectStoragePath(uri, conn_id=conn_id)
        return ObjectStorage(path.fs, path.path, uri)
    except (AirflowException, ImportError, OSError, ValueError) as error:
        raise StorageConnectionError(str(error)) from error

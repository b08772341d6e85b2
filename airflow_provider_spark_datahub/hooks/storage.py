"""Object stores behind Airflow's connections.

The outbox at a location: a folder, or an object store behind an Airflow connection.

The folder of a backfill's results: on a disk, or in an object store behind an Airflow connection.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowException, BaseHook

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.backfill.delivery import ResultFolder
    from airflow_provider_spark_datahub.delivery.outbox import ObjectStorage, Outbox, OutboxLimits


class StorageConnectionError(ValueError):
    """A store that cannot even be asked: its connection is missing or wrong, or its client is not installed."""


def open_storage(uri: str, conn_id: str | None = None) -> ObjectStorage:
    """The objects below a URI.

    :param uri: what Airflow's ``ObjectStoragePath`` takes: ``s3://bucket/prefix``, ``s3://connection@bucket/prefix``.
    :param conn_id: the connection that reaches the store; None for that of the URI, or the store's own defaults.
    :raises StorageConnectionError: nothing was sent.
    """
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_spark_datahub.delivery.outbox import ObjectStorage

    try:
        named = conn_id or urlsplit(uri).username
        if named:
            BaseHook.get_connection(named)  # a missing one would be taken for access without any keys
        path = ObjectStoragePath(uri, conn_id=conn_id)
        return ObjectStorage(path.fs, path.path, uri)
    except (AirflowException, ImportError, OSError, ValueError) as error:
        raise StorageConnectionError(str(error)) from error


def open_outbox(location: str, limits: OutboxLimits | None = None) -> Outbox:
    """The outbox at a location.

    :param location: a path, or a URI that Airflow's ``ObjectStoragePath`` takes: ``s3://connection@bucket/prefix``.
    :raises OutboxError: the connection is missing or wrong, or what reaches the object store is not installed.
    """
    from airflow_provider_spark_datahub.delivery.outbox import LocalStorage, Outbox, OutboxError

    if "://" not in location:
        return Outbox(LocalStorage(Path(location)), limits)
    try:
        return Outbox(open_storage(location), limits)
    except StorageConnectionError as error:
        raise OutboxError(f"Cannot open the outbox {location}: {error}") from error


def result_folder(location: str, conn_id: str | None = None) -> ResultFolder:
    """The folder at a location.

    :param location: as :attr:`BackfillPlan.out` has it; what is no local folder is one of ``ObjectStoragePath``.
    :param conn_id: the connection that reaches the store; None for what the environment says.
    :raises PlanError: where it cannot be reached.
    """
    from airflow_provider_spark_datahub.backfill.plan import LOCAL, PlanError

    if location.startswith(LOCAL):
        return Path(location.removeprefix(LOCAL))
    from airflow.sdk import ObjectStoragePath

    try:
        if conn_id:
            BaseHook.get_connection(conn_id)  # a missing one would be taken for access without any keys
        path = ObjectStoragePath(location, conn_id=conn_id)
        path.exists()
    except (AirflowException, ImportError, OSError, ValueError) as error:
        raise PlanError(f"cannot reach {location} from here: {error}") from error
    return cast("ResultFolder", path)

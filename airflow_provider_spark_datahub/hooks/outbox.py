"""The outbox at a location: a folder, or an object store behind an Airflow connection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.hooks.object_storage import StorageConnectionError, open_storage

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxLimits


def open_outbox(location: str, limits: OutboxLimits | None = None) -> Outbox:
    """The outbox at a location.

    :param location: a path, or a URI that Airflow's ``ObjectStoragePath`` takes: ``s3://connection@bucket/prefix``.
    :raises OutboxError: the connection is missing or wrong, or what reaches the object store is not installed.
    """
    from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxError
    from airflow_provider_spark_datahub.delivery.outbox_storage import LocalStorage

    if "://" not in location:
        return Outbox(LocalStorage(Path(location)), limits)
    try:
        return Outbox(open_storage(location), limits)
    except StorageConnectionError as error:
        raise OutboxError(f"Cannot open the outbox {location}: {error}") from error

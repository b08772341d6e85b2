"""Outbox and result folders: on a disk, or in an object store behind an Airflow connection.

Tests: ``tests/hooks/test_object_store.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_spark_datahub.delivery.outbox import (
    LocalStorage,
    ObjectStorage,
    Outbox,
    OutboxError,
    OutboxLimits,
)
from airflow_provider_spark_datahub.foundation.files import FileAccess
from airflow_provider_spark_datahub.hooks.airflow_context import configuration
from airflow_provider_spark_datahub.hooks.airflow_services import connection_of

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_spark_datahub.backfill import ResultFolder


_UNOPENABLE = (AirflowException, ImportError, OSError, ValueError)
"""Errors of a store that cannot be opened: its connection is missing or wrong, or its client is not
installed.
"""


def open_store(uri: str, conn_id: str | None = None) -> ObjectStorage:
    """Return the object store below a URI. No request is sent yet.

    :param uri: of Airflow's ``ObjectStoragePath``: ``s3://bucket/prefix``,
        ``gs://connection@bucket/prefix``; or with Hadoop's scheme ``s3a``.
    :param conn_id: connection to the store; ``None`` for the connection in the URI, or the store's
        own defaults.
    :raises OSError: if the store cannot be opened.
    """
    try:
        return _storage(f"s3{uri[3:]}" if uri.startswith("s3a://") else uri, conn_id)
    except _UNOPENABLE as error:
        raise OSError(f"Cannot open {uri}: {error}") from error


def open_outbox(location: str, limits: OutboxLimits | None = None) -> Outbox:
    """Return the outbox at a location.

    :param location: a path, or a URI of Airflow's ``ObjectStoragePath``:
        ``gs://connection@bucket/prefix``.
    :raises OutboxError: if the store cannot be opened.
    """
    access = FileAccess.of(group=limits is not None and limits.group_access)
    try:
        storage = _storage(location) if "://" in location else LocalStorage(Path(location), access)
    except _UNOPENABLE as error:
        raise OutboxError(f"Cannot open the outbox {location}: {error}") from error
    return Outbox(storage, limits, configuration().events_location(), open_store)


def configured_outbox(location: str | None = None) -> Outbox:
    """Return the outbox of Airflow's configuration, or with its limits the one at another location.

    :raises OptionError: if the configuration is wrong.
    :raises OutboxError: if the store cannot be opened.
    """
    configured = configuration()
    return open_outbox(configured.outbox_location(location), configured.outbox_limits())


def s3_endpoint(uri: str) -> str | None:
    """Return the address of the S3 server that the connection in a URI names; ``None`` for
    Amazon's, and for GCS.

    :raises AirflowException: if there is no such connection.
    """
    named = urlsplit(uri).username
    extra = connection_of(named).extra_dejson if named else {}
    service = (extra.get("service_config") or {}).get("s3") or {}
    return service.get("endpoint_url") or extra.get("endpoint_url") or None


def result_folder(location: str, conn_id: str | None = None) -> ResultFolder:
    """Return the result folder of a backfill.

    :param location: :attr:`BackfillPlan.out`: a local folder, or a URI of Airflow's
        ``ObjectStoragePath``.
    :param conn_id: connection to the store; ``None`` to use the environment.
    :raises PlanError: if the folder cannot be reached.
    """
    from airflow_provider_spark_datahub import backfill

    if location.startswith(backfill.LOCAL):
        return Path(location.removeprefix(backfill.LOCAL))
    try:
        path = _object_path(location, conn_id)
        path.exists()
    except _UNOPENABLE as error:
        raise backfill.PlanError(f"cannot reach {location} from here: {error}") from error
    return cast("ResultFolder", path)


def _storage(uri: str, conn_id: str | None = None) -> ObjectStorage:
    path = _object_path(uri, conn_id)
    return ObjectStorage(path.fs, path.path, uri)


def _object_path(uri: str, conn_id: str | None) -> ObjectStoragePath:
    from airflow.sdk import ObjectStoragePath

    named = conn_id or urlsplit(uri).username
    if named:
        connection_of(
            named
        )  # fail here: without the connection, the store would be opened without any keys
    return ObjectStoragePath(uri, conn_id=conn_id)

"""The outbox at a location: a folder, or an object store behind an Airflow connection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxLimits


def open_outbox(location: str, limits: OutboxLimits | None = None) -> Outbox:
    """The outbox at a location.

    :param location: a path.
    """
    from airflow_provider_spark_datahub.delivery.outbox import Outbox
    from airflow_provider_spark_datahub.delivery.outbox_storage import LocalStorage

    return Outbox(LocalStorage(Path(location)), limits)

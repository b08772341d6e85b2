"""Delivery of proposals: the interface of every sink, deadlines, and files that survive a crash.

Other folders enter through this module, :mod:`.outbox` and :mod:`.sinks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.connection import ConnectionParts as ConnectionParts
    from airflow_provider_spark_datahub.delivery.deadline import (
        Deadline as Deadline,
        run_with_deadline as run_with_deadline,
        step_at_leisure as step_at_leisure,
        step_in_time as step_in_time,
        watched_disks as watched_disks,
    )
    from airflow_provider_spark_datahub.delivery.failure import OutageNotes as OutageNotes
    from airflow_provider_spark_datahub.delivery.sink import (
        CheckResult as CheckResult,
        CheckStatus as CheckStatus,
        Delivery as Delivery,
        OutboxItem as OutboxItem,
        RawEvent as RawEvent,
        Rejection as Rejection,
        Sink as Sink,
        SinkSettingsError as SinkSettingsError,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "connection": "ConnectionParts",
            "deadline": "Deadline run_with_deadline step_at_leisure step_in_time watched_disks",
            "failure": "OutageNotes",
            "sink": "CheckResult CheckStatus Delivery OutboxItem RawEvent Rejection Sink SinkSettingsError",
        },
    )

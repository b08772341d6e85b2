"""Durable queue of proposals that are not delivered yet (``docs/outbox.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox.drain import (
        Drain as Drain,
        DrainLimits as DrainLimits,
        deliver_in_order as deliver_in_order,
    )
    from airflow_provider_spark_datahub.delivery.outbox.entries import (
        Entry as Entry,
        Outbox as Outbox,
        OutboxLimits as OutboxLimits,
    )
    from airflow_provider_spark_datahub.delivery.outbox.format import (
        FORMAT as FORMAT,
        EntryFilter as EntryFilter,
        EntryFormatError as EntryFormatError,
        EntryName as EntryName,
        Folder as Folder,
        Manifest as Manifest,
    )
    from airflow_provider_spark_datahub.delivery.outbox.lease import (
        Lease as Lease,
        is_gone as is_gone,
        machine as machine,
        process_start as process_start,
    )
    from airflow_provider_spark_datahub.delivery.outbox.overflow import Overflow as Overflow
    from airflow_provider_spark_datahub.delivery.outbox.records import (
        AttemptRecord as AttemptRecord,
        OutboxRecords as OutboxRecords,
    )
    from airflow_provider_spark_datahub.delivery.outbox.storage import (
        LocalStorage as LocalStorage,
        ObjectStorage as ObjectStorage,
        OutboxError as OutboxError,
    )
    from airflow_provider_spark_datahub.delivery.outbox.task_runs import (
        EdgeRecord as EdgeRecord,
        EdgeRecords as EdgeRecords,
        ListenerFailures as ListenerFailures,
        outdated_edges as outdated_edges,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "drain": "Drain DrainLimits deliver_in_order",
            "entries": "Entry Outbox OutboxLimits",
            "format": "EntryFilter EntryFormatError EntryName FORMAT Folder Manifest",
            "lease": "Lease is_gone machine process_start",
            "overflow": "Overflow",
            "records": "AttemptRecord OutboxRecords",
            "storage": "LocalStorage ObjectStorage OutboxError",
            "task_runs": "EdgeRecord EdgeRecords ListenerFailures outdated_edges",
        },
    )

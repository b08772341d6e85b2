"""Durable queue of proposals that are not delivered yet (``docs/outbox.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from .drain import Drain, DrainLimits, deliver_in_order
    from .entries import Entry, Outbox, OutboxLimits
    from .format import FORMAT, EntryFilter, EntryFormatError, EntryName, Folder, Manifest
    from .lease import Lease, is_gone, machine, process_start
    from .overflow import Overflow
    from .records import AttemptRecord, OutboxRecords
    from .storage import LocalStorage, ObjectStorage, OutboxError
    from .task_runs import EdgeRecord, EdgeRecords, ListenerFailures, outdated_edges
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

"""Durable queue of proposals that are not delivered yet (``docs/outbox.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .drain import Drain, DrainLimits, deliver_in_order
    from .entries import AttemptRecord, Entry, Outbox, OutboxLimits, OutboxRecords
    from .format import FORMAT, EntryFilter, EntryFormatError, EntryName, Folder, Manifest
    from .lease import Lease
    from .processes import is_gone, machine, process_start
    from .receipts import EdgeRecord, EdgeRecords, Histories, ListenerFailures
    from .storage import LocalStorage, ObjectStorage, OutboxError
else:
    __getattr__, __dir__ = lazy_exports(__name__)

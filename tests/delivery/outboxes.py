"""Outboxes in folders, entries in them, and sinks that remember what they got."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline, Sink
from airflow_provider_spark_datahub.delivery.outbox import (
    Entry,
    LocalStorage,
    Manifest,
    Outbox,
    OutboxLimits,
)
from airflow_provider_spark_datahub.delivery.outbox.format import StoredObject
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from tests.delivery.samples import upserts

DAG, RUN, TASK = "shop", "scheduled__2026-01-01T00:00:00+00:00", "group.build"


def outbox_at(
    root: Path, limits: OutboxLimits | None = None, events_folder: Path | None = None
) -> Outbox:
    return Outbox(LocalStorage(root), limits, events_folder)


def key(
    try_number: int = 1, task_id: str = TASK, map_index: int = -1, run_id: str = RUN
) -> AttemptKey:
    return AttemptKey(DAG, run_id, task_id, map_index, try_number)


def put(
    outbox: Outbox,
    of: AttemptKey | None = None,
    proposals: Sequence[Proposal] | int = 3,
    connection: str = "datahub",
) -> Entry:
    """Write an entry of so many proposals, or of these. Each is of another millisecond, which
    orders runs.
    """
    content = upserts(proposals) if isinstance(proposals, int) else proposals
    entry = outbox.put(of or key(), content, spark_succeeded=True, connection_id=connection)
    time.sleep(0.0011)
    return entry


def proposals_in(entry: Entry) -> list[Proposal]:
    return [*entry.items()]


def receipts_in(outbox: Outbox) -> list[Manifest]:
    return [
        StoredObject.read(outbox.storage.read(name)).whole()
        for name in outbox.storage.stored("receipts")
    ]


def files(root: Path) -> list[Path]:
    """Return all files except those that no delivery needs: kept proposals, histories and records
    of jobs.
    """
    aside = {"delivered", "history", "jobs"}
    return sorted(path for path in root.rglob("*") if path.is_file() and not aside & {*path.parts})


class Recording(Sink):
    """Sink that accepts all items, except what it is given to refuse.

    :param refuses: whether the sink stops at an item.
    :param rejects: why it rejects each item, if it does.
    """

    name = "recording"

    def __init__(self, refuses: Callable[[Any], bool] = lambda _: False, rejects: str = "") -> None:
        self.arrived: list[Any] = []
        self.refuses = refuses
        self.calls = 0
        self._rejects = rejects

    @property
    def names(self) -> list[str]:
        """Return the names of the accepted proposals."""
        return [proposal.aspect["name"] for proposal in self.arrived]

    def describe(self) -> str:
        return "a list"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (the sink's signature)
        self.calls += 1
        for item in record.pending():
            if self.refuses(item[1]):
                record.stop("it is full")
                return
            if self._rejects:
                record.reject(item, self._rejects)
                continue
            self.arrived.append(item[1])
            record.confirm([item], stored=True)


class MemoryStorage(OutboxStorage):
    """Objects in a dictionary, so that a test can damage and copy an outbox a thousand times."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = objects if objects is not None else {}

    def describe(self, name: str = "") -> str:
        return f"memory:{name}"

    def stored(self, folder: str) -> dict[str, int]:
        return {
            name: len(self.objects[name])
            for name in sorted(self.objects)
            if name.startswith(f"{folder}/")
        }

    def read(self, name: str, *, most: int = 2**26) -> bytes:  # noqa: ARG002 (as in the class)
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name]

    def write(
        self,
        name: str,
        chunks: Iterable[bytes],
        *,
        sync: bool = True,  # noqa: ARG002 (as in the class)
    ) -> None:
        self.objects[name] = b"".join(chunks)

    def remove(self, name: str) -> None:
        self.objects.pop(name, None)

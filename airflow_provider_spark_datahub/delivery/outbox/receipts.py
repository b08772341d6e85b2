"""Receipts: what was delivered, kept for a while for people, and so that nothing older is delivered over it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider_spark_datahub.delivery.outbox.format import (
    RECEIPTS,
    EntryFormatError,
    EntryName,
    Manifest,
    json_line,
    read_manifest,
)
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage

_NAME = re.compile(rf"{RECEIPTS}/([^/]+)/(\d+)-try-(\d+)-([0-9a-f]{{8}})-([0-9a-f]{{8}})-([0-9a-f]{{20}})\.json")


@dataclass(frozen=True, slots=True)
class _ReceiptName:
    name: str
    created_ms: int
    try_number: int
    connection: str
    random: str
    instance_hash: str


class Receipts:
    """The receipts of an outbox, in one folder per task, over its runs.

    :param storage: of the outbox.
    """

    def __init__(self, storage: OutboxStorage) -> None:
        self._storage = storage

    def keep(self, entry: EntryName, manifest: Manifest, *, stored: bool | None) -> None:
        """Write the receipt of an entry of which nothing is pending.

        :param stored: as in :class:`~airflow_provider_spark_datahub.delivery.sink.Delivery`.
        :raises OSError: the outbox refuses.
        """
        self._storage.write(_name(entry, manifest), [json_line(manifest.receipt(now_ms(), stored=stored).to_obj())])

    def about(self, entry: EntryName, manifest: Manifest) -> tuple[Manifest | None, set[str]]:
        """The entry's own receipt, where it was settled before; and hashes of the aspects that later tries and runs
        of the task delivered to the same connection.

        :raises OSError: the outbox cannot be read.
        """
        own, newer = None, set[str]()
        for receipt in self._named(manifest.key.task):
            if receipt.name == _name(entry, manifest):
                own = self._read(receipt.name)
            elif receipt.connection == entry.connection and _is_newer(receipt, entry):
                found = self._read(receipt.name)
                newer.update(found.upserts if found else ())
        return own, newer

    def all(self) -> Iterator[Manifest]:
        """Every receipt, task by task.

        :raises OSError: the outbox cannot be read.
        """
        for stored in self._storage.stored(RECEIPTS):
            receipt = self._read(stored.name)
            if receipt is not None:
                yield receipt

    def expire(self, before_ms: float, task: str | None = None) -> int:
        """Remove the receipts of entries that were made before a moment, in ms since the epoch.

        :param task: of this task's folder only.
        :returns: how many were removed.
        :raises OSError: the outbox refuses.
        """
        stored = self._storage.stored(f"{RECEIPTS}/{task}" if task else RECEIPTS)
        old = [one.name for one in stored if (match := _NAME.fullmatch(one.name)) and int(match[2]) < before_ms]
        for name in old:
            self._storage.remove(name)
        return len(old)

    def _named(self, task: str) -> Iterator[_ReceiptName]:
        for stored in self._storage.stored(f"{RECEIPTS}/{task}"):
            match = _NAME.fullmatch(stored.name)
            if match:
                yield _ReceiptName(stored.name, int(match[2]), int(match[3]), match[4], match[5], match[6])

    def _read(self, name: str) -> Manifest | None:
        """A receipt that is not there or cannot be read says nothing: what it would have spared is sent again."""
        try:
            return read_manifest(self._storage.read(name))
        except (FileNotFoundError, EntryFormatError):
            return None


def _name(entry: EntryName, manifest: Manifest) -> str:
    key = manifest.key
    instance_hash = entry.instance.rpartition("-")[2]
    parts = f"{entry.created_ms:013d}-try-{entry.try_number:05d}-{entry.connection}-{entry.random}-{instance_hash}"
    return f"{RECEIPTS}/{key.task}/{parts}.json"


def _is_newer(receipt: _ReceiptName, entry: EntryName) -> bool:
    if receipt.instance_hash == entry.instance.rpartition("-")[2]:
        return receipt.try_number > entry.try_number
    return receipt.created_ms > entry.created_ms


def now_ms() -> int:
    """The wall clock, in ms since the epoch."""
    return round(time.time() * 1000)

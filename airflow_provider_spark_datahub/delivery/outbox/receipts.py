"""Receipts of settled entries: what was delivered, so that nothing older overwrites it (docs/outbox.md)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from airflow_provider_spark_datahub.delivery.outbox.format import RECEIPTS, EntryFormatError, EntryName, Manifest
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.files import NotRegularFileError

log = logging.getLogger(__name__)

DELIVERED = "delivered"
"""Folder of the proposals that were delivered."""

_RECEIPT_NAME = re.compile(
    rf"{RECEIPTS}/([^/]+)/([0-9]{{13,15}})-try-([0-9]{{5,10}})-([0-9a-f]{{8}})-([0-9a-f]{{8}})-([0-9a-f]{{20}})(?:\.part)?\.json"
)


@dataclass(frozen=True, slots=True)
class _ReceiptName:
    name: str
    created_ms: int
    try_number: int
    connection: str
    instance_hash: str

    def is_newer_than(self, entry: EntryName, storage: OutboxStorage) -> bool:
        """Return whether it is of a later attempt or run.

        Attempts are ordered by their numbers, runs by time. A host whose clock is ahead makes entries from the future;
        but nothing was made after the storage wrote it, and nothing that is still to come has been delivered.
        """
        if self.instance_hash == _instance_hash(entry):
            return self.try_number > entry.try_number
        made_ms = _made_ms(storage, self.created_ms, self.name)
        return _made_ms(storage, entry.created_ms, entry.path) < made_ms <= storage.now_ms() + _ROUNDING_MS


_ROUNDING_MS = 1_000


def _made_ms(storage: OutboxStorage, created_ms: int, name: str) -> int:
    written_ms = storage.modified_ms(name)
    return created_ms if written_ms is None else min(created_ms, written_ms)


class Receipts:
    """Receipts of settled entries, in one folder per task, over its runs.

    They are kept for a while, for people, and so that no older entry overwrites what was delivered.
    """

    def __init__(self, storage: OutboxStorage) -> None:
        self._storage = storage

    def write(self, entry: EntryName, manifest: Manifest, *, stored: bool | None, sync: bool = True) -> str:
        """Write the receipt of an entry, and return its name."""
        name = receipt_name(entry, manifest)
        self._storage.write(name, [manifest.receipt(self._storage.now_ms(), stored=stored).to_line()], sync=sync)
        return name

    def write_part(self, entry: EntryName, manifest: Manifest) -> None:
        """Write what was delivered of an entry that keeps pending items, so that no older entry overwrites it.

        It goes with the entry when a receipt replaces that.
        """
        kept = replace(manifest.receipt(self._storage.now_ms(), stored=None), pending=manifest.pending)
        self._storage.write(_part_name(entry, manifest), [kept.to_line()])

    def remove_part(self, entry: EntryName, manifest: Manifest) -> None:
        """Remove the result of :meth:`write_part`, if there is one."""
        self._storage.remove(_part_name(entry, manifest))

    def find(self, entry: EntryName, manifest: Manifest) -> tuple[Manifest | None, set[str]]:
        """Return the receipt of an entry that was settled before, and what newer receipts say was delivered.

        :returns: the entry's own receipt, if there is one; and hashes of the aspects that later attempts and runs of
            the task delivered to the same connection.
        """
        own, newer = None, set[str]()
        for receipt in self._names(manifest.key.task):
            if receipt.name == receipt_name(entry, manifest):
                own = self._read(receipt.name)
            elif receipt.connection == entry.connection and receipt.is_newer_than(entry, self._storage):
                later = self._read(receipt.name)
                newer.update(later.upserts if later else ())
        return own, newer

    def expire(self, before_ms: float, oldest_ms: Callable[[], float], task: str | None = None) -> int:
        """Remove the receipts of entries that were made before two moments, of one or all tasks; return their number.

        The proposals that are kept beside them go with them.

        :param oldest_ms: returns the second moment. Called only if there are receipts from before the first.
        """
        old = [receipt for receipt in self._names(task) if receipt.created_ms < before_ms]
        if not old:
            return 0
        before_ms = min(before_ms, oldest_ms())
        expired = [receipt.name for receipt in old if receipt.created_ms < before_ms]
        for name in expired:
            self._storage.remove(name)
        for name in self._storage.names(f"{DELIVERED}/{task}" if task else DELIVERED):
            created_ms = name.rpartition("/")[2].partition("-")[0]
            if created_ms.isdecimal() and int(created_ms) < before_ms:
                self._storage.remove(name)
        return len(expired)

    def _names(self, task: str | None) -> Iterator[_ReceiptName]:
        for name in self._storage.names(f"{RECEIPTS}/{task}" if task else RECEIPTS):
            match = _RECEIPT_NAME.fullmatch(name)
            if match:
                yield _ReceiptName(name, int(match[2]), int(match[3]), match[4], match[6])

    def _read(self, name: str) -> Manifest | None:
        """Return a receipt; ``None`` if it is gone or damaged, in which case some aspects are sent again."""
        try:
            return Manifest.read(self._storage.read(name))
        except FileNotFoundError:
            log.debug("Another process has just removed %s", name)
        except (EntryFormatError, NotRegularFileError) as error:
            log.warning("The receipt %s is ignored: %s.", self._storage.describe(name), error)
        return None


def receipt_name(entry: EntryName, manifest: Manifest, folder: str = RECEIPTS) -> str:
    """Return the name of an entry's receipt, or of its like in another folder."""
    stem = f"{entry.created_ms:013d}-try-{entry.try_number:05d}-{entry.connection}-{entry.random}"
    return f"{folder}/{manifest.key.task}/{stem}-{_instance_hash(entry)}.json"


def _part_name(entry: EntryName, manifest: Manifest) -> str:
    return f"{receipt_name(entry, manifest).removesuffix('.json')}.part.json"


def _instance_hash(entry: EntryName) -> str:
    return entry.instance.rpartition("-")[2]

"""Records of attempts in an outbox: pending, quarantined and delivered proposals, for the pages that show lineage.

Delivered proposals are kept beside their receipt, compressed, for as long as the receipt. So lineage can be shown while
DataHub is down. A failure to keep them is logged and affects nothing else.
"""

from __future__ import annotations

import gzip
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.outbox.entries import Outbox
from airflow_provider_spark_datahub.delivery.outbox.format import (
    EntryFormatError,
    EntryName,
    Folder,
    Manifest,
)

log = logging.getLogger(__name__)

_LARGEST_RECORD = 64 * 1024 * 1024
"""Bytes of a decompressed record; a larger one is not shown."""
_FEW_KEYS = 8
_QUARANTINED_NAME = re.compile(rf"{Folder.QUARANTINED}/([^/]+)/(try-[0-9]{{5,10}}-([0-9]{{13,15}})-.*)\.jsonl")
_DELIVERED_NAME = re.compile(rf"{Folder.DELIVERED}/([^/]+)/([0-9]{{13,15}})-.*-([0-9a-f]{{20}})-[0-9]+\.jsonl\.gz")


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Lineage of one attempt in the outbox, for one connection, in one state.

    :param state: ``unfinished``, ``pending``, ``quarantined`` or ``delivered``.
    :param proposals: that the record contains; empty for raw events and unfinished attempts.
    :param count: the number of items in this state.
    :param reasons: why items were quarantined, each once.
    """

    key: AttemptKey
    connection: str
    state: str
    created_ms: int
    count: int
    proposals: tuple[Proposal, ...] = field(default=(), repr=False)
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    """Object of the outbox that may be a record."""

    created_ms: int
    path: str
    entry: EntryName | None = None


class OutboxRecords:
    """Records of an outbox. Nothing is changed; objects that are damaged, or gone by now, are left out.

    Methods raise OSError if the outbox cannot be listed.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def of(self, keys: Iterable[AttemptKey]) -> list[AttemptRecord]:
        """Return the records of task instances, oldest first; try numbers are ignored."""
        instances = {key.instance: key for key in keys}
        tasks = {key.task for key in instances.values()}
        hashes = {instance.rpartition("-")[2] for instance in instances}
        few = len(instances) <= _FEW_KEYS
        found = self._found(
            [f"{Folder.PENDING}/{instance}" for instance in instances] if few else [Folder.PENDING],
            [f"{Folder.QUARANTINED}/{instance}" for instance in instances] if few else [Folder.QUARANTINED],
            [f"{Folder.DELIVERED}/{task}" for task in tasks] if few else [Folder.DELIVERED],
        )
        wanted = [
            stored
            for stored in found
            if stored.path.split("/")[1] in instances or _instance_hash(stored.path) in hashes
        ]
        records = (self._read(stored) for stored in sorted(wanted, key=lambda stored: (stored.created_ms, stored.path)))
        return [record for record in records if record is not None]

    def newest(
        self, most: int | None, dag_ids: set[str] | None = None, *, undelivered: bool = False
    ) -> list[AttemptRecord]:
        """Return the newest records, newest first, without their proposals.

        :param most: ``None`` for all.
        :param dag_ids: only of these DAGs; ``None`` for all.
        :param undelivered: only pending, unfinished and quarantined ones.
        """
        records: list[AttemptRecord] = []
        found = self._found([Folder.PENDING], [Folder.QUARANTINED], [] if undelivered else [Folder.DELIVERED])
        for stored in sorted(found, key=lambda stored: -stored.created_ms):
            record = self._read(stored, brief=True)
            if record is not None and (dag_ids is None or record.key.dag_id in dag_ids):
                records.append(replace(record, proposals=()))
            if len(records) == most:
                break
        return records

    def _found(self, pending: Iterable[str], quarantined: Iterable[str], delivered: Iterable[str]) -> Iterator[_Found]:
        stored = self._outbox.storage.stored
        for folder in pending:
            for path in stored(folder):
                name = EntryName.parse(path)
                if name is not None:
                    yield _Found(name.created_ms, path, name)
        for folder in quarantined:
            for path in stored(folder):
                match = _QUARANTINED_NAME.fullmatch(path)
                if match:
                    yield _Found(int(match[3]), path)
        for folder in delivered:
            for path in stored(folder):
                match = _DELIVERED_NAME.fullmatch(path)
                if match:
                    yield _Found(int(match[2]), path)

    def _read(self, one: _Found, *, brief: bool = False) -> AttemptRecord | None:
        """Return a record; ``None`` if it cannot be read.

        :param brief: leave the proposals out if their number is known without them.
        """
        try:
            if brief and one.entry is not None:
                manifest = Manifest.read_beginning(*self._outbox.storage.first_line(one.path))
                return replace(_record(manifest, manifest.state, ()), count=manifest.pending)
            content = self._outbox.read(one.path)
            if one.path.endswith(".gz"):
                content = _decompressed(content)
            if one.path.startswith(Folder.QUARANTINED):
                manifest, rejected = Manifest.read_quarantined(content)
                reasons = tuple(dict.fromkeys(reason for reason, _ in rejected))
                return _record(manifest, "quarantined", [item for _, item in rejected], reasons)
            manifest, items = Manifest.read_entry(content)
        except (EntryFormatError, OSError, EOFError, ValueError, zlib.error) as error:
            log.debug("%s is not shown: %s", self._outbox.storage.describe(one.path), error)
            return None
        return _record(manifest, manifest.state, items)


def _record(manifest: Manifest, state: str, items: Sequence[object], reasons: tuple[str, ...] = ()) -> AttemptRecord:
    proposals = tuple(item for item in items if isinstance(item, Proposal))
    key, created_ms = manifest.key, manifest.created_ms
    return AttemptRecord(key, manifest.connection_id, state, created_ms, len(items), proposals, reasons)


def _instance_hash(path: str) -> str | None:
    match = _DELIVERED_NAME.fullmatch(path)
    return match[3] if match else None


def _decompressed(content: bytes) -> bytes:
    size = int.from_bytes(content[-4:], "little")
    if size > _LARGEST_RECORD:
        raise ValueError(f"{size} bytes")
    return gzip.decompress(content)

"""Outbox: durable queue of the items that task attempts deliver, from before the first request
until the answer.

``docs/outbox.md`` describes its format, its states and its guarantees on each kind of storage. An
entry holds the items of one attempt for one connection. Rejected items go to the quarantine; a
receipt replaces an entry without items.

Tests: ``tests/delivery/test_outbox.py``.
"""

from __future__ import annotations

import dataclasses
import errno
import gzip
import hashlib
import logging
import math
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.format import (
    EntryFormatError,
    EntryName,
    Folder,
    Manifest,
    Naming,
    OtherVersionError,
    StoredObject,
    seal,
)
from airflow_provider_spark_datahub.delivery.outbox.receipts import JobRecords, Receipts
from airflow_provider_spark_datahub.delivery.outbox.storage import (
    ObjectStorage,
    OutboxError,
    OutboxStorage,
    storage_errors,
)
from airflow_provider_spark_datahub.delivery.sink import Delivery
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.files import TooLargeFileError, UnreadFileError
from airflow_provider_spark_datahub.foundation.text import counted

log = logging.getLogger(__name__)

_DAY_SECONDS = 86_400.0
_RESERVE_BYTES, _CONVERTED_RESERVE_BYTES = 1024 * 1024, 256 * 1024
"""Bytes of a disk that stay free for drains, which write leases and receipts before they free
anything: beside a new object, and beside an entry that gets its proposals, which drains convert
from the events of killed tasks.
"""
_MEASURED_SECONDS, _FULL_SECONDS = 60.0, 1.0
"""Age after which the size of the outbox is measured again; the second if there seems to be no
room.
"""
_LARGEST_RECORD = 64 * 1024 * 1024
"""Bytes of a decompressed record; a larger one is not shown."""
_FEW_KEYS = 8


def _no_store(uri: str) -> ObjectStorage:
    raise OutboxError(f"{uri} cannot be opened by the program that opened this outbox")


Settled = tuple[str, Callable[[], None]]
"""Name of a receipt that is not synced yet, and a function that removes its entry."""


class OutboxLimits(msgspec.Struct, frozen=True):
    """Limits of an outbox.

    :param max_bytes: size of entries and the quarantine together. Receipts, and delivered proposals
        that are kept beside them, may take half as much in addition.
    :param max_age: seconds; an older entry goes to the quarantine if its delivery fails once more.
    :param receipts: seconds for which a receipt is kept.
    :param group_access: whether users of the same group may read and write it, if it is in a
        folder.
    """

    max_bytes: int = 1024**3
    max_age: float = 30 * _DAY_SECONDS
    receipts: float = 7 * _DAY_SECONDS
    group_access: bool = False


@dataclass(frozen=True)
class Entry:
    """Items of one attempt for one connection.

    Methods that change it raise OutboxError if the storage refuses.
    """

    outbox: Outbox = field(repr=False, compare=False)
    name: EntryName
    manifest: Manifest = field(hash=False)
    _stored: StoredObject | None = field(default=None, repr=False, compare=False)
    """All of it, if it was read or written, and not the manifest alone."""
    _items: tuple[Proposal, ...] | None = field(default=None, repr=False, compare=False)
    """Its items, if they were written."""

    def __str__(self) -> str:
        return self.outbox.storage.describe(self.name.path)

    @property
    def age(self) -> float:
        """Seconds since the entry was made."""
        return max(0.0, (self.outbox.storage.now_ms() - self.name.created_ms) / 1000)

    def is_as(self, other: Entry) -> bool:
        """Return whether the other is the same entry, and holds the same items."""
        return self.name == other.name and self.manifest.progress == other.manifest.progress

    def later_attempt_ms(self) -> int | None:
        """Return when the first entry of a later attempt was made, in ms since the epoch; ``None``
        without any.
        """
        pending = [
            name
            for name in self.outbox.names(self.name.instance)
            if name.try_number > self.name.try_number
        ]
        settled = self.outbox.receipts.later_attempts_ms(self.name, self.manifest)
        return min([*settled, *(name.created_ms for name in pending)], default=None)

    def items(self) -> tuple[Proposal, ...]:
        """Return the entry's items, in order.

        :raises EntryFormatError: if it is damaged.
        :raises OutboxError: if another process changed it since it was listed.
        :raises OSError: if it is gone, or cannot be read at all.
        """
        return self._content().items() if self._items is None else self._items

    def finish(
        self, items: Sequence[Proposal], *, spark_succeeded: bool, failure: str | None = None
    ) -> Entry:
        """Write the items into the unfinished entry, and return the entry. Items are revised as in
        :meth:`Outbox.put`.

        :param failure: how Spark failed, if that is known.
        :raises OutboxError: if the outbox is full; the entry is unchanged.
        """
        jobs, before = self.outbox.jobs, self.manifest
        revision = jobs.revise(before.key, before.connection_id, items)
        revised = tuple(revision.proposals)
        manifest = replace(
            before.holding(revised), spark_succeeded=spark_succeeded, failure=failure
        )
        entry = self._rewrite("finished", manifest, revised, reserve=_CONVERTED_RESERVE_BYTES)
        jobs.commit(revision)
        return entry

    def update(self, **fields: Any) -> Entry:
        """Change fields of the manifest durably, and return the entry.

        :raises EntryFormatError: if the entry is damaged.
        """
        return self._rewrite("updated", replace(self.manifest, **fields))

    def settle(
        self,
        delivery: Delivery,
        sent: Sequence[Proposal],
        superseded: int = 0,
        batch: list[Settled] | None = None,
    ) -> Entry | None:
        """Record the delivery of the entry's items.

        Rejected items go to the quarantine, and pending ones stay. If none are pending, a receipt
        replaces the entry. A crash on the way leaves old objects beside new ones.

        :param delivery: the result of delivering ``sent``.
        :param superseded: how many of the entry's items were left out of ``sent`` for good.
        :param batch: gets the entry, whose receipt must be synced before it is removed.
        :returns: the entry as it is now; ``None`` if none of its items are pending.
        :raises ValueError: if the numbers do not account for each item of the entry.
        """
        accounted = delivery.delivered + len(delivery.rejected) + len(delivery.pending)
        if accounted != len(sent) or accounted + superseded != self.manifest.pending:
            raise ValueError(
                f"a delivery of {accounted} and {superseded} superseded proposals cannot settle {self}: "
                f"{len(sent)} were sent, {self.manifest.pending} were pending"
            )
        manifest = self._after(delivery, sent, superseded)
        receipt = manifest.receipt(self.outbox.storage.now_ms(), stored=delivery.stored)
        self._keep_delivered(delivery, sent, receipt)
        with self._storage_errors():
            if delivery.rejected:
                self._quarantine(
                    [(rejection.reason, rejection.item) for rejection in delivery.rejected],
                    manifest,
                )
            if not delivery.pending:
                self._replace_by(receipt, batch)
                return None
            if manifest.upserts:
                # No older entry overwrites the delivered items then. The receipt of the whole entry
                # replaces this part.
                part = replace(receipt, stored=None, pending=manifest.pending)
                self.outbox.storage.write(self._part, [seal(part)])
        return self._left(manifest, delivery.pending)

    def _replace_by(self, receipt: Manifest, batch: list[Settled] | None) -> None:
        """Write the receipt, and remove the entry: now, or when the receipts of the batch are
        synced.
        """
        name = self.name.receipt(receipt.key.task)
        self.outbox.storage.write(name, [seal(receipt)], sync=batch is None)
        if batch is None:
            self._remove()
        else:
            batch.append((name, self._remove))
        log.debug("Entry settled, %s superseded: %s", counted(receipt.superseded, "item"), self)

    def _left(self, manifest: Manifest, pending: tuple[Proposal, ...]) -> Entry:
        """Write the items that stay, or why all of them do, and return the entry."""
        if replace(manifest, problem=self.manifest.problem) != self.manifest:
            return self._rewrite("settled in part", manifest, pending)
        if manifest != self.manifest and not (
            self.outbox.deadline and self.outbox.deadline.expired
        ):
            with suppress(OutboxError, EntryFormatError):  # only people read the reason
                return self._rewrite("left", manifest)
        return self

    def quarantine(self, reason: str) -> None:
        """Move all pending items to the quarantine.

        :raises EntryFormatError: if the entry is damaged.
        """
        items = self.items()
        with self._storage_errors():
            self._quarantine([(reason, item) for item in items], self.manifest)
            self.outbox.storage.remove(self.name.path)

    def discard(self) -> None:
        """Remove the entry, since another one or a receipt makes it redundant."""
        self._remove()
        log.debug("Entry discarded: %s", self)

    def _keep_delivered(
        self, delivery: Delivery, sent: Sequence[Proposal], manifest: Manifest
    ) -> None:
        """Keep the delivered proposals for the pages that show lineage; a failure is only logged."""
        left = {
            id(item)
            for item in (*delivery.pending, *(rejection.item for rejection in delivery.rejected))
        }
        items = [item for item in sent if id(item) not in left] if left else sent
        if not items:
            return
        kept = replace(manifest, pending=len(items))
        name = self.name.receipt(
            manifest.key.task, Folder.DELIVERED, f"-{manifest.delivered}.jsonl.gz"
        )
        if self._stored is not None and len(items) == self.manifest.pending:
            content = self._stored._replace(manifest=kept)
        else:
            content = StoredObject.of(kept, items)
        try:
            packed = gzip.compress(b"".join(content.chunks()), 1, mtime=0)
            self.outbox.write_copy(name, packed)
        except OSError as error:
            level = (
                logging.DEBUG if self.outbox.copies_failed else logging.WARNING
            )  # a full disk fails for each entry
            self.outbox.copies_failed = True
            text = "Could not keep the delivered proposals of %s for the lineage page: %s."
            log.log(level, text, self, error.strerror or error)

    def _after(self, delivery: Delivery, sent: Sequence[Proposal], superseded: int) -> Manifest:
        """Return the manifest after a delivery."""
        before, rejected = self.manifest, [rejection.item for rejection in delivery.rejected]
        undelivered = {"", *Manifest.upserts_of((*delivery.pending, *rejected))}
        delivered = [digits for digits in Manifest.upserts_of(sent) if digits not in undelivered]
        return replace(
            before,
            pending=len(delivery.pending),
            delivered=before.delivered + delivery.delivered,
            rejected=before.rejected + len(delivery.rejected),
            superseded=before.superseded + superseded,
            problem=delivery.problem if delivery.pending else None,
            upserts=tuple(dict.fromkeys((*before.upserts, *delivered))),
        )

    def _content(self) -> StoredObject:
        stored = self._stored or StoredObject.read(self.outbox.read(self.name.path))
        self.name.check(stored.whole())
        if stored.manifest.progress != self.manifest.progress:
            raise OutboxError(f"The outbox's entry {self} was changed by another process.")
        return stored

    def _rewrite(
        self,
        step: str,
        manifest: Manifest,
        items: tuple[Proposal, ...] | None = None,
        *,
        reserve: int | None = None,
    ) -> Entry:
        """Write the entry anew (:meth:`Outbox.write`). :param items: ``None``: those that it has."""
        with self._storage_errors():
            stored = (
                self._content()._replace(manifest=manifest)
                if items is None
                else StoredObject.of(manifest, items)
            )
            # Without new items, the next change looks again whether another process changed the
            # entry.
            kept = None if items is None else stored
            entry = dataclasses.replace(self, manifest=manifest, _stored=kept, _items=items)
            self.outbox.write(step, entry, stored, reserve=reserve)
        return entry

    def _quarantine(self, rejected: list[tuple[str, Proposal]], manifest: Manifest) -> None:
        content = b"".join(replace(manifest, pending=0, redo=None).quarantine_lines(rejected))
        # Named by content: settling again after a crash writes the same object.
        digest = hashlib.sha256(
            b"".join(Manifest(manifest.key, "", 0).quarantine_lines(rejected))
        ).hexdigest()[:12]
        name = f"{Folder.QUARANTINED}/{self.name.instance}/{self.name.stem}-{digest}.jsonl"
        self.outbox.storage.write(name, [content])
        log.debug(
            "%s of %s quarantined, %d bytes in %s",
            counted(len(rejected), "item"),
            self,
            len(content),
            name,
        )

    def _remove(self) -> None:
        with self._storage_errors():
            self.outbox.storage.remove(self.name.path)
            if self.manifest.delivered:  # it was delivered in part before
                self.outbox.storage.remove(self._part)

    @property
    def _part(self) -> str:
        return self.name.receipt(self.manifest.key.task, suffix=Naming.PART_SUFFIX)

    def _storage_errors(self) -> AbstractContextManager[None]:
        return storage_errors("change the outbox's entry {}", self)


class _QuarantinedEntry(msgspec.Struct, frozen=True):
    """Items that one entry lost to the quarantine at one time.

    :param name: of the object in the quarantine.
    :param rejected: reasons and items.
    """

    name: str
    manifest: Manifest
    rejected: tuple[tuple[str, Proposal], ...]

    @property
    def reasons(self) -> list[str]:
        """The reasons, each once."""
        return list(dict.fromkeys(reason for reason, _ in self.rejected))


class Outbox:
    """Durable queue of entries that are not delivered yet. Methods raise OSError if the storage
    refuses.

    :param events_folder: folder of the event files on this machine, if it is known.
    :param open_store: opens the object store at a URI, where the events of unfinished entries may
        be.
    :ivar copies_failed: whether a copy of delivered proposals could not be kept; one warning is
        enough.
    """

    def __init__(
        self,
        storage: OutboxStorage,
        limits: OutboxLimits | None = None,
        events_folder: Path | None = None,
        open_store: Callable[[str], ObjectStorage] = _no_store,
    ) -> None:
        self.storage = storage
        self.open_store = open_store
        self.limits = limits or OutboxLimits()
        self.receipts = Receipts(storage)
        self.jobs = JobRecords(storage)
        self.events_folder = events_folder
        self.copies_failed = False
        self._size = 0
        """Bytes that the last measurement found, and that were written since."""
        self._measured = -math.inf
        """Time of the last measurement, by the monotonic clock."""

    def __str__(self) -> str:
        return self.storage.describe()

    @property
    def deadline(self) -> Deadline | None:
        """Deadline of the outbox's user: no step on its disks takes much longer
        (:func:`.step_in_time`).
        """
        return self.storage.deadline

    @deadline.setter
    def deadline(self, deadline: Deadline | None) -> None:
        self.storage.deadline = deadline

    def put(
        self,
        key: AttemptKey,
        items: Sequence[Proposal],
        *,
        spark_succeeded: bool,
        connection_id: str,
    ) -> Entry:
        """Write an entry durably: when this returns, a crash of the machine does not lose it.

        The items are compared with those of earlier runs of the task (:meth:`.JobRecords.revise`).

        A second ``put`` of the same attempt makes a second entry; the first stays until it is
        settled.

        :raises OutboxError: if the quota is reached, the disk is full, the folder is read-only ...
        """
        revision = self.jobs.revise(key, connection_id, items)
        revised = revision.proposals
        with storage_errors("write to the outbox {}", self):
            manifest = Manifest(
                key, connection_id, self._next_ms(key), spark_succeeded=spark_succeeded
            )
            entry = self._named(manifest.holding(revised))
            self.write(
                "written", entry, StoredObject.of(entry.manifest, revised), reserve=_RESERVE_BYTES
            )
        self.jobs.commit(revision)
        return entry

    def begin(
        self, key: AttemptKey, *, connection_id: str, events: str | None, redo: dict[str, Any]
    ) -> tuple[Entry, OutboxError | None]:
        """Write the entry of an attempt before its events exist: from now on, the outbox knows the
        attempt.

        If the storage refuses, a later :meth:`Entry.finish` tries again under the same name: a disk
        that hangs may make the entry after all.

        :param events: place where the events will be.
        :param redo: all other inputs of their conversion, as plain JSON.
        :returns: the entry, and why the storage refused it, if it did.
        """
        now_ms = self.storage.now_ms()
        entry = self._named(
            Manifest(key, connection_id, now_ms, state="unfinished", events=events, redo=redo)
        )
        try:
            with storage_errors("write to the outbox {}", self):
                entry = self._named(replace(entry.manifest, created_ms=self._next_ms(key)))
                self.write(
                    "begun", entry, StoredObject.of(entry.manifest, ()), reserve=_RESERVE_BYTES
                )
        except OutboxError as refusal:
            return entry, refusal
        return entry, None

    def _next_ms(self, key: AttemptKey) -> int:
        """Return the creation time of the attempt's next entry. If the clock was set back, the
        order stays.
        """
        earlier = [
            name.created_ms
            for name in self.names(key.instance)
            if name.try_number == key.try_number
        ]
        return max([self.storage.now_ms(), *(before_ms + 1 for before_ms in earlier)])

    def _named(self, manifest: Manifest) -> Entry:
        name = EntryName.of(
            manifest.key, manifest.connection_id, manifest.created_ms, secrets.token_hex(4)
        )
        return Entry(self, name, manifest)

    def write(
        self, step: str, entry: Entry, stored: StoredObject, *, reserve: int | None = None
    ) -> None:
        """Write what an entry holds, in place of an older state of the entry.

        :param step: name of the change, for the log.
        :param reserve: as in :meth:`_check_room`; ``None`` if the entry does not grow, so that no
            room is needed.
        """
        chunks = stored.chunks()
        size = sum(map(len, chunks))
        if reserve is not None:
            self._check_room(size, reserve=reserve)
        self.storage.write(entry.name.path, chunks)
        log.debug(
            "Entry %s, %s in %d bytes: %s",
            step,
            counted(entry.manifest.pending, "item"),
            size,
            entry,
        )

    def _check_room(self, size: int, *, reserve: int = _RESERVE_BYTES) -> None:
        """Check that there is room for ``size`` bytes more, and count them.

        :param reserve: bytes of the disk that must stay free.
        :raises OutboxError: if there is no room: pending entries are kept, new ones are refused.
        """
        is_near_end = self.storage.free_bytes() < size + reserve
        seems_full = is_near_end or self._size + size > self.limits.max_bytes
        if time.monotonic() - self._measured > (_FULL_SECONDS if seems_full else _MEASURED_SECONDS):
            self._measure_in_time(make_room=is_near_end)
        if self._size + size > self.limits.max_bytes:
            raise OutboxError(
                f"The outbox {self} is full: it holds {self._size} bytes, {size} more are above its limit of "
                f"{self.limits.max_bytes} (outbox_max_bytes). Deliver the pending entries (spark-datahub emit), remove "
                "quarantined ones, or raise the limit."
            )
        if is_near_end and (free := self.storage.free_bytes()) < size + reserve:
            raise OutboxError(
                f"The disk of the outbox {self} is nearly full: {free} bytes are left, {size} are asked for, and "
                f"drains need {reserve} of them."
            )
        self._size += size

    def write_copy(self, name: str, content: bytes) -> None:
        """Write delivered proposals for the pages that show lineage, if the disk has more room than
        drains need.
        """
        if self.storage.free_bytes() < len(content) + _RESERVE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.storage.write(name, [content], sync=False)

    def _measure_in_time(self, *, make_room: bool) -> None:
        """Measure the outbox if its storage answers in time: refusing lineage would be worse than a
        few bytes more.
        """
        try:
            if make_room:
                self.expire_receipts()
            self.measure()
        except OSError as error:
            log.debug("The outbox %s cannot be measured: %s", self, error)

    def measure(self) -> int:
        """Remove what killed writers left, and return the size of the outbox in bytes, without its
        receipts.

        :raises OSError: if it cannot be listed.
        """
        self._measured = time.monotonic()
        folders = (Folder.PENDING, Folder.QUARANTINED, Folder.CORRUPT)
        size = sum(sum(self.storage.stored(folder).values()) for folder in folders)
        self._size = size + self.storage.remove_drafts()
        return self._size

    def expire_receipts(self, task: str | None = None) -> int:
        """Remove the receipts that are too old; return their number.

        If all of them take more than half of ``outbox_max_bytes``, or the disk is nearly full,
        younger ones go, too. But receipts that are newer than an entry of their task stay: it must
        not overwrite what they name.

        :param task: :attr:`.AttemptKey.task`, for the receipts of one task only.
        """
        expired = self.receipts.expire(
            self.storage.now_ms() - self.limits.receipts * 1000, self._oldest_ms, task
        )
        if task is None:
            above_limit = self.receipts.size() - self.limits.max_bytes // 2
            # Twice the reserve, so that the next writes need not ask again.
            excess = max(above_limit, 2 * _RESERVE_BYTES - self.storage.free_bytes())
            if excess > 0:
                self.receipts.shrink(excess, self._oldest_ms)
        return expired

    def _oldest_ms(self) -> dict[str, int]:
        """Return when the oldest entry of each task was made that may be delivered one day."""
        names = [*self.storage.names(Folder.PENDING), *self.storage.names(Folder.QUARANTINED)]
        matches = (
            Naming.ENTRY.fullmatch(name) or Naming.QUARANTINED.fullmatch(name) for name in names
        )
        oldest_ms: dict[str, int] = {}
        for match in filter(None, matches):
            label, created_ms = Naming.label(match["instance"]), int(match["created_ms"])
            oldest_ms[label] = min(created_ms, oldest_ms.get(label, created_ms))
        return oldest_ms

    def names(self, instance: str | None = None) -> list[EntryName]:
        """Return the names of the entries: those of one task instance by attempt, or all of them by
        age.

        :param instance: :attr:`.AttemptKey.instance`.
        """
        objects = self.storage.names(f"{Folder.PENDING}/{instance}" if instance else Folder.PENDING)
        names = [name for path in objects if (name := EntryName.parse(path)) is not None]
        return (
            sorted(names) if instance else sorted(names, key=lambda name: (name.created_ms, name))
        )

    def entries(self, instance: str | None = None) -> Iterator[Entry]:
        """Read and yield the entries of :meth:`names`; those that cannot be read are moved to
        ``corrupt/`` and logged.

        Deliver the entries of one task instance in this order, and stop at the first that keeps
        pending items: DataHub keeps the aspect that arrives last.
        """
        for name in self.names(instance):
            entry = self.entry(name)
            if entry is not None:
                yield entry

    def entry(self, name: EntryName, *, whole: bool = False) -> Entry | None:
        """Return the entry of a name; ``None`` if it is gone, corrupt, or of another version of the
        format.

        :param whole: read its items, too, which :meth:`Entry.items` checks.
        """
        try:
            if not whole:
                return Entry(self, name, self._manifest(name, name.path))
            stored = StoredObject.read(self.read(name.path))
            name.check(stored.manifest)
            return Entry(self, name, stored.manifest, stored)
        except OtherVersionError as error:
            log.warning(
                "The outbox's entry %s is left alone: %s.", self.storage.describe(name.path), error
            )
        except (EntryFormatError, UnreadFileError) as error:
            self.set_aside(name.path, str(error), lambda aside: self._manifest(name, aside))
        except FileNotFoundError:
            pass  # another process has just settled it
        except OSError as error:
            problem = error.strerror or error
            log.warning(
                "The outbox's entry %s cannot be read: %s.",
                self.storage.describe(name.path),
                problem,
            )
        return None

    def read(self, name: str) -> bytes:
        """Return the content of an entry or of a part of the quarantine. Of a large one, check the
        length first.
        """
        try:
            return self.storage.read(name)
        except TooLargeFileError:
            StoredObject.read(*self.storage.first_line(name))
            # The limit may have been lowered since it was written.
            return self.storage.read(
                name, most=max(self.limits.max_bytes, OutboxLimits().max_bytes)
            )

    def _manifest(self, name: EntryName, path: str) -> Manifest:
        manifest = StoredObject.read(*self.storage.first_line(path)).manifest
        name.check(manifest)
        return manifest

    def quarantined(self) -> Iterator[_QuarantinedEntry]:
        """Yield the content of the quarantine. Objects that are damaged are moved to ``corrupt/``
        and logged.
        """
        for name in self.storage.names(Folder.QUARANTINED):
            try:
                stored = StoredObject.read(self.read(name))
                rejected = stored.rejected()
            except OtherVersionError as error:
                log.warning(
                    "%s in the quarantine is left alone: %s.", self.storage.describe(name), error
                )
            except (EntryFormatError, UnreadFileError) as error:
                self.set_aside(name, str(error))
            except OSError as error:
                log.warning(
                    "%s in the quarantine cannot be read: %s.", self.storage.describe(name), error
                )
            else:
                yield _QuarantinedEntry(name, stored.manifest, rejected)

    def requeue(self, quarantined: _QuarantinedEntry) -> Entry:
        """Make quarantined items pending again.

        The entry keeps its age, so it overwrites nothing that was delivered since. The quota is not
        checked, since quarantined items already count. A crash on the way leaves the items in both
        places.
        """
        old = quarantined.manifest
        items = [item for _, item in quarantined.rejected]
        counts = {"delivered": 0, "rejected": 0, "superseded": 0, "upserts": ()}
        entry = self._named(replace(old.holding(items), awaits_retry=False, **counts))
        self.write(
            f"requeued from {quarantined.name}", entry, StoredObject.of(entry.manifest, items)
        )
        self.storage.remove(quarantined.name)
        return entry

    def set_aside(
        self, name: str, reason: str, read: Callable[[str], object] | None = None
    ) -> None:
        """Move a damaged object to ``corrupt/``, write the reason beside it, and log it.

        :param read: reads the object again under its new name. If that succeeds, its task has just
            replaced it, and it is moved back.
        """
        path, aside = (
            self.storage.describe(name),
            name.replace(name.partition("/")[0], Folder.CORRUPT, 1),
        )
        stem = aside.removesuffix(".jsonl")
        try:
            self.storage.write(
                f"{stem}{Naming.REASON_SUFFIX}", [f"{reason}\n".encode("utf-8", "backslashreplace")]
            )
            self.storage.move(name, aside)
            with suppress(EntryFormatError, OSError):
                if read is not None and read(aside):
                    self.storage.move(aside, name)
                    self.storage.remove(f"{stem}{Naming.REASON_SUFFIX}")
                    return
        except OSError as error:
            log.warning(
                "The outbox's entry %s is corrupt (%s) and cannot be moved: %s.",
                path,
                reason,
                error,
            )
        else:
            log.warning(
                "The outbox's entry %s is corrupt (%s): moved to %s.",
                path,
                reason,
                self.storage.describe(stem),
            )


@dataclass(frozen=True)
class AttemptRecord:
    """Lineage of one attempt in the outbox, for one connection, in one state.

    :param state: ``unfinished``, ``pending``, ``quarantined`` or ``delivered``.
    :param proposals: empty for unfinished attempts.
    :param count: the number of items in this state.
    :param reasons: why items were quarantined, each once, or why the last delivery failed.
    :param failure: how the attempt's Spark failed; ``None`` if it did not, or that is not known.
    """

    key: AttemptKey
    connection: str
    state: str
    created_ms: int
    count: int
    proposals: tuple[Proposal, ...] = field(default=(), repr=False)
    reasons: tuple[str, ...] = ()
    failure: str | None = None


@dataclass(frozen=True)
class OutboxRecords:
    """Pending, quarantined and delivered proposals of an outbox, for the pages that show lineage.

    Delivered proposals are kept beside their receipt, compressed, for as long as the receipt, so
    that lineage can be shown while DataHub is down. Nothing is changed; objects that are damaged,
    or gone by now, are left out.

    Methods raise OSError if the outbox cannot be listed.
    """

    _outbox: Outbox

    def of(self, keys: Iterable[AttemptKey]) -> list[AttemptRecord]:
        """Return the records of task instances, oldest first; try numbers are ignored."""
        tasks = {key.instance: key.task for key in keys}
        folders: list[str] = [*_SHOWN]
        if len(tasks) <= _FEW_KEYS:
            folders = [
                f"{folder}/{instance}"
                for folder in (Folder.PENDING, Folder.QUARANTINED)
                for instance in tasks
            ]
            folders += [f"{Folder.DELIVERED}/{task}" for task in {*tasks.values()}]
        instances = {*tasks, *(instance.rpartition("-")[2] for instance in tasks)}
        found = sorted(
            (made_ms, path)
            for made_ms, instance, path in self._found(folders)
            if instance in instances
        )
        return [record for _, path in found if (record := self._read(path)) is not None]

    def newest(
        self, most: int | None, dag_ids: set[str] | None = None, *, undelivered: bool = False
    ) -> list[AttemptRecord]:
        """Return the newest records, newest first, without their proposals.

        :param most: ``None`` for all.
        :param dag_ids: only of these DAGs; ``None`` for all.
        :param undelivered: without delivered ones.
        """
        records: list[AttemptRecord] = []
        found = self._found(
            folder for folder in _SHOWN if not (undelivered and folder == Folder.DELIVERED)
        )
        for _, _, path in sorted(found, key=lambda stored: -stored[0]):
            record = self._read(path, brief=True)
            if record is not None and (dag_ids is None or record.key.dag_id in dag_ids):
                records.append(dataclasses.replace(record, proposals=()))
            if len(records) == most:
                break
        return records

    def settled(self) -> set[tuple[str, int, str]]:
        """Return the task instance, try number and connection of each receipt: a number between two
        hashes.
        """
        found = map(Naming.RECEIPT.fullmatch, self._outbox.storage.names(Folder.RECEIPTS))
        whole = (match for match in found if match and not match[0].endswith(Naming.PART_SUFFIX))
        return {(match[6], int(match[3]), match[4]) for match in whole}

    def _found(self, folders: Iterable[str]) -> Iterator[tuple[int, str, str]]:
        """Yield when each record was made, its task instance (of a delivered one, the hash alone),
        and its path.
        """
        for folder in folders:
            pattern = _SHOWN[Folder(folder.partition("/")[0])]
            for path in self._outbox.storage.names(folder):
                if match := pattern.fullmatch(path):
                    yield int(match["created_ms"]), match["instance"], path

    def _read(self, path: str, *, brief: bool = False) -> AttemptRecord | None:
        """Return a record; ``None`` if it cannot be read.

        :param brief: leave the proposals out if their number is known without them.
        """
        items: Sequence[tuple[str, Proposal]] = ()
        try:
            if brief and path.startswith(Folder.PENDING):
                manifest = StoredObject.read(*self._outbox.storage.first_line(path)).manifest
            else:
                content = self._outbox.read(path)
                stored = StoredObject.read(
                    _decompressed(content) if path.endswith(".gz") else content
                )
                manifest = stored.manifest
                items = (
                    stored.rejected()
                    if manifest.state == "quarantined"
                    else [("", item) for item in stored.items()]
                )
        except (EntryFormatError, OSError, EOFError, ValueError, zlib.error) as error:
            log.debug("%s is not shown: %s", self._outbox.storage.describe(path), error)
            return None
        proposals = tuple(item for _, item in items)
        reasons = tuple(
            dict.fromkeys(
                reason for reason in (*(why for why, _ in items), manifest.problem) if reason
            )
        )
        return AttemptRecord(
            manifest.key,
            manifest.connection_id,
            manifest.state,
            manifest.created_ms,
            len(items) or manifest.pending,
            proposals,
            reasons,
            manifest.failure,
        )


_SHOWN = {
    Folder.PENDING: Naming.ENTRY,
    Folder.QUARANTINED: Naming.QUARANTINED,
    Folder.DELIVERED: Naming.DELIVERED,
}


def _decompressed(content: bytes) -> bytes:
    size = int.from_bytes(content[-4:], "little")
    if size > _LARGEST_RECORD:
        raise ValueError(f"{size} bytes")
    return gzip.decompress(content)

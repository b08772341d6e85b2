"""The outbox: what a task try has to tell DataHub, durable from before the first send until it is acknowledged.

``docs/outbox.md`` describes its format, its states, and what is guaranteed on which storage.

The quarantine of an outbox: what is in it and why, and the way back.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.outbox.format import (
    CORRUPT,
    EVENTS_SUFFIX,
    PENDING,
    QUARANTINED,
    EntryFormatError,
    EntryName,
    Manifest,
    OtherVersionError,
    content_hash,
    entry_lines,
    quarantine_lines,
    read_entry,
    read_quarantined,
    upsert_hashes,
)
from airflow_provider_spark_datahub.delivery.outbox.receipts import Receipts, now_ms
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.delivery.sink import Delivery

log = logging.getLogger(__name__)

DAY_SECONDS = 86_400.0


class OutboxError(OSError):
    """The outbox cannot be written: says which object and why."""


class OutboxFullError(OutboxError):
    """The outbox has reached its quota: what is new is refused, and what waits is kept."""


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """What an outbox may hold.

    :param max_bytes: of entries, raw events and the quarantine together.
    :param max_age: seconds; an entry that is older goes to the quarantine where a delivery fails once more.
    :param receipts: seconds for which a receipt is kept.
    """

    max_bytes: int = 1024**3
    max_age: float = 30 * DAY_SECONDS
    receipts: float = 7 * DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Entry:
    """What one try has to tell one connection.

    :param outbox: that holds it.
    """

    outbox: Outbox = field(repr=False, compare=False)
    name: EntryName
    manifest: Manifest

    def __str__(self) -> str:
        return self.outbox.storage.describe(self.name.path)

    @property
    def age(self) -> float:
        """Seconds since it was made."""
        return max(0.0, (now_ms() - self.name.created_ms) / 1000)

    def proposals(self) -> tuple[Proposal, ...]:
        """What the entry holds, in order.

        :raises EntryFormatError: it changed since it was listed, or cannot be read as one.
        :raises OSError: it is gone, or cannot be read at all.
        """
        return read_entry(self.outbox.storage.read(self.name.path))[1]

    def finish(self, proposals: Sequence[Proposal], *, spark_succeeded: bool) -> Entry:
        """The unfinished entry with what its events were converted to.

        :raises OutboxError: the storage refuses, or the outbox is full; the entry is as it was.
        """
        manifest = replace(self.manifest.with_proposals(proposals), spark_succeeded=spark_succeeded)
        return self._rewritten(manifest, proposals, check=True)

    def told(self, **fields: Any) -> Entry:
        """The entry with other fields of its manifest, durably.

        :raises EntryFormatError: it changed since it was listed, or cannot be read as one.
        :raises OSError: the storage refuses.
        """
        return self._rewritten(replace(self.manifest, **fields), self.proposals())

    def settle(self, delivery: Delivery, sent: Sequence[Proposal], superseded: int = 0) -> Entry | None:
        """Record what became of the entry's proposals.

        What was rejected goes to the quarantine, what is pending stays; where nothing is, a receipt takes the
        entry's place. Durable; a crash on the way leaves more behind, never less.

        :param delivery: the result of delivering ``sent``.
        :param superseded: how many of the entry's proposals were left out of ``sent`` for good.
        :returns: the entry as it is now; ``None`` where nothing of it is pending.
        :raises ValueError: the numbers do not account for each proposal of the entry.
        :raises OutboxError: the storage refuses.
        """
        accounted = delivery.delivered + len(delivery.rejected) + len(delivery.pending)
        if accounted != len(sent) or accounted + superseded != self.manifest.pending:
            raise ValueError(
                f"a delivery of {accounted} and {superseded} superseded proposals cannot settle {self}: "
                f"{len(sent)} were sent, {self.manifest.pending} were pending"
            )
        manifest = self._after(delivery, sent, superseded)
        try:
            if delivery.rejected:
                self._hold([(one.reason, one.proposal) for one in delivery.rejected], manifest)
            if not delivery.pending:
                self.outbox.receipts.keep(self.name, manifest, stored=delivery.stored)
                self._remove(hold_events=bool(manifest.rejected))
                return None
        except OSError as error:
            raise self._refused(error) from error
        return self if manifest == self.manifest else self._rewritten(manifest, delivery.pending)

    def quarantine(self, reason: str) -> None:
        """Move everything that is pending to the quarantine.

        :raises EntryFormatError: it changed since it was listed, or cannot be read as one.
        :raises OutboxError: the storage refuses.
        """
        proposals = self.proposals()
        try:
            self._hold([(reason, one) for one in proposals], self.manifest)
            self._remove(hold_events=True)
        except OSError as error:
            raise self._refused(error) from error

    def discard(self) -> None:
        """Remove the entry: another one tells the same.

        :raises OutboxError: the storage refuses.
        """
        try:
            self._remove()
        except OSError as error:
            raise self._refused(error) from error

    def keep_events(self, chunks: Iterable[bytes]) -> Entry:
        """Put the raw events beside the entry; where something of it is quarantined, they go there with it.

        :param chunks: OpenLineage events, one per line, compressed by gzip.
        :raises OutboxError: the storage refuses, or the outbox is full.
        """
        try:
            self.outbox.check_room(0)
            self.outbox.storage.write(self.name.events, chunks)
            return self.told(events=self.name.events)
        except OutboxError:
            raise
        except OSError as error:
            raise self._refused(error) from error

    def _after(self, delivery: Delivery, sent: Sequence[Proposal], superseded: int) -> Manifest:
        before = self.manifest
        elsewhere = {*upsert_hashes(delivery.pending), *upsert_hashes(one.proposal for one in delivery.rejected)}
        arrived = [digits for digits in upsert_hashes(sent) if digits not in elsewhere]
        return replace(
            before,
            pending=len(delivery.pending),
            delivered=before.delivered + delivery.delivered,
            rejected=before.rejected + len(delivery.rejected),
            superseded=before.superseded + superseded,
            upserts=tuple(dict.fromkeys((*before.upserts, *arrived))),
        )

    def _rewritten(self, manifest: Manifest, proposals: Sequence[Proposal], *, check: bool = False) -> Entry:
        lines = list(entry_lines(manifest, proposals))
        if check:
            self.outbox.check_room(sum(map(len, lines)))
        try:
            self.outbox.storage.write(self.name.path, lines)
        except OSError as error:
            raise self._refused(error) from error
        return replace(self, manifest=manifest)

    def _hold(self, held: list[tuple[str, Proposal]], manifest: Manifest) -> None:
        content = b"".join(quarantine_lines(replace(manifest, pending=0, redo=None), held))
        # Named by content: to settle again after a crash writes the same object.
        what = content_hash(b"".join(quarantine_lines(Manifest(manifest.key, "", 0), held)))
        self.outbox.storage.write(f"{QUARANTINED}/{self.name.instance}/{self.name.stem}-{what}.jsonl", [content])

    def _remove(self, *, hold_events: bool = False) -> None:
        self.outbox.storage.remove(self.name.path)
        if self.manifest.events != self.name.events:
            return
        if hold_events:
            self.outbox.storage.move(self.name.events, self.name.held_events)
        else:
            self.outbox.storage.remove(self.name.events)

    def _refused(self, error: OSError) -> OutboxError:
        return OutboxError(f"Cannot change the outbox's entry {self}: {error.strerror or error}.")


class Outbox:
    """What waits for its delivery.

    :param storage: where it is; :class:`~airflow_provider_spark_datahub.delivery.outbox.storage.LocalStorage` is a
        folder.
    """

    def __init__(self, storage: OutboxStorage, limits: OutboxLimits | None = None) -> None:
        self.storage = storage
        self.limits = limits or OutboxLimits()
        self.receipts = Receipts(storage)

    def __str__(self) -> str:
        return self.storage.describe()

    def put(
        self,
        key: AttemptKey,
        proposals: Sequence[Proposal],
        *,
        spark_succeeded: bool,
        connection_id: str,
        content: str = "proposals",
    ) -> Entry:
        """Write an entry durably: when this returns, a crash of the machine does not lose it.

        A second ``put`` of the same try makes a second entry; the first stays until it is settled.

        :param content: as in the manifest.
        :raises OutboxFullError: the quota is reached.
        :raises OutboxError: the disk is full, the folder is read-only ...
        """
        manifest = Manifest(key, connection_id, 0, spark_succeeded=spark_succeeded, content=content)
        return self._new(manifest.with_proposals(proposals), proposals)

    def begin(self, key: AttemptKey, *, connection_id: str, events: str | None, redo: dict[str, Any]) -> Entry:
        """Write the entry of a try whose events are still to come: from here on, they are known to the outbox.

        :param events: where they will be.
        :param redo: what their conversion will need beside them, as plain JSON.
        :raises OutboxError: as :meth:`put`.
        """
        return self._new(Manifest(key, connection_id, 0, state="unfinished", events=events, redo=redo), ())

    def restore(self, manifest: Manifest, proposals: Sequence[Proposal]) -> Entry:
        """Write an entry as old as its manifest says, whatever the quota: what comes out of the quarantine was counted.

        :raises OSError: the storage refuses.
        """
        name = EntryName.of(manifest.key, manifest.connection_id, manifest.created_ms, secrets.token_hex(4))
        self.storage.write(name.path, entry_lines(manifest, proposals))
        return Entry(self, name, manifest)

    def _new(self, manifest: Manifest, proposals: Sequence[Proposal]) -> Entry:
        key = manifest.key
        try:
            earlier = [one.created_ms for one in self.names(key.instance) if one.try_number == key.try_number]
            # A clock that was set back does not turn the order of the entries.
            created_ms = max([now_ms(), *(moment + 1 for moment in earlier)])
            name = EntryName.of(key, manifest.connection_id, created_ms, secrets.token_hex(4))
            manifest = replace(manifest, created_ms=created_ms)
            lines = list(entry_lines(manifest, proposals))
            self.check_room(sum(map(len, lines)))
            self.storage.write(name.path, lines)
        except OutboxError:
            raise
        except OSError as error:
            raise OutboxError(f"Cannot write to the outbox {self}: {error.strerror or error}.") from error
        return Entry(self, name, manifest)

    def check_room(self, size: int) -> None:
        """Whether there is room for ``size`` bytes more.

        :raises OutboxFullError: there is not.
        :raises OSError: the outbox cannot be read.
        """
        held = sum(one.size for folder in (PENDING, QUARANTINED, CORRUPT) for one in self.storage.stored(folder))
        if held + size > self.limits.max_bytes:
            raise OutboxFullError(
                f"The outbox {self} is full: it holds {held} bytes, {size} more are above its limit of "
                f"{self.limits.max_bytes} (outbox_max_bytes). Deliver what waits (spark-datahub emit), remove what is "
                "quarantined, or raise the limit."
            )

    def expire_receipts(self, task: str | None = None) -> int:
        """Remove the receipts that are older than the limit.

        Those stay that are newer than something that waits: they say what must not be delivered over.

        :param task: :attr:`.AttemptKey.task`, for
            those of one task only.
        :returns: how many were removed.
        :raises OSError: the storage refuses.
        """
        oldest_ms = now_ms() - self.limits.receipts * 1000
        return self.receipts.expire(min([oldest_ms, *(one.created_ms for one in self.names()[:1])]), task)

    def names(self, instance: str | None = None) -> list[EntryName]:
        """The names of the entries: of one task instance, the oldest try first, or of all, in the order of their age.

        :param instance: :attr:`.AttemptKey.instance`.
        :raises OSError: the outbox cannot be read.
        """
        stored = self.storage.stored(f"{PENDING}/{instance}" if instance else PENDING)
        found = [name for one in stored if (name := EntryName.parsed(one.name)) is not None]
        return sorted(found) if instance else sorted(found, key=lambda one: (one.created_ms, one))

    def entries(self, instance: str | None = None) -> Iterator[Entry]:
        """The entries of :meth:`names`, read one by one.

        DataHub keeps what arrives last. So that an older try never overwrites what a newer one delivered, deliver
        those of one task instance in this order, and stop at the first of which something stays pending.

        What cannot be read as an entry is moved to ``corrupt/`` and logged.

        :raises OSError: the outbox cannot be listed.
        """
        for name in self.names(instance):
            entry = self.entry(name)
            if entry is not None:
                yield entry

    def entry(self, name: EntryName) -> Entry | None:
        """The entry of this name; ``None`` where it is gone, corrupt, or of another version of the format."""
        try:
            return Entry(self, name, read_entry(self.storage.read(name.path))[0])
        except OtherVersionError as error:
            log.warning("The outbox's entry %s is left alone: %s.", self.storage.describe(name.path), error)
        except EntryFormatError as error:
            self._set_aside(name, str(error))
        except FileNotFoundError:
            log.debug("Another process has just settled %s.", name)
        except OSError as error:
            problem = error.strerror or error
            log.warning("The outbox's entry %s cannot be read: %s.", self.storage.describe(name.path), problem)
        return None

    def _set_aside(self, name: EntryName, reason: str) -> None:
        aside = f"{CORRUPT}/{name.instance}/{name.stem}"
        where = self.storage.describe(name.path)
        try:
            self.storage.write(f"{aside}.reason.txt", [f"{reason}\n".encode("utf-8", "backslashreplace")])
            self.storage.move(name.path, f"{aside}.jsonl")
            with suppress(FileNotFoundError):
                self.storage.move(name.events, name.events.replace(PENDING, CORRUPT, 1))
        except OSError as error:
            log.warning("The outbox's entry %s is corrupt (%s) and cannot be moved: %s.", where, reason, error)
        else:
            log.warning(
                "The outbox's entry %s is corrupt (%s): moved to %s.", where, reason, self.storage.describe(aside)
            )


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What one entry lost to the quarantine at one time.

    :param name: of its object.
    :param held: reasons and proposals.
    """

    name: str
    manifest: Manifest
    held: tuple[tuple[str, Proposal], ...]

    @property
    def reasons(self) -> list[str]:
        """Why, each reason once."""
        return list(dict.fromkeys(reason for reason, _ in self.held))


def quarantined(outbox: Outbox) -> Iterator[Quarantined]:
    """What is in the quarantine. What cannot be read there is left alone, and logged.

    :raises OSError: the outbox cannot be listed.
    """
    for stored in outbox.storage.stored(QUARANTINED):
        if stored.name.endswith(EVENTS_SUFFIX):
            continue
        try:
            manifest, held = read_quarantined(outbox.storage.read(stored.name))
        except (EntryFormatError, OSError) as error:
            log.warning("%s in the quarantine cannot be read: %s", outbox.storage.describe(stored.name), error)
        else:
            yield Quarantined(stored.name, manifest, tuple(held))


def requeue(outbox: Outbox, one: Quarantined) -> Entry:
    """Make pending again what is in the quarantine, as old as it was: it takes its old place in the order, and what
    was delivered since is not overwritten.

    A crash on the way leaves it in both places.

    :raises OSError: the outbox refuses.
    """
    proposals = [proposal for _, proposal in one.held]
    manifest = Manifest(
        one.manifest.key,
        one.manifest.connection_id,
        one.manifest.created_ms,
        spark_succeeded=one.manifest.spark_succeeded,
    ).with_proposals(proposals)
    entry = outbox.restore(replace(manifest, created_by=one.manifest.created_by), proposals)
    outbox.storage.remove(one.name)
    return _with_events(outbox, one, entry)


def _with_events(outbox: Outbox, one: Quarantined, entry: Entry) -> Entry:
    """The raw events come along with the last part of their entry."""
    stem = one.name.rpartition("-")[0]
    left = [stored.name for stored in outbox.storage.stored(QUARANTINED) if stored.name.startswith(stem)]
    if left != [f"{stem}{EVENTS_SUFFIX}"]:
        return entry
    outbox.storage.move(left[0], entry.name.events)
    return entry.told(events=entry.name.events)

"""Drain: delivers the entries of an outbox in order and within limits, while other drainers may do
the same.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from airflow_provider_spark_datahub import conversion
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import OutageNotes
from airflow_provider_spark_datahub.delivery.outbox.entries import Entry, Outbox, Settled
from airflow_provider_spark_datahub.delivery.outbox.format import (
    EntryFormatError,
    EntryName,
    Manifest,
)
from airflow_provider_spark_datahub.delivery.outbox.lease import Lease
from airflow_provider_spark_datahub.delivery.outbox.storage import storage_errors
from airflow_provider_spark_datahub.delivery.sink import Delivery, Sink
from airflow_provider_spark_datahub.foundation.text import counted

log = logging.getLogger(__name__)

_Send = Callable[[Entry, Sequence[Proposal]], Delivery]
"""Delivers items of an entry."""
_Settled = Callable[[Entry], None]
"""Called with an entry whose items are all delivered."""
_Finish = Callable[[Entry, bool], Entry | None]
"""Converts the events of an unfinished entry. Returns ``None`` if its attempt is not over yet, and
the entry as it is if only its Spark still runs, for which later attempts do not wait.

The second argument says whether a later attempt of the task has begun; then the entry's own is
certainly over.
"""

_Group = tuple[str, str]
_Groups = dict[_Group, list[EntryName]]
"""Names of entries by :attr:`EntryName.group`."""
_MOST_INSTANCES = 64
"""Task instances that are delivered under one lease, with one synchronisation of their receipts."""
_PASSES = 5
"""How often a drain comes back to the entries that other drainers held."""
_MOST_FAILURES = 3
"""Deliveries in a row without any acknowledgement after which a drain gives up a connection."""


class _Settlement(msgspec.Struct, frozen=True):
    """Outcome of one entry.

    :param delivery: ``None`` if there was nothing to send.
    :param remaining: the entry as it is now; ``None`` if none of its items are pending.
    :param damage: why the entry was set aside, if it was.
    :param superseded: how many items were left out, since a later attempt or run had delivered the
        same aspects.
    :param is_passed: whether the entries behind it go first.
    """

    entry: Entry
    delivery: Delivery | None
    remaining: Entry | None
    damage: str | None = None
    superseded: int = 0
    is_passed: bool = False

    @property
    def is_delivered(self) -> bool:
        """Return whether all items were delivered, now or before: none is pending, rejected or
        damaged.
        """
        is_whole = (
            self.remaining is None and self.damage is None and not self.entry.manifest.rejected
        )
        return is_whole and not (
            self.delivery and (self.delivery.pending or self.delivery.rejected)
        )


def deliver_in_order(
    entries: Sequence[Entry],
    send: _Send,
    finish: _Finish | None = None,
    settled: _Settled | None = None,
) -> Iterator[_Settlement]:
    """Deliver the entries of one task instance for one connection, the oldest first, until one of
    them stays.

    The caller holds the lease of the entries.

    :param finish: without it, an unfinished entry stays.
    :param settled: called for each delivered entry, before it is yielded.
    :raises OSError: if the outbox cannot be read or written, or an entry changed since it was
        listed.
    """
    for number, entry in enumerate(entries):
        later = [entry.name for entry in entries[number + 1 :]]
        settlement = _deliver(entry, later, send, finish)
        if settled is not None and settlement.is_delivered:
            settled(settlement.entry)
        yield settlement
        if settlement.remaining is not None and not settlement.is_passed:
            if later:
                log.debug("Skipped %s behind %s", counted(len(later), "entry"), entry)
            return


def _deliver(
    entry: Entry,
    later: Sequence[EntryName],
    send: _Send,
    finish: _Finish | None,
    batch: list[Settled] | None = None,
) -> _Settlement:
    """Deliver an entry, and record the outcome. A damaged entry is set aside.

    Items that would overwrite what a later attempt or run delivered are left out. An entry that is
    too old goes to the quarantine if it fails again.

    :param later: names of the entries behind it.
    """
    try:
        ready: Entry | None = entry
        if entry.manifest.state == "unfinished":
            followed = any(other.try_number > entry.name.try_number for other in later)
            ready = finish(entry, followed) if finish else None
        if ready is None or ready.manifest.state == "unfinished":
            log.debug("Skipped %s: its attempt or its Spark is not over", entry)
            return _Settlement(entry, None, entry, is_passed=ready is not None)
        items = ready.items()
        hashes = Manifest.upserts_of(items)
        receipt, newer = entry.outbox.receipts.find(ready.name, ready.manifest, {*hashes})
        if receipt is not None:
            ready.discard()
            return _Settlement(ready, None, None)
        sent = [item for item, digits in zip(items, hashes, strict=True) if digits not in newer]
        delivery, superseded = send(ready, sent), len(items) - len(sent)
        remaining = ready.settle(delivery, sent, superseded, batch)
        max_age = entry.outbox.limits.max_age
        if remaining is not None and remaining.age > max_age:
            days = f"{max_age / 86_400:g} days"
            remaining.quarantine(
                f"it was pending for more than {days}; the last delivery failed: {delivery.problem}"
            )
            remaining = None
        return _Settlement(ready, delivery, remaining, superseded=superseded)
    except EntryFormatError as error:
        entry.outbox.set_aside(entry.name.path, str(error))
        return _Settlement(entry, None, None, str(error))


class DrainLimits(msgspec.Struct, frozen=True):
    """Limits of one drain.

    :param seconds: for the whole drain; ``None``: no limit.
    :param entry_seconds: for each entry.
    :param batch_seconds: after which the receipts of one lease are synced together, at the latest.
    """

    seconds: float | None = None
    entry_seconds: float = 60.0
    batch_seconds: float = 0.5


@dataclass
class _DrainResult:
    """Outcome of a drain.

    :param settled: entries without pending items.
    :param delivered: items that were acknowledged.
    :param rejected: items that went to the quarantine.
    :param waiting: entries that stay in the outbox.
    :param elsewhere: entries that another drainer holds.
    :param corrupt: entries that were set aside, since they are damaged.
    :param superseded: items that were not sent, since later attempts or runs had delivered the same
        aspects.
    :param problems: reasons why entries stay, each once.
    """

    settled: int = 0
    delivered: int = 0
    rejected: int = 0
    waiting: int = 0
    elsewhere: int = 0
    corrupt: int = 0
    superseded: int = 0
    problems: dict[str, None] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """Counts of the drain in one line."""
        proposals = counted(self.delivered, "proposal")
        text = (
            f"{counted(self.settled, 'entry')} settled ({proposals} delivered, {self.rejected} rejected), "
            f"{self.waiting} pending"
        )
        text = (
            f"{text}, {counted(self.superseded, 'proposal')} superseded by later runs"
            if self.superseded
            else text
        )
        text = f"{text}, {self.corrupt} damaged and set aside" if self.corrupt else text
        return f"{text}, {self.elsewhere} held by other drainers" if self.elsewhere else text

    def to_obj(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {**asdict(self), "problems": list(self.problems)}


class _LeaseOverError(Exception):
    """The lease ended before a delivery."""


@dataclass
class Drain:
    """One delivery of an outbox's entries by age, each through its own connection. Used once.

    Several drains may work on one outbox: a lease keeps a task instance's entries with one of them.

    :param open_sink: returns the sink of a connection id, or the reason why there is none.
    :param connection: used instead of the entries' own.
    :param wanted: selects entries; older attempts of the same task instances go with them.
        ``None``: all entries.
    :param finish: converts unfinished entries; without it, they stay.
    :param progress: called with the number of entries that are processed.
    :param settled: called with each delivered entry.
    """

    outbox: Outbox
    open_sink: Callable[[str], tuple[Sink | None, str | None]]
    limits: DrainLimits = field(default_factory=DrainLimits)
    connection: str | None = None
    wanted: Callable[[Manifest], bool] | None = None
    finish: _Finish | None = None
    progress: Callable[[int], None] | None = None
    settled: _Settled | None = None
    sleep: Callable[[float], None] = time.sleep
    drained: _DrainResult = field(default_factory=_DrainResult)
    _sinks: dict[str, tuple[Sink | None, str | None]] = field(default_factory=dict)
    _failures: Counter[str] = field(default_factory=Counter)
    """Failed deliveries in a row, by the connections of entries."""
    _settled_tasks: set[str] = field(default_factory=set)

    def run(self, names: Iterable[EntryName] | None = None) -> _DrainResult:
        """Deliver the entries of these names; ``None``: all entries of the outbox.

        :raises OSError: if the outbox cannot be listed, or expired receipts cannot be removed.
        """
        self._deadline = Deadline.after(
            self.limits.seconds if self.limits.seconds is not None else float("inf")
        )
        groups = self._groups(names)
        instances = counted(len(groups), "task instance")
        log.debug(
            "Draining %s of %s in %s", counted(_count(groups), "entry"), instances, self.outbox
        )
        if names is None:
            with self._noting_problems():
                self.outbox.measure()
                self.outbox.expire_receipts()
        with self.outbox.receipts.remembered() as self._forget_listings:
            self._drain_groups(groups)
        for task in self._settled_tasks if names is not None else ():
            self.outbox.expire_receipts(task)
        log.debug("Drained %s: %s", self.outbox, self.drained.sentence)
        return self.drained

    def _groups(self, names: Iterable[EntryName] | None) -> _Groups:
        """Return the names of the entries to deliver, with older attempts of their task instances,
        by age.
        """
        listed = self.outbox.names() if names is None else [*names]
        chosen = dict.fromkeys(name.group for name in listed if self._is_wanted(name))
        if names is not None:
            listed = [
                name
                for instance in {group[0] for group in chosen}
                for name in self.outbox.names(instance)
            ]
        groups: _Groups = {group: [] for group in chosen}
        for name in listed:
            if name.group in groups:
                groups[name.group].append(name)
        return {group: sorted(of_group) for group, of_group in groups.items() if of_group}

    def _is_wanted(self, name: EntryName) -> bool:
        if self.wanted is None:
            return True
        entry = self.outbox.entry(name)
        return entry is not None and self.wanted(entry.manifest)

    def _drain_groups(self, groups: _Groups) -> None:
        for number in range(1, _PASSES + 1):
            groups = self._drain_once(groups)
            if not groups or self._deadline.expired:
                break
            if number < _PASSES:
                # Other drainers hold these entries. They finish soon, or die and leave a lease that
                # expires.
                self.sleep(min(self._deadline.remaining(), number * (0.1 + random.random() / 5)))
        self.drained.elsewhere = _count(groups)

    def _drain_once(self, groups: _Groups) -> _Groups:
        """Deliver the groups once, and return those that other drainers hold."""
        held: _Groups = {}
        waiting = deque(groups.items())
        while waiting:
            chunk = self._next_chunk(waiting)
            lease = self._take_lease(chunk)
            if lease is not None:
                free = {group: chunk.pop(group) for group in [*chunk] if group in lease.groups}
                left = self._drain_leased(lease, free)
                waiting.extendleft(reversed(left.items()))
            held |= chunk
        return held

    def _next_chunk(self, waiting: deque[tuple[_Group, list[EntryName]]]) -> _Groups:
        """Return the groups to deliver next, under one lease."""
        chunk: _Groups = {}
        while waiting and len(chunk) < _MOST_INSTANCES:
            group, chunk_names = waiting.popleft()
            chunk[group] = chunk_names
            if self._deadline.expired or self._is_given_up(group):
                reason = (
                    "the time of the drain is over"
                    if self._deadline.expired
                    else "its connection takes nothing"
                )
                log.debug(
                    "Skipped %s of %s: %s",
                    counted(len(chunk_names), "entry"),
                    ".".join(group),
                    reason,
                )
                self._close(group, chunk)
        return chunk

    def _take_lease(self, chunk: _Groups) -> Lease | None:
        """Return a lease of those groups that are free. If the outbox refuses it, all of them stay."""
        seconds = max(Lease.SECONDS, 2 * self.limits.entry_seconds)
        try:
            return Lease.take(self.outbox.storage, *chunk, seconds=seconds) if chunk else None
        except OSError as error:
            log.debug("Skipped %s: %s", counted(_count(chunk), "entry"), error)
            self.drained.problems[str(error)] = None
            for group in [*chunk]:
                self._close(group, chunk)
            return None

    def _step(self, count: int) -> None:
        if self.progress and count:
            self.progress(count)

    def _drain_leased(self, lease: Lease, left: _Groups) -> _Groups:
        """Deliver the oldest entry, again and again, until the batch is due; return the groups
        whose turn has not come.

        An entry is read when its turn comes. Nobody else writes receipts of these tasks under the
        lease, and those of older entries do not matter, so receipts are listed once.

        :param left: loses the entries that were delivered, and the groups of those that stay.
        """
        batch, due = list[Settled](), Deadline.after(self.limits.batch_seconds)
        self._forget_listings()
        try:
            while left and not due.expired and not self._deadline.expired and lease.renew():
                group = min(left, key=lambda group: left[group][0].created_ms)
                with self._costs_only_its_group(group, left):
                    self._deliver_head(group, left, lease, batch)
        except _LeaseOverError:
            log.debug("Lease ended before a delivery: %s", lease.name)
        except OSError as error:
            log.debug("Skipped the rest of %d task instances: %s", len(left), error)
            self.drained.problems[str(error)] = None
            for group in [*left]:
                self._close(group, left)
        finally:
            self._commit(batch)
            lease.release()
        return left

    def _commit(self, batch: Sequence[Settled]) -> None:
        """Sync the receipts of settled entries together, which is faster than one by one, then
        remove the entries.

        After a crash in between, or if the storage refuses, the next drain discards entries beside
        their receipts.
        """
        with self._noting_problems():
            if batch:
                with storage_errors(
                    "sync the receipts of {} entries of the outbox {}", len(batch), self.outbox
                ):
                    self.outbox.storage.sync([receipt for receipt, _ in batch])
            for _, remove in batch:
                with self._noting_problems():
                    remove()

    @contextmanager
    def _noting_problems(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.drained.problems[str(error)] = None

    def _deliver_head(
        self, group: _Group, left: _Groups, lease: Lease, batch: list[Settled]
    ) -> None:
        if self._is_given_up(group):
            self._close(group, left)
            return
        name, *later = left[group]
        entry = self.outbox.entry(name, whole=True)
        if entry is None:
            log.debug("Skipped %s: another drainer settled it, or it cannot be read", name)
            self._pass_head(group, left)
            return
        self._record(
            group, left, _deliver(entry, later, partial(self._send, lease), self.finish, batch)
        )

    def _send(self, lease: Lease, entry: Entry, items: Sequence[Proposal]) -> Delivery:
        """Deliver items of an entry through its connection, and count failures.

        :raises _LeaseOverError: if the lease ended, as while events were converted. A new lease
            delivers the entry.
        """
        if not lease.renew():
            raise _LeaseOverError
        connection = self.connection or entry.manifest.connection_id
        if connection not in self._sinks:
            self._sinks[connection] = self.open_sink(connection)
        sink, problem = self._sinks[connection]
        name = entry.name.connection
        if sink is None:
            log.debug("Connection %s cannot be used: %s", connection, problem)
            self._failures[name] = _MOST_FAILURES
            return Delivery(0, pending=tuple(items), problem=problem)
        # No delivery outlasts the lease: another drainer may then hold the entries.
        seconds = min(
            self.limits.entry_seconds, self._deadline.remaining(), lease.until.remaining()
        )
        delivery = sink.deliver(items, Deadline.after(seconds))
        is_failure = delivery.pending and not delivery.delivered and not delivery.rejected
        folder = self.outbox.storage.describe(OutageNotes.FOLDER)
        if not is_failure and self._failures.get(name) != 0 and "://" not in folder:
            OutageNotes(Path(folder)).record(connection, sink.describe(), delivery)
        self._failures[name] = self._failures[name] + 1 if is_failure else 0
        return delivery

    def _record(self, group: _Group, left: _Groups, settlement: _Settlement) -> None:
        if self.settled is not None and settlement.is_delivered:
            self.settled(settlement.entry)
        drained = self.drained
        drained.superseded += settlement.superseded
        if delivery := settlement.delivery:
            drained.delivered += delivery.delivered
            drained.rejected += len(delivery.rejected)
            if delivery.problem:
                drained.problems[delivery.problem] = None
        if settlement.is_passed:
            drained.waiting += 1
            self._pass_head(group, left)
            return
        if settlement.remaining is not None:
            if later := left[group][1:]:
                log.debug("Skipped %s behind %s", counted(len(later), "entry"), settlement.entry)
            self._close(group, left)
            return
        if settlement.damage is not None:
            drained.corrupt += 1
            drained.problems[f"{settlement.entry} was set aside: {settlement.damage}"] = None
        else:
            drained.settled += 1
            self._settled_tasks.add(settlement.entry.manifest.key.task)
        self._pass_head(group, left)

    def _pass_head(self, group: _Group, left: _Groups) -> None:
        """Go on with the next entry of a group."""
        del left[group][0]
        self._step(1)
        if not left[group]:
            del left[group]

    def _close(self, group: _Group, left: MutableMapping[_Group, Any]) -> None:
        """Leave the rest of a group in the outbox."""
        count = len(left.pop(group, ()))
        self.drained.waiting += count
        self._step(count)

    @contextmanager
    def _costs_only_its_group(self, group: _Group, left: _Groups) -> Iterator[None]:
        name = ".".join(group)
        try:
            yield
        except _LeaseOverError:
            raise
        except OSError as error:
            log.debug("Skipped the rest of %s: %s", name, error)
            self.drained.problems[str(error)] = None
            self._close(group, left)
        except Exception as error:  # noqa: BLE001 (a defect that one entry hits must not stop the others)
            log.warning(
                "Could not deliver the entries of %s.\n%s", name, conversion.redacted_trace(error)
            )
            self.drained.problems[f"{name}: {type(error).__name__}; the log has its trace"] = None
            self._close(group, left)

    def _is_given_up(self, group: _Group) -> bool:
        """Return whether the connection of a group takes nothing: its other entries are not even
        read.
        """
        return self._failures[group[1]] >= _MOST_FAILURES


def _count(groups: _Groups) -> int:
    return sum(map(len, groups.values()))

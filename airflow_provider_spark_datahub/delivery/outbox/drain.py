"""Drain: delivers the entries of an outbox in order and within limits, while other drainers may do the same."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from airflow_provider_spark_datahub import conversion
from airflow_provider_spark_datahub.delivery.deadline import Deadline, run_in_turn, watched_disks
from airflow_provider_spark_datahub.delivery.failure import CircuitBreaker
from airflow_provider_spark_datahub.delivery.outbox.entries import Entry, Outbox
from airflow_provider_spark_datahub.delivery.outbox.format import EntryFormatError, EntryName, Manifest, upsert_hashes
from airflow_provider_spark_datahub.delivery.outbox.lease import Lease
from airflow_provider_spark_datahub.delivery.outbox.receipts import SettledBatch, order_ms
from airflow_provider_spark_datahub.delivery.sink import Delivery, OutboxItem, Sending, Sink
from airflow_provider_spark_datahub.printable import counted

log = logging.getLogger(__name__)

_Send = Callable[[Entry, Sequence[OutboxItem]], Delivery]
"""Delivers items of an entry."""
_Settled = Callable[[Entry], None]
"""Called with an entry whose items are all delivered or rejected."""
_Finish = Callable[[Entry, bool], Entry | None]
"""Converts the events of an unfinished entry; returns ``None`` if its attempt is not over yet.

The second argument says whether a later attempt of the task has begun; then the entry's own is certainly over.
"""

_Group = tuple[str, str]
_Groups = dict[_Group, list[EntryName]]
"""Names of entries by :attr:`EntryName.group`."""
_MOST_BYTES = 16 * 1024 * 1024
"""About how much of all entries is in memory at the same time."""
_PASSES = 5
"""How often a drain comes back to the entries that other drainers held."""


class _Settlement(msgspec.Struct, frozen=True):
    """Outcome of one entry.

    :param delivery: ``None`` if there was nothing to send.
    :param remaining: the entry as it is now; ``None`` if none of its items are pending.
    :param damage: why the entry was set aside, if it was.
    :param superseded: how many items were left out, since a later attempt or run had delivered the same aspects.
    """

    entry: Entry
    delivery: Delivery | None
    remaining: Entry | None
    damage: str | None = None
    superseded: int = 0

    @property
    def is_delivered(self) -> bool:
        """Return whether all items were delivered or rejected, now or before."""
        return self.remaining is None and self.damage is None and not (self.delivery and self.delivery.pending)


def deliver_in_order(
    entries: Iterable[Entry],
    send: _Send,
    finish: _Finish | None = None,
    settled: _Settled | None = None,
) -> Iterator[_Settlement]:
    """Deliver the entries of one task instance for one connection, the oldest first, until one of them stays.

    Items that would overwrite what a later attempt or run delivered are left out. An entry that is too old goes to the
    quarantine if it fails again. The caller holds the lease of the entries.

    :param finish: without it, an unfinished entry stays.
    :param settled: called for each delivered entry, before it is yielded.
    :raises OSError: if the outbox cannot be read or written, or an entry changed since it was listed.
    """
    listed = list(entries)
    for number, entry in enumerate(listed):
        later = listed[number + 1 :]
        try:
            ready = _prepared(entry, later, finish)
            if isinstance(ready, _Ready):
                ready = ready.settled(send(ready.entry, ready.sent))
        except EntryFormatError as error:
            ready = _damaged(entry, error)
        if settled is not None and ready.is_delivered:
            settled(ready.entry)
        yield ready
        if ready.remaining is not None:
            if later:
                log.debug("Skipped %s behind %s", counted(len(later), "entry"), entry)
            return


class _Ready(msgspec.Struct, frozen=True):
    """Entry whose delivery may begin.

    :param items: how many it has.
    :param sent: its items, without those that would overwrite something newer; ``hashes`` are their
        :func:`.upsert_hashes`.
    """

    entry: Entry
    items: int
    sent: Sequence[OutboxItem]
    hashes: Sequence[str]

    def settled(self, delivery: Delivery, batch: SettledBatch | None = None) -> _Settlement:
        """Record the delivery, and return the outcome of the entry."""
        superseded, entry = self.items - len(self.sent), self.entry
        remaining = entry.settle(delivery, self.sent, superseded, batch, self.hashes)
        max_age = entry.outbox.limits.max_age
        if remaining is not None and remaining.age > max_age:
            remaining.quarantine(
                f"it was pending for more than {max_age / 86_400:g} days; the last delivery failed: {delivery.problem}"
            )
            remaining = None
        return _Settlement(entry, delivery, remaining, superseded=superseded)


def _damaged(entry: Entry, error: EntryFormatError) -> _Settlement:
    entry.set_aside(str(error))
    return _Settlement(entry, None, None, str(error))


def _prepared(entry: Entry, later: Sequence[Entry], finish: _Finish | None) -> _Ready | _Settlement:
    """Return an entry whose delivery may begin, or the entry's outcome if there is nothing to deliver."""
    ready: Entry | None = entry
    if entry.manifest.state == "unfinished":
        followed = any(other.name.try_number > entry.name.try_number for other in later)
        ready = finish(entry, followed) if finish else None
    if ready is None:
        log.debug("Skipped %s: its attempt is not over", entry)
        return _Settlement(entry, None, entry)
    items = ready.items()
    sent, hashes = items, upsert_hashes(items)
    receipt, newer = entry.outbox.receipts.find(ready.name, ready.manifest, {*hashes} - {""})
    if receipt is not None:
        ready.discard()
        return _Settlement(ready, None, None)
    newer.update(digits for other in later for digits in other.manifest.upserts)
    if newer:
        kept = [number for number, digits in enumerate(hashes) if digits not in newer]
        sent, hashes = tuple(items[number] for number in kept), [hashes[number] for number in kept]
    log.debug("Delivering %d of %s of %s", len(sent), counted(len(items), "item"), ready)
    return _Ready(ready, len(items), sent, hashes)


class DrainLimits(msgspec.Struct, frozen=True):
    """Limits of one drain.

    :param seconds: for the whole drain; ``None``: no limit.
    :param entry_seconds: for each entry.
    :param entries: that are delivered at most; ``None``: no limit.
    """

    seconds: float | None = None
    entry_seconds: float = 60.0
    entries: int | None = None


@dataclass
class _DrainResult:
    """Outcome of a drain.

    :param settled: entries without pending items.
    :param delivered: items that were acknowledged.
    :param rejected: items that went to the quarantine.
    :param waiting: entries that stay in the outbox.
    :param elsewhere: entries that another drainer holds.
    :param corrupt: entries that were set aside, since they are damaged.
    :param superseded: items that were not sent, since later attempts or runs had delivered the same aspects.
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
        text = f"{text}, {counted(self.superseded, 'proposal')} superseded by later runs" if self.superseded else text
        text = f"{text}, {self.corrupt} damaged and set aside" if self.corrupt else text
        return f"{text}, {self.elsewhere} held by other drainers" if self.elsewhere else text

    def to_obj(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {**asdict(self), "problems": list(self.problems)}


@dataclass
class Drain:
    """One delivery of an outbox's entries by age, each through its own connection. Used once.

    Several drains may work on one outbox: a lease keeps a task instance's entries with one of them.

    :param open_sink: returns the sink of a connection id, or the reason why there is none.
    :param connection: used instead of the entries' own.
    :param wanted: selects entries; older attempts of the same task instances go with them. ``None``: all entries.
    :param finish: converts unfinished entries; without it, they stay.
    :param progress: called with the number of entries that are processed.
    :param settled: called with each delivered entry.
    :param breaker: returns the circuit breaker of a connection.
    """

    outbox: Outbox
    open_sink: Callable[[str], tuple[Sink | None, str | None]]
    limits: DrainLimits = field(default_factory=DrainLimits)
    connection: str | None = None
    wanted: Callable[[Manifest], bool] | None = None
    finish: _Finish | None = None
    progress: Callable[[int], None] | None = None
    settled: _Settled | None = None
    breaker: Callable[[str], CircuitBreaker] = CircuitBreaker.for_connection
    sleep: Callable[[float], None] = time.sleep
    drained: _DrainResult = field(default_factory=_DrainResult)
    _sinks: dict[str, tuple[Sink | None, str | None]] = field(default_factory=dict)
    _refusing: set[str] = field(default_factory=set)
    _settled_tasks: set[str] = field(default_factory=set)
    _most: int = SettledBatch.MOST

    def run(self, names: Iterable[EntryName] | None = None) -> _DrainResult:
        """Deliver the entries of these names; ``None``: all entries of the outbox.

        :raises OSError: if the outbox cannot be listed, or expired receipts cannot be removed.
        """
        with watched_disks():
            return self._run(names)

    def _run(self, names: Iterable[EntryName] | None) -> _DrainResult:
        self._deadline = Deadline.after(self.limits.seconds if self.limits.seconds is not None else float("inf"))
        groups = self._groups(names)
        instances = counted(len(groups), "task instance")
        log.debug("Draining %s of %s in %s", counted(_count(groups), "entry"), instances, self.outbox)
        try:
            with self.outbox.receipts.remembered() as self._refresh:
                self._drain_groups(groups)
            if names is None:
                self.outbox.usage.measure()
                self.outbox.expire_receipts()
            else:
                for task in self._settled_tasks:
                    self.outbox.expire_receipts(task)
        finally:
            for sink, _ in self._sinks.values():
                if sink is not None:
                    sink.close()
        log.debug("Drained %s: %s", self.outbox, self.drained.sentence)
        return self.drained

    def _groups(self, names: Iterable[EntryName] | None) -> _Groups:
        """Return the names of the entries to deliver, with older attempts of their task instances, by age."""
        listed = self.outbox.names() if names is None else [*names]
        chosen = dict.fromkeys(name.group for name in listed if self._is_wanted(name))
        if names is not None:
            listed = [name for instance in {group[0] for group in chosen} for name in self.outbox.names(instance)]
        groups: _Groups = {group: [] for group in chosen}
        for name in listed:
            if name.group in groups:
                groups[name.group].append(name)
        return {group: sorted(of_group) for group, of_group in groups.items()}

    def _is_wanted(self, name: EntryName) -> bool:
        if self.wanted is None:
            return True
        entry = self.outbox.entry(name)
        return entry is not None and self.wanted(entry.manifest)

    def _drain_groups(self, groups: _Groups) -> None:
        for number in range(1, _PASSES + 1):
            groups = self._drain_once(groups)
            if not groups or self._stopped():
                break
            if number < _PASSES:
                # Other drainers hold these entries. They finish soon, or die and leave a lease that expires.
                self.sleep(min(self._deadline.remaining(), number * (0.1 + random.random() / 5)))
        self.drained.elsewhere = _count(groups)

    def _drain_once(self, groups: _Groups) -> _Groups:
        """Deliver the groups once, and return those that other drainers hold."""
        held: _Groups = {}
        waiting = deque(groups.items())
        while waiting:
            chunk = self._next_chunk(waiting)
            try:
                seconds = max(Lease.SECONDS, 2 * self.limits.entry_seconds)
                lease = Lease.take_some(self.outbox.storage, chunk, seconds) if chunk else None
            except OSError as error:
                log.debug("Skipped %s: %s", counted(_count(chunk), "entry"), error)
                self.drained.problems[str(error)] = None
                for group in [*chunk]:
                    self._close(group, chunk)
                continue
            taken = lease.groups if lease is not None else ()
            held.update((group, names) for group, names in chunk.items() if group not in taken)
            if lease is not None:
                left = self._drain_leased(lease, {group: chunk[group] for group in chunk if group in taken})
                waiting.extendleft(reversed(left.items()))
        return held

    def _next_chunk(self, waiting: deque[tuple[_Group, list[EntryName]]]) -> _Groups:
        """Return the groups to deliver next, under one lease."""
        chunk: _Groups = {}
        while waiting and len(chunk) < self._most:
            group, chunk_names = waiting.popleft()
            chunk[group] = chunk_names
            if self._stopped() or self.refuses(group):
                reason = "the drain is at its limit" if self._stopped() else "its connection refuses deliveries"
                log.debug("Skipped %s of %s: %s", counted(len(chunk_names), "entry"), ".".join(group), reason)
                self._close(group, chunk)
        return chunk

    def _stopped(self) -> bool:
        enough = self.limits.entries is not None and self.drained.settled >= self.limits.entries
        return enough or self._deadline.expired

    def _step(self, count: int) -> None:
        if self.progress and count:
            self.progress(count)

    def _drain_leased(self, lease: Lease, groups: _Groups) -> _Groups:
        """Deliver entries until the batch is due; return the groups whose turn has not come."""
        batch, due = SettledBatch(self.outbox.storage), Deadline.after(SettledBatch.SECONDS)
        left: dict[_Group, list[Entry]] = {}
        try:
            size = 0
            for group, names in groups.items():
                left[group] = self._entries(group, names, whole=size < _MOST_BYTES)
                size += sum(entry.size for entry in left[group])
            left = {group: entries for group, entries in left.items() if entries}
            while left and not self._stopped() and lease.renew():
                begun = self._deliver_heads(left, lease, batch, due)
                if due.expired or not begun:
                    break
            # For a slow server, entries are read only as fast as the server takes them.
            self._most = min(SettledBatch.MOST, max(1, 2 * (len(groups) - len(left)))) if left else SettledBatch.MOST
        except OSError as error:
            log.debug("Skipped the rest of %d task instances: %s", len(left), error)
            self.drained.problems[str(error)] = None
            for group in [*left]:
                self._close(group, left)
        finally:
            try:
                batch.commit()
            except OSError as error:
                self.drained.problems[str(error)] = None
            lease.release()
        return {group: [entry.name for entry in entries] for group, entries in left.items()}

    def _entries(self, group: _Group, names: Sequence[EntryName], *, whole: bool) -> list[Entry]:
        """Return the entries of a group; those that another drainer has settled since they were listed are gone."""
        whole = whole and len(names) == 1  # if the first of several stays, the others are not needed
        entries = [entry for name in names if (entry := self.outbox.entry(name, whole=whole))]
        self._step(len(names) - len(entries))
        if not entries:
            log.debug("Skipped %s: another drainer settled its entries", ".".join(group))
        return entries

    def _deliver_heads(self, left: dict[_Group, list[Entry]], lease: Lease, batch: SettledBatch, due: Deadline) -> int:
        """Deliver the first entry of each group until the batch is due.

        :param left: entries whose turn has not come; groups without any are removed.
        :returns: how many deliveries began.
        """
        # Each run of a task must see the receipts of the others, and the oldest run is delivered first.
        self._refresh()
        heads: list[tuple[_Group, _Ready]] = []
        size = 0
        most = len(left) if self.limits.entries is None else self.limits.entries - self.drained.settled
        for group in [*left]:
            # The conversion of a killed task's events takes seconds.
            if len(heads) >= most or size > _MOST_BYTES or (heads and due.expired) or not lease.renew():
                break
            if ready := self._prepare(group, left):
                heads.append((group, ready))
                size += ready.entry.size
        if not lease.renew():
            return 0
        heads.sort(key=lambda head: self._order_ms(head[1].entry.name))
        turns = [_Turn(self, ready, lease, due, is_first=not number) for number, (_, ready) in enumerate(heads)]
        ended, error = run_in_turn([(turn.begin, turn.run) for turn in turns])
        for number, ((group, ready), turn) in enumerate(zip(heads, turns, strict=True)):
            if turn.deadline is not None:
                with self._costs_only_its_group(group, left):
                    if number == ended and error is not None:
                        raise error
                    delivery = turn.delivery(in_time=number < ended)
                    self._record(group, left, ready.settled(delivery, batch))
        return sum(turn.deadline is not None for turn in turns)

    def _order_ms(self, name: EntryName) -> int:
        try:
            return order_ms(self.outbox.storage, name.created_ms, name.path)
        except OSError:
            return name.created_ms  # the entry's delivery fails with the same error, and reports it

    def _prepare(self, group: _Group, left: dict[_Group, list[Entry]]) -> _Ready | None:
        """Return the first entry of a group to deliver; entries before it that need no delivery are removed."""
        if self.refuses(group):
            self._close(group, left)
        while group in left:
            with self._costs_only_its_group(group, left):
                entry, later = left[group][0], left[group][1:]
                whole = entry if entry.is_read else self.outbox.entry(entry.name, whole=True)
                if whole is None:
                    self._remove_head(group, left)
                    continue
                try:
                    ready = _prepared(whole, later, self.finish)
                except EntryFormatError as error:
                    ready = _damaged(whole, error)
                if isinstance(ready, _Ready):
                    left[group][0] = ready.entry
                    return ready
                self._record(group, left, ready)
        return None

    def _record(self, group: _Group, left: dict[_Group, list[Entry]], settlement: _Settlement) -> None:
        if self.settled is not None and settlement.is_delivered:
            self.settled(settlement.entry)
        drained = self.drained
        drained.superseded += settlement.superseded
        if delivery := settlement.delivery:
            drained.delivered += delivery.delivered
            drained.rejected += len(delivery.rejected)
            if delivery.problem:
                drained.problems[delivery.problem] = None
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
        self._remove_head(group, left)

    def _remove_head(self, group: _Group, left: dict[_Group, list[Entry]]) -> None:
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
    def _costs_only_its_group(self, group: _Group, left: dict[_Group, list[Entry]]) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.debug("Skipped the rest of %s: %s", ".".join(group), error)
            self.drained.problems[str(error)] = None
            self._close(group, left)
        except Exception as error:  # noqa: BLE001 (a defect that one entry hits must not stop the others)
            self._report_defect(group, error)
            self._close(group, left)

    def _report_defect(self, group: _Group, error: Exception) -> None:
        log.warning("Could not deliver the entries of %s.\n%s", ".".join(group), conversion.redacted_trace(error))
        self.drained.problems[f"{'.'.join(group)}: {type(error).__name__}; the log has its trace"] = None

    def refuses(self, group: _Group) -> bool:
        """Return whether the connection of a group refuses deliveries."""
        return (self.connection or group[1]) in self._refusing

    def seconds_for(self, group: _Group, *, is_first: bool) -> float | None:
        """Return how long a delivery may take; ``None`` if it may not begin, unless it is the first of its batch."""
        if not is_first and (self._stopped() or self.refuses(group)):
            return None
        return min(self.limits.entry_seconds, self._deadline.remaining())

    def sink_of(self, entry: Entry) -> tuple[str, Sink | None, str | None]:
        """Return the connection of an entry, and its sink or the reason why there is none."""
        # ``connection`` leads to DataHub, which does not take raw events.
        instead = self.connection if entry.manifest.content == "proposals" else None
        connection = instead or entry.manifest.connection_id
        if connection not in self._sinks:
            self._sinks[connection] = self.open_sink(connection)
        return connection, *self._sinks[connection]

    def refuse(self, entry: Entry, connection: str, problem: str | None) -> None:
        """Mark a connection as refusing deliveries, so that its other entries are not even read."""
        log.debug("Connection %s refuses deliveries: %s", connection, problem)
        instead = self.connection if entry.manifest.content == "proposals" else None
        self._refusing.add(instead or entry.name.connection)


def _count(groups: _Groups) -> int:
    return sum(map(len, groups.values()))


class _Turn:
    """Delivery of one entry, when its turn in a batch comes.

    :ivar deadline: deadline of the delivery; ``None`` if it has not begun.
    """

    def __init__(self, drain: Drain, ready: _Ready, lease: Lease, due: Deadline, *, is_first: bool) -> None:
        self._drain = drain
        self._ready = ready
        self._lease = lease
        self._due = due
        self._is_first = is_first
        self._connection, self._sink, self._refusal = drain.sink_of(ready.entry)
        self._sending = Sending(self._sink, ready.sent) if self._sink is not None else None
        self._delivery: Delivery | None = None
        self.deadline: Deadline | None = None

    def begin(self) -> Deadline | None:
        """Return the deadline of the delivery; ``None`` if it may not begin any more."""
        seconds = self._drain.seconds_for(self._ready.entry.name.group, is_first=self._is_first)
        if seconds is not None and (self._is_first or not self._due.expired):
            # No delivery outlives the lease: another drainer may then hold the entries.
            self.deadline = Deadline.after(min(seconds, self._lease.until.remaining()))
        return self.deadline

    def run(self, deadline: Deadline) -> None:
        """Deliver, unless the connection refuses."""
        breaker = self._drain.breaker(self._connection)
        if self._sending is not None:
            self._refusal = breaker.refusal()
        if self._sending is None or self._refusal is not None:
            self._drain.refuse(self._ready.entry, self._connection, self._refusal)
            self._delivery = Delivery(0, pending=tuple(self._ready.sent), problem=self._refusal)
            return
        self._sending.run(deadline)
        self._delivery = self._sending.outcome(in_time=True)
        breaker.record(self._delivery)

    def delivery(self, *, in_time: bool) -> Delivery:
        """Return the result of a delivery that began; ``in_time`` says whether :meth:`run` ended."""
        if (not in_time or self._delivery is None) and self._sending is not None:
            self._delivery = self._sending.outcome(in_time=False)
            self._drain.breaker(self._connection).record(self._delivery)
        return self._delivery or Delivery(0, pending=tuple(self._ready.sent), problem=self._refusal)

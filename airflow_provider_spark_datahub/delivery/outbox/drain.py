"""Drain: delivers the entries of an outbox in order and within limits, while other drainers may do the same."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import CircuitBreaker
from airflow_provider_spark_datahub.delivery.outbox.entries import DAY_SECONDS, Entry, Outbox, SettledBatch
from airflow_provider_spark_datahub.delivery.outbox.format import EntryFormatError, EntryName, Manifest, upsert_hash
from airflow_provider_spark_datahub.delivery.outbox.lease import LEASE_SECONDS, Lease
from airflow_provider_spark_datahub.delivery.sink import Delivery, OutboxItem, Sink

log = logging.getLogger(__name__)

_Send = Callable[[Entry, Sequence[OutboxItem]], Delivery]
"""Delivers items of an entry."""
Settled = Callable[[Entry], None]
"""Called with an entry whose items are all delivered or rejected."""
Finish = Callable[[Entry, bool], Entry | None]
"""Converts the events of an unfinished entry; returns ``None`` if its attempt is not over yet.

The second argument says whether a later attempt of the task has begun; then the entry's own is certainly over.
"""

_PASSES = 5
"""How often a drain comes back to the entries that other drainers held."""


@dataclass(frozen=True, slots=True)
class _Settlement:
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
        """Whether all items were delivered or rejected, now or before."""
        return self.remaining is None and self.damage is None and not (self.delivery and self.delivery.pending)


def deliver_in_order(
    entries: Iterable[Entry],
    send: _Send,
    finish: Finish | None = None,
    settled: Settled | None = None,
    batch: SettledBatch | None = None,
) -> Iterator[_Settlement]:
    """Deliver the entries of one task instance for one connection, the oldest first, until one of them stays.

    Items that would overwrite what a later attempt or run of the task delivered are left out. An entry that is too old
    goes to the quarantine if it fails once more. The caller holds the lease of the entries.

    :param finish: without it, an unfinished entry stays.
    :param settled: called for each delivered entry, before it is yielded.
    :param batch: removes the settled entries later, with others. The caller commits it before it releases the lease.
    :raises OSError: if the outbox cannot be read or written, or an entry changed since it was listed.
    """
    listed = list(entries)
    for number, entry in enumerate(listed):
        later = listed[number + 1 :]
        try:
            settlement = _finish_and_deliver(entry, later, send, finish, batch)
        except EntryFormatError as error:
            entry.set_aside(str(error))
            settlement = _Settlement(entry, None, None, str(error))
        if settled is not None and settlement.is_delivered:
            settled(settlement.entry)
        yield settlement
        if settlement.remaining is not None:
            log.debug("Skipped %d entries behind %s", len(later), entry)
            return


def _finish_and_deliver(
    entry: Entry, later: Sequence[Entry], send: _Send, finish: Finish | None, batch: SettledBatch | None
) -> _Settlement:
    ready: Entry | None = entry
    if entry.manifest.state == "unfinished":
        followed = any(other.name.try_number > entry.name.try_number for other in later)
        ready = finish(entry, followed) if finish else None
    if ready is None:
        log.debug("Its attempt is not over: %s", entry)
        return _Settlement(entry, None, entry)
    return _deliver(ready, later, send, batch)


def _deliver(entry: Entry, later: Sequence[Entry], send: _Send, batch: SettledBatch | None) -> _Settlement:
    receipt, newer = entry.outbox.receipts.find(entry.name, entry.manifest)
    if receipt is not None:
        entry.discard()
        return _Settlement(entry, None, None)
    newer.update(digits for other in later for digits in other.manifest.upserts)
    items = entry.items()
    sent = [item for item in items if upsert_hash(item) not in newer] if newer else list(items)
    log.debug("Delivering %d of %d items of %s", len(sent), len(items), entry)
    delivery = send(entry, sent)
    remaining = entry.settle(delivery, sent, len(items) - len(sent), batch)
    max_age = entry.outbox.limits.max_age
    if remaining is not None and remaining.age > max_age:
        remaining.quarantine(
            f"it waited longer than {max_age / DAY_SECONDS:g} days (outbox_max_age); at last: {delivery.problem}"
        )
        remaining = None
    return _Settlement(entry, delivery, remaining, superseded=len(items) - len(sent))


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """Limits of one drain.

    :param seconds: for all of it; ``None``: no limit.
    :param entry_seconds: for each entry.
    :param entries: how many entries it delivers at most; ``None``: no limit.
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
    :param waiting: entries that stay, for whatever reason.
    :param elsewhere: entries that another drainer holds.
    :param corrupt: entries that were set aside, since they are damaged.
    :param superseded: items that were not sent, since later attempts or runs had delivered the same aspects.
    :param problems: why some of them stay, each once.
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
        """The counts in one line."""
        text = (
            f"{self.settled} entries settled ({self.delivered} proposals delivered, {self.rejected} rejected), "
            f"{self.waiting} pending"
        )
        text = f"{text}, {self.superseded} proposals superseded by later runs" if self.superseded else text
        text = f"{text}, {self.corrupt} damaged and set aside" if self.corrupt else text
        return f"{text}, {self.elsewhere} in the hands of other drainers" if self.elsewhere else text

    def to_obj(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {**asdict(self), "problems": list(self.problems)}


@dataclass
class Drain:
    """One delivery of an outbox's entries, each through its own connection. Used once.

    Several drains may work on one outbox, in threads, processes or on several hosts: a lease keeps a task instance's
    entries with one of them. Entries are taken by age.

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
    finish: Finish | None = None
    progress: Callable[[int], None] | None = None
    settled: Settled | None = None
    breaker: Callable[[str], CircuitBreaker] = CircuitBreaker.for_connection
    sleep: Callable[[float], None] = time.sleep
    drained: _DrainResult = field(default_factory=_DrainResult)
    _sinks: dict[str, tuple[Sink | None, str | None]] = field(default_factory=dict)
    _refusing: set[str] = field(default_factory=set)
    _leases: list[Lease] = field(default_factory=list)
    _settled_tasks: set[str] = field(default_factory=set)

    def run(self, names: Iterable[EntryName] | None = None) -> _DrainResult:
        """Deliver the entries.

        :param names: of the entries; ``None``: all of the outbox.
        :raises OSError: if the outbox cannot be listed, or expired receipts cannot be removed.
        """
        self._batch = SettledBatch(self.outbox)
        self._deadline = Deadline.after(self.limits.seconds if self.limits.seconds is not None else float("inf"))
        listed = self.outbox.names() if names is None else names
        groups = Counter(name.group for name in listed if self._is_wanted(name))
        log.debug("Draining %d entries of %d task instances in %s", groups.total(), len(groups), self.outbox)
        try:
            self._drain_groups(groups)
            if names is None:
                self.outbox.usage.measure()
                self.outbox.expire_receipts()
            else:
                for task in self._settled_tasks:
                    self.outbox.expire_receipts(task)
        finally:
            self._commit()
            for sink, _ in self._sinks.values():
                if sink is not None:
                    sink.close()
        log.debug("Drained %s: %s", self.outbox, self.drained.sentence)
        return self.drained

    def _drain_groups(self, groups: Counter[tuple[str, str]]) -> None:
        for number in range(1, _PASSES + 1):
            groups = Counter({group: count for group, count in groups.items() if not self._drain_group(group, count)})
            self._commit()
            if not groups or self._stopped():
                break
            if number < _PASSES:
                # Others hold these. They finish soon, or die and leave a lease that expires.
                self.sleep(min(self._deadline.remaining(), number * (0.1 + random.random() / 5)))
        self.drained.elsewhere = groups.total()

    def _is_wanted(self, name: EntryName) -> bool:
        if self.wanted is None:
            return True
        entry = self.outbox.entry(name)
        return entry is not None and self.wanted(entry.manifest)

    def _stopped(self) -> bool:
        enough = self.limits.entries is not None and self.drained.settled >= self.limits.entries
        return enough or self._deadline.expired

    def _drain_group(self, group: tuple[str, str], count: int) -> bool:
        """Return whether the group is processed; False if another drainer holds it."""
        if self._stopped() or (self.connection or group[1]) in self._refusing:
            reason = "the drain is at its limit" if self._stopped() else "its connection refuses deliveries"
            log.debug("Skipped %d entries of %s: %s", count, ".".join(group), reason)
            self.drained.waiting += count
        else:
            try:
                lease = Lease.take(self.outbox.storage, group, max(LEASE_SECONDS, 2 * self.limits.entry_seconds))
                if lease is None:
                    return False
                self._leases.append(lease)
                self._drain_leased(group, lease)
            except OSError as error:
                log.debug("Skipped the rest of %s: %s", ".".join(group), error)
                self.drained.problems[str(error)] = None
            except Exception as error:  # noqa: BLE001 (a defect that one entry hits must not stop the others)
                self._report_defect(group, error)
            if not self._batch or self._batch.is_due:
                self._commit()
        if self.progress:
            self.progress(count)
        return True

    def _commit(self) -> None:
        """Remove the settled entries, and release the leases."""
        try:
            self._batch.commit()
        except OSError as error:
            self.drained.problems[str(error)] = None
        for lease in self._leases:
            lease.release()
        self._leases.clear()

    def _report_defect(self, group: tuple[str, str], error: Exception) -> None:
        from airflow_provider_spark_datahub.conversion import redacted_trace

        log.warning("Could not deliver the entries of %s.\n%s", ".".join(group), redacted_trace(error))
        self.drained.problems[f"{'.'.join(group)}: {type(error).__name__}; the log has its trace"] = None

    def _drain_leased(self, group: tuple[str, str], lease: Lease) -> None:
        instance, connection = group
        # What another drainer has settled since is not listed any more.
        entries = [entry for entry in self.outbox.entries(instance) if entry.name.connection == connection]
        settled = corrupt = 0
        try:
            delivered = deliver_in_order(entries, self._send_under(lease), self.finish, self.settled, self._batch)
            for settlement in delivered:
                if settlement.damage is not None:
                    corrupt += 1
                    self.drained.problems[f"{settlement.entry} was set aside: {settlement.damage}"] = None
                elif settlement.remaining is None:
                    settled += 1
                    self._settled_tasks.add(settlement.entry.manifest.key.task)
                self.drained.superseded += settlement.superseded
                if delivery := settlement.delivery:
                    self.drained.delivered += delivery.delivered
                    self.drained.rejected += len(delivery.rejected)
                    if delivery.problem:
                        self.drained.problems[delivery.problem] = None
                if self._stopped() or not lease.renew():
                    break
        finally:
            self.drained.settled += settled
            self.drained.corrupt += corrupt
            self.drained.waiting += len(entries) - settled - corrupt

    def _send_under(self, lease: Lease) -> _Send:
        def send(entry: Entry, items: Sequence[OutboxItem]) -> Delivery:
            # Another connection to DataHub is not for raw events.
            instead = self.connection if entry.manifest.content == "proposals" else None
            connection = instead or entry.manifest.connection_id
            if connection not in self._sinks:
                self._sinks[connection] = self.open_sink(connection)
            sink, problem = self._sinks[connection]
            breaker = self.breaker(connection)
            problem = problem if sink is None else breaker.refusal()
            if sink is None or problem is not None:
                log.debug("Connection %s refuses deliveries: %s", connection, problem)
                # The entries behind it need not be read.
                self._refusing.add(instead or entry.name.connection)
                return Delivery(0, pending=tuple(items), problem=problem)
            # Nothing begins after the lease has ended: another drainer may hold it then.
            seconds = min(self.limits.entry_seconds, self._deadline.remaining(), lease.until.remaining())
            delivery = sink.deliver(items, Deadline.after(seconds))
            breaker.record(delivery)
            return delivery

        return send

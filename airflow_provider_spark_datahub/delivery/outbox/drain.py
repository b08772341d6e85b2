"""Delivers what waits in an outbox: safe beside other drainers, in order, within limits."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import CircuitBreaker, breaker_of
from airflow_provider_spark_datahub.delivery.outbox.entries import Entry, Outbox
from airflow_provider_spark_datahub.delivery.outbox.format import (
    EntryFormatError,
    EntryName,
    Manifest,
    upsert_hash,
)
from airflow_provider_spark_datahub.delivery.outbox.lease import LEASE_SECONDS, Lease, take_lease
from airflow_provider_spark_datahub.delivery.sink import Delivery, Sink

Send = Callable[[Entry, Sequence[Proposal]], Delivery]
"""Delivers an entry's proposals."""
Finish = Callable[[Entry, bool], Entry | None]
"""Converts the events of an unfinished entry; ``None`` where its try is not over yet. It surely is where a later try of
the task has begun, which the second argument tells."""

_PASSES = 5
"""How often a drain comes back to what other drainers held."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one entry.

    :param delivery: ``None`` where there was nothing to send: it was delivered before.
    :param remaining: the entry as it is now; ``None`` where nothing of it is pending.
    """

    entry: Entry
    delivery: Delivery | None
    remaining: Entry | None


def deliver_in_order(entries: Iterable[Entry], send: Send, finish: Finish | None = None) -> Iterator[Settled]:
    """Deliver the entries of one task instance for one connection, the oldest first, until one of them stays.

    What would overwrite what a later try or run of the task delivered is left out. An entry that is too old and fails
    once more goes to the quarantine.

    The caller holds their lease.

    :param finish: without it, an unfinished entry stays.
    :raises EntryFormatError: an entry changed since it was listed.
    :raises OSError: the outbox cannot be read or written.
    """
    listed = list(entries)
    for number, entry in enumerate(listed):
        later = listed[number + 1 :]
        ready = _finished(entry, later, finish) if entry.manifest.state == "unfinished" else entry
        if ready is None:
            yield Settled(entry, None, entry)
            return
        settled = _deliver(ready, later, send)
        yield settled
        if settled.remaining is not None:
            return


def _finished(entry: Entry, later: Sequence[Entry], finish: Finish | None) -> Entry | None:
    followed = any(one.name.try_number > entry.name.try_number for one in later)
    return finish(entry, followed) if finish else None


def _deliver(entry: Entry, later: Sequence[Entry], send: Send) -> Settled:
    receipt, newer = entry.outbox.receipts.about(entry.name, entry.manifest)
    if receipt is not None:
        entry.discard()
        return Settled(entry, None, None)
    newer.update(digits for one in later for digits in one.manifest.upserts)
    proposals = entry.proposals()
    sent = [one for one in proposals if upsert_hash(one) not in newer]
    delivery = send(entry, sent)
    remaining = entry.settle(delivery, sent, superseded=len(proposals) - len(sent))
    max_age = entry.outbox.limits.max_age
    if remaining is not None and remaining.age > max_age:
        remaining.quarantine(
            f"it waited longer than {max_age / 86_400:g} days (outbox_max_age); at last: {delivery.problem}"
        )
        remaining = None
    return Settled(entry, delivery, remaining)


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """What one drain may do.

    :param seconds: for all of it; ``None``: no limit.
    :param entry_seconds: for each entry.
    :param entries: how many entries it delivers at most; ``None``: no limit.
    """

    seconds: float | None = None
    entry_seconds: float = 60.0
    entries: int | None = None


@dataclass
class Drained:
    """What became of the entries of an outbox.

    :param settled: entries of which nothing is pending any more.
    :param delivered: proposals that were acknowledged; likewise rejected.
    :param waiting: entries that stay, for whatever reason.
    :param elsewhere: entries that another drainer holds.
    :param problems: why some of them stay, each told once.
    """

    settled: int = 0
    delivered: int = 0
    rejected: int = 0
    waiting: int = 0
    elsewhere: int = 0
    problems: dict[str, None] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The counts in one line."""
        text = (
            f"{self.settled} entries settled ({self.delivered} proposals delivered, {self.rejected} rejected), "
            f"{self.waiting} pending"
        )
        return f"{text}, {self.elsewhere} in the hands of other drainers" if self.elsewhere else text

    def to_obj(self) -> dict[str, Any]:
        """The same as JSON."""
        return {**asdict(self), "problems": list(self.problems)}


@dataclass
class Drain:
    """Delivers the entries of an outbox, each through its own connection. Used once.

    Several may work on one outbox, in threads, processes or on hosts: a lease keeps a task instance's entries with one
    of them. Entries are taken in the order of their age.

    :param open_sink: from a connection id to its sink, or to the reason why there is none.
    :param connection: used instead of the entries' own.
    :param wanted: which entries are meant; older tries of the same task instances go with them. All entries where it
        is not given.
    :param finish: converts what a try left unfinished; without it, that stays.
    :param progress: called with the number of entries that are done with.
    :param breaker: of a connection.
    """

    outbox: Outbox
    open_sink: Callable[[str], tuple[Sink | None, str | None]]
    limits: DrainLimits = field(default_factory=DrainLimits)
    connection: str | None = None
    wanted: Callable[[Manifest], bool] | None = None
    finish: Finish | None = None
    progress: Callable[[int], None] | None = None
    breaker: Callable[[str], CircuitBreaker] = breaker_of
    sleep: Callable[[float], None] = time.sleep
    drained: Drained = field(default_factory=Drained)
    _sinks: dict[str, tuple[Sink | None, str | None]] = field(default_factory=dict)
    _refusing: set[str] = field(default_factory=set)

    def run(self, names: Iterable[EntryName] | None = None) -> Drained:
        """Drain.

        :param names: the entries; all of the outbox where they are not given.
        :raises OSError: the outbox cannot be listed, or receipts that are too old cannot be removed.
        """
        self._deadline = Deadline.after(self.limits.seconds if self.limits.seconds is not None else float("inf"))
        listed = self.outbox.names() if names is None else names
        try:
            self._drain_groups(Counter(name.group for name in listed if self._is_wanted(name)))
            self.outbox.expire_receipts()
        finally:
            for sink, _ in self._sinks.values():
                if sink is not None:
                    sink.close()
        return self.drained

    def _drain_groups(self, groups: Counter[tuple[str, str]]) -> None:
        for attempt in range(1, _PASSES + 1):
            groups = Counter({group: count for group, count in groups.items() if not self._drain_group(group, count)})
            if not groups or self._stopped():
                break
            if attempt < _PASSES:
                # Others hold these: they are done soon, or die and leave a lease that is no longer respected.
                self.sleep(min(self._deadline.remaining(), attempt * (0.1 + random.random() / 5)))
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
        """Whether the group is done with; not where another drainer holds it."""
        if self._stopped() or (self.connection or group[1]) in self._refusing:
            self.drained.waiting += count
        else:
            try:
                lease = take_lease(self.outbox.storage, group, max(LEASE_SECONDS, 2 * self.limits.entry_seconds))
                if lease is None:
                    return False
                with lease:
                    self._drain_leased(group, lease)
            except (EntryFormatError, OSError) as error:
                self.drained.problems[str(error)] = None
        if self.progress:
            self.progress(count)
        return True

    def _drain_leased(self, group: tuple[str, str], lease: Lease) -> None:
        instance, connection = group
        # What another drainer has settled since is not listed any more.
        entries = [one for one in self.outbox.entries(instance) if one.name.connection == connection]
        settled_here = 0
        try:
            for settled in deliver_in_order(entries, self._send_under(lease), self.finish):
                settled_here += settled.remaining is None
                self._count(settled)
                if self._stopped() or not lease.renew():
                    break
        finally:
            self.drained.settled += settled_here
            self.drained.waiting += len(entries) - settled_here

    def _count(self, settled: Settled) -> None:
        if settled.delivery is not None:
            self.drained.delivered += settled.delivery.delivered
            self.drained.rejected += len(settled.delivery.rejected)
            if settled.delivery.problem:
                self.drained.problems[settled.delivery.problem] = None

    def _send_under(self, lease: Lease) -> Send:
        def send(entry: Entry, proposals: Sequence[Proposal]) -> Delivery:
            # Another connection to DataHub is none for events.
            instead = self.connection if entry.manifest.content == "proposals" else None
            connection = instead or entry.manifest.connection_id
            if connection not in self._sinks:
                self._sinks[connection] = self.open_sink(connection)
            sink, problem = self._sinks[connection]
            breaker = self.breaker(connection)
            problem = problem if sink is None else breaker.refusal()
            if sink is None or problem is not None:
                # The entries behind it need not be looked at.
                self._refusing.add(instead or entry.name.connection)
                return Delivery(0, pending=tuple(proposals), problem=problem)
            # Nothing is begun after the lease has ended: another drainer may have it then.
            seconds = min(self.limits.entry_seconds, self._deadline.remaining(), lease.until.remaining())
            delivery = sink.deliver(proposals, Deadline.after(seconds))
            breaker.record(delivery)
            return delivery

        return send

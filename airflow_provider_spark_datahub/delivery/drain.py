"""Delivers what waits in an outbox, in the order that keeps an older try from overwriting a newer one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox import Entry, EntryFormatError
from airflow_provider_spark_datahub.delivery.sink import Delivery, Sink


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one entry. :param remaining: the entry as it is now; ``None`` where nothing of it is pending."""

    entry: Entry
    delivery: Delivery
    remaining: Entry | None


def deliver_in_order(entries: Iterable[Entry], send: Callable[[Entry], Delivery]) -> Iterator[Settled]:
    """Deliver the entries of one task instance, the oldest first, until one of them stays pending.

    :raises EntryFormatError: an entry changed since it was listed.
    :raises OSError: the outbox cannot be read or written.
    """
    for entry in entries:
        delivery = send(entry)
        settled = Settled(entry, delivery, entry.settle(delivery))
        yield settled
        if settled.remaining is not None:
            return


@dataclass
class Drained:
    """What became of the proposals of an outbox.

    :param problems: why some of them stay, each told once.
    """

    delivered: int = 0
    rejected: int = 0
    pending: int = 0
    problems: dict[str, None] = field(default_factory=dict)


def drain(
    entries: Iterable[Entry],
    open_sink: Callable[[str], tuple[Sink | None, str | None]],
    *,
    connection: str | None = None,
    seconds: float = 60.0,
) -> Drained:
    """Deliver all entries of an outbox, each through its own connection.

    An older try of a task never overwrites what a newer one delivered: where one stays pending, the later ones of the
    same task and connection wait.

    :param entries: those of one task instance in the order of its tries.
    :param open_sink: from a connection id to its sink, or to the reason why there is none.
    :param connection: used instead of the entries' own.
    :param seconds: for each entry.
    """
    drained = Drained()
    open_once = cache(open_sink)

    def send(entry: Entry) -> Delivery:
        sink, problem = open_once(connection or entry.manifest.connection_id)
        if sink is None:
            return Delivery(0, pending=entry.proposals(), problem=problem)
        return sink.deliver(entry.proposals(), Deadline.after(seconds))

    groups: dict[tuple[Path, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.path.parent, entry.manifest.connection_id), []).append(entry)
    for tries in groups.values():
        waiting = {entry.path: entry.manifest.pending for entry in tries}
        try:
            for settled in deliver_in_order(tries, send):
                drained.delivered += settled.delivery.delivered
                drained.rejected += len(settled.delivery.rejected)
                waiting[settled.entry.path] = len(settled.delivery.pending)
                if settled.delivery.problem:
                    drained.problems[settled.delivery.problem] = None
        except (EntryFormatError, OSError) as error:
            drained.problems[str(error)] = None
        drained.pending += sum(waiting.values())
    return drained

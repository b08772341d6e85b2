"""Leases of an outbox's entries: only one drainer at a time, on all hosts, delivers those of a task
instance.

Tests: ``tests/delivery/test_outbox_lease.py``.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Self

import msgspec

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.format import (
    EntryFormatError,
    Folder,
    seal,
    unseal,
)
from airflow_provider_spark_datahub.delivery.outbox.processes import is_of_nobody, mark
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.foundation.files import UnreadFileError
from airflow_provider_spark_datahub.foundation.text import counted

log = logging.getLogger(__name__)


_MOST_SECONDS = 3_600.0
"""Longest time for which a lease is respected, whatever it says: a clock may be wrong, or the
content damaged.
"""
_LOOKS, _LOOK_SECONDS = 6, 0.02
"""How often a process looks whether others have given way to it, and the pause between two looks.
"""
_abandoned: set[str] = set()
"""Leases of this process that it could not remove."""


_Group = tuple[str, str]
"""Task instance and connection: :attr:`EntryName.group
<airflow_provider_spark_datahub.delivery.outbox.format.EntryName.group>`."""
_OF_MANY = "many"
"""Beginning of the name of a lease whose groups are only in its content."""


@dataclass
class Lease:
    """Right to deliver groups of entries until it expires. A context manager that releases itself.

    Taking and renewing a lease raise OSError if the outbox refuses.

    :param groups: the groups of entries that it covers.
    :param until: the moment at which it ends for its holder; a delivery begins no request after it.
    :param run: the DAG run of its groups, whose other instances it does not exclude; empty if that
        is not known.
    :param delivers: whether it excludes other runs of their tasks, too, if they deliver: DataHub
        keeps what it receives last, so two runs of a task are not delivered at the same time.
    """

    SECONDS: ClassVar = 120.0
    """How long a lease lasts if nobody asks for more."""

    _storage: OutboxStorage = field(repr=False)
    name: str
    groups: frozenset[_Group]
    seconds: float
    until: Deadline
    run: str = ""
    delivers: bool = True

    @classmethod
    def take(
        cls,
        storage: OutboxStorage,
        *groups: _Group,
        seconds: float = SECONDS,
        run: str = "",
        delivers: bool = True,
    ) -> Self | None:
        """Take one lease for those groups of entries that are free; return ``None`` if other
        processes hold all.

        :param seconds: time after which other processes ignore it, by the wall clocks of the hosts.
        """
        # All leases are in one folder: making and removing a folder for each costs more than the
        # lease itself.
        named = ".".join(groups[0]) if len(groups) == 1 else _OF_MANY
        name = f"{Folder.LEASES}/{named}.{secrets.token_hex(8)}.json"
        seconds = min(seconds, _MOST_SECONDS)
        return cls(
            storage, name, frozenset(groups), seconds, Deadline.after(seconds), run, delivers
        )._taken()

    def _taken(self) -> Self | None:
        """Write the lease, and return it with the groups that it holds then.

        Each process first writes an object of its own, and then lists those of all others. It holds
        the groups that none of those excludes. If two come at the same time, the later listing
        contains both, since a listing shows everything that was written before it. This needs
        neither locks nor conditional writes.
        """
        self.groups = self.groups.difference(self._excluded())
        if not self.groups:
            log.debug("Lease refused, other processes hold its groups: %s", self.name)
            return None
        try:
            self._write()
            self._contend()
        except OSError:
            self.release()
            raise
        if not self.groups:
            self.release()
            log.debug("Lease refused, another process came at the same time: %s", self.name)
            return None
        log.debug(
            "Lease taken for %s and %.0f s: %s",
            counted(len(self.groups), "task instance"),
            self.seconds,
            self.name,
        )
        return self

    def _contend(self) -> None:
        """Leave out the groups that other leases exclude.

        Of processes that came at the same time, the one whose lease has the first name stays until
        the others have given way; else they could meet again and again.
        """
        for look in range(_LOOKS):
            excluded = self._excluded()
            lost = {
                group for group, name in excluded.items() if name < self.name or look == _LOOKS - 1
            }
            self.groups -= lost
            if lost and self.groups:
                self._write()
            if len(lost) == len(excluded):
                return
            time.sleep(_LOOK_SECONDS)

    def _excluded(self) -> dict[_Group, str]:
        """Return the groups that leases of others exclude, each with the first of them; remove
        leases that are over.
        """
        excluded: dict[_Group, str] = {}
        for name, holder in self._others():
            if holder is not None:
                for group in holder.excluded(self.groups, self.run, delivers=self.delivers):
                    excluded.setdefault(group, name)
            else:
                with suppress(OSError):
                    self._storage.remove(name)
        return excluded

    def _others(self) -> Iterator[tuple[str, _Holder | None]]:
        """Yield the leases of others that may have to do with these tasks, by name; ``None`` for
        one that is over.
        """
        tasks = {*map(_task, self.groups)}
        for name in self._storage.names(Folder.LEASES):
            named = _named_group(name)
            if name != self.name and (named is None or _task(named) in tasks):
                yield name, _holder(self._storage, name)

    def _write(self) -> None:
        until = Deadline.after(self.seconds)
        expires_ms = round(self._storage.now_ms() + self.seconds * 1000)
        holder = _Holder(mark(), expires_ms, self.groups, self.run, self.delivers)
        self._storage.write(self.name, [seal(holder)], sync=False)
        self.until = until

    def take_turn(self, deadline: Deadline) -> bool:
        """Begin to deliver as soon as no other run of the task is being delivered.

        :returns: False if that is not before the deadline.
        """
        groups = self.groups
        while not self.delivers:
            self.delivers = True
            self._write()
            self._contend()
            if not self.groups:
                self.groups, self.delivers = groups, False
                self._write()
                if deadline.expired:
                    log.debug("Another run of the task is being delivered: %s", self.name)
                    return False
                time.sleep(_pause(deadline))
        return True

    @classmethod
    def wait_for(
        cls,
        storage: OutboxStorage,
        group: _Group,
        deadline: Deadline,
        *,
        seconds: float = SECONDS,
        run: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> Self | None:
        """Take the lease as soon as it is free; return ``None`` if it is not before the deadline."""
        while True:
            lease = cls.take(storage, group, seconds=seconds, run=run)
            if lease is not None or deadline.expired:
                return lease
            sleep(_pause(deadline))

    def renew(self) -> bool:
        """Extend the lease to its whole time if half of it is gone; return False if it has expired."""
        if self.until.expired:
            log.debug("Lease expired: %s", self.name)
            return False
        if self.until.remaining() < self.seconds / 2:
            self._write()
        return True

    def release(self) -> None:
        """Give up the lease. If the outbox refuses, this process ignores it from now on, and for
        others it expires.
        """
        try:
            self._storage.remove(self.name)
        except OSError as error:
            _abandoned.add(self.name)
            log.debug("Lease abandoned: %s: %s", self.name, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Holder(msgspec.Struct):
    """Content of a lease.

    :param owner: :func:`.mark` of its process.
    :param expires_ms: by the clock of the holder.
    """

    owner: str
    expires_ms: int
    groups: frozenset[_Group]
    run: str
    delivers: bool

    def excluded(self, groups: Iterable[_Group], run: str, *, delivers: bool) -> Iterator[_Group]:
        """Yield the groups that no other lease of this run may cover."""
        is_other_run = delivers and self.delivers and not (run and run == self.run)
        tasks = {*map(_task, self.groups)} if is_other_run else ()
        for group in groups:
            if group in self.groups or _task(group) in tasks:
                yield group


def _pause(deadline: Deadline) -> float:
    """Return random seconds until the next attempt, so that two processes that meet do not collide
    again and again.
    """
    return min(deadline.remaining(), 0.05 + secrets.randbelow(200) / 1000)


def _named_group(name: str) -> _Group | None:
    parts = name.removeprefix(f"{Folder.LEASES}/").rsplit(".", 3)
    return (parts[0], parts[1]) if len(parts) == 4 else None


def _task(group: _Group) -> _Group:
    """Return the readable part of a task instance's name, which is that of its task, and the
    connection.

    Tasks with nearly the same names may share it, and then exclude each other without need.
    """
    return group[0].rpartition("-")[0], group[1]


def _holder(storage: OutboxStorage, name: str) -> _Holder | None:
    """Return the content of a lease; ``None`` if it is not held any more."""
    if name in _abandoned:
        return None
    try:
        holder = unseal(storage.read(name), _Holder)[0]
    except (FileNotFoundError, UnreadFileError, EntryFormatError) as error:
        log.debug("Not a lease: %s: %s", name, error)
        return None
    now_ms = storage.now_ms()
    is_current = now_ms < holder.expires_ms <= now_ms + (_MOST_SECONDS + _TOLERANCE_SECONDS) * 1000
    return holder if is_current and not is_of_nobody(holder.owner) else None


_TOLERANCE_SECONDS = 2.0
"""Difference between the clocks of two hosts that does not matter."""

"""Leases of an outbox's entries: only one drainer at a time, on all hosts, delivers those of a task instance."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Self

import msgspec

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.format import (
    EntryFormatError,
    Folder,
    Naming,
    seal,
    unseal,
)
from airflow_provider_spark_datahub.delivery.outbox.processes import is_gone, machine, process_start
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.foundation.files import UnreadFileError
from airflow_provider_spark_datahub.foundation.text import counted

log = logging.getLogger(__name__)


_MOST_SECONDS = 3_600.0
"""Longest time for which a lease is respected, whatever it says: a clock may be wrong, or the content damaged."""
_LOOKS, _LOOK_SECONDS = 6, 0.02
"""How often a process looks whether others have given way to it, and the pause between two looks."""
_abandoned: set[str] = set()
"""Leases of this process that it could not remove."""


_Group = tuple[str, str]
"""Task instance and connection: :attr:`EntryName.group
<airflow_provider_spark_datahub.delivery.outbox.format.EntryName.group>`."""


@dataclass(slots=True)
class Lease:
    """Right to deliver groups of entries until it expires. A context manager that releases itself.

    Two leases exclude each other if they have a group in common, or if both deliver different runs of one task: DataHub
    keeps what it receives last. Taking and renewing a lease raise OSError if the outbox refuses.

    :param groups: the groups of entries that it covers.
    :param until: the moment at which it ends for its holder; a delivery begins no request after it.
    :param run: the DAG run of its groups, whose other instances it does not exclude; empty if that is not known.
    :param delivers: False if it only excludes other processes from its groups, until :meth:`take_turn`.
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
        cls, storage: OutboxStorage, *groups: _Group, seconds: float = SECONDS, run: str = "", delivers: bool = True
    ) -> Self | None:
        """Take one lease for those groups of entries that are free; return ``None`` if other processes hold all.

        :param seconds: time after which other processes ignore it, by the wall clocks of the hosts.
        """
        prefix = f"{Folder.LEASES}/{'.'.join(groups[0])}." if len(groups) == 1 else Naming.LEASE_OF_MANY
        name = f"{prefix}{secrets.token_hex(8)}.json"
        return cls(storage, name, frozenset(groups), seconds, Deadline.after(seconds), run, delivers)._taken()

    def _taken(self) -> Self | None:
        """Write the lease, and return it with the groups that it holds then.

        Each process first writes an object of its own, and then lists those of all others. It holds the groups that
        none of those excludes. If two come at the same time, the later listing contains both, since a listing shows
        everything that was written before it. This needs neither locks nor conditional writes.
        """
        self.seconds = min(self.seconds, _MOST_SECONDS)
        self.groups = self.groups.difference(self._excluded()[0])
        if not self.groups:
            log.debug("Lease refused, other processes hold its groups: %s", self.name)
            return None
        try:
            self._write()
            over = self._contend()
        except OSError:
            self.release()
            raise
        if not self.groups:
            self.release()
            log.debug("Lease refused, another process came at the same time: %s", self.name)
            return None
        for name in over:
            with suppress(OSError):
                self._storage.remove(name)
        log.debug(
            "Lease taken for %s and %.0f s: %s", counted(len(self.groups), "task instance"), self.seconds, self.name
        )
        return self

    def _contend(self) -> list[str]:
        """Leave out the groups that other leases exclude; return the names of expired leases.

        Of processes that came at the same time, the one whose lease has the first name stays until the others have
        given way; else they could meet again and again.
        """
        over: list[str] = []
        for look in range(_LOOKS):
            excluded, over = self._excluded()
            lost = {group for group, name in excluded.items() if name < self.name or look == _LOOKS - 1}
            self.groups -= lost
            if lost and self.groups:
                self._write()
            if len(lost) == len(excluded):
                break
            time.sleep(_LOOK_SECONDS)
        return over

    def _excluded(self) -> tuple[dict[_Group, str], list[str]]:
        """Return the excluded groups, each with the first lease that excludes it, and the names of expired leases."""
        tasks: dict[_Group, list[_Group]] = {}
        for group in self.groups:
            tasks.setdefault(_task(group), []).append(group)
        excluded: dict[_Group, str] = {}
        over = []
        # All leases are in one folder: making and removing a folder for each costs more than the lease itself.
        for name in self._storage.names(Folder.LEASES):
            named = _named_group(name)
            if name == self.name or not (name.startswith(Naming.LEASE_OF_MANY) or (named and _task(named) in tasks)):
                continue
            holder = _holder(self._storage, name)
            if holder is None:
                over.append(name)
                continue
            for theirs in holder.groups or ([named] if named else []):
                groups = [theirs] if theirs in self.groups else []
                if self.delivers and holder.delivers and not (self.run and self.run == holder.run):
                    groups += tasks.get(_task(theirs), ())
                for group in groups:
                    excluded.setdefault(group, name)  # names are listed in their order
        return excluded, over

    def _write(self) -> None:
        until = Deadline.after(self.seconds)
        groups = sorted(self.groups) if self.name.startswith(Naming.LEASE_OF_MANY) else []
        process, expires_ms = os.getpid(), round(self._storage.now_ms() + self.seconds * 1000)
        owner = machine(), process, process_start(process)
        holder = _Holder(*owner, expires_ms, groups, self.run, self.delivers)
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
            if self.groups:
                break
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
            log.debug("Lease renewed for %.0f s: %s", self.seconds, self.name)
        return True

    def release(self) -> None:
        """Give up the lease. If the outbox refuses, this process ignores it from now on, and for others it expires."""
        try:
            self._storage.remove(self.name)
        except OSError as error:
            _abandoned.add(self.name)
            log.debug("Lease abandoned: %s: %s", self.name, error)
        else:
            log.debug("Lease released: %s", self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Holder(msgspec.Struct):
    """Content of a lease.

    :param started: :func:`process_start` of the process.
    :param expires_ms: by the clock of the holder.
    :param groups: if its name does not say it.
    """

    machine: str
    process: int
    started: int | None
    expires_ms: int
    groups: list[_Group] = []
    run: str = ""
    delivers: bool = True


def _pause(deadline: Deadline) -> float:
    """Return random seconds until the next attempt, so that two processes that meet do not collide again and again."""
    return min(deadline.remaining(), 0.05 + secrets.randbelow(200) / 1000)


def _named_group(name: str) -> _Group | None:
    parts = name.removeprefix(f"{Folder.LEASES}/").rsplit(".", 3)
    return (parts[0], parts[1]) if len(parts) == 4 else None


def _task(group: _Group) -> _Group:
    """Return the readable part of a task instance's name, which is that of its task, and the connection.

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
    return holder if is_current and not is_gone(holder.machine, holder.process, holder.started) else None


_TOLERANCE_SECONDS = 2.0
"""Difference between the clocks of two hosts that does not matter."""

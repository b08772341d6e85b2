"""Leases: of all drainers of an outbox, on all hosts, only one at a time delivers a task instance's entries."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import msgspec

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.format import LEASES, EntryFormatError, seal, unseal
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.files import NotRegularFileError

log = logging.getLogger(__name__)


def machine() -> str:
    """Return the host and, on Linux, the namespace of its process ids: containers may share a host's name."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (not a path)
    return f"{socket.gethostname()} {namespace}"


def is_gone(on: str, process: int) -> bool:
    """Return whether a process has ended; False if it is on another machine, which cannot be known from here.

    :param on: its :func:`machine`.
    """
    if on != machine():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


LEASE_SECONDS = 120.0


@dataclass(slots=True)
class Lease:
    """Right to deliver one group of entries until it expires. A context manager that releases itself.

    Taking and renewing it raise OSError if the outbox refuses.

    :param until: the moment at which it ends for its holder: a delivery under it begins nothing later.
    """

    _storage: OutboxStorage = field(repr=False)
    name: str
    seconds: float
    until: Deadline

    @classmethod
    def take(cls, storage: OutboxStorage, group: tuple[str, str], seconds: float = LEASE_SECONDS) -> Self | None:
        """Take the lease of a group of entries; return ``None`` if another process holds it.

        Each holder writes an object of its own, and holds the lease if it then sees no other one. If two come at the
        same time, the one with the later listing sees the other's object, since a listing shows everything written
        before it. So they never both hold it, though both may have to come again. This needs neither locks nor
        conditional writes.

        :param group: task instance and connection: :attr:`EntryName.group
            <airflow_provider_spark_datahub.delivery.outbox.format.EntryName.group>`.
        :param seconds: after which others ignore it, by the wall clocks of the hosts.
        """
        # One folder for all groups: making and removing a folder for each costs more than the lease itself.
        prefix = f"{LEASES}/{'.'.join(group)}."
        if any(_is_held(storage, name) for name in storage.names(LEASES) if name.startswith(prefix)):
            log.debug("Lease refused, another process holds it: %s", prefix)
            return None
        lease = cls(storage, f"{prefix}{secrets.token_hex(8)}.json", seconds, Deadline.after(seconds))
        storage.write(lease.name, [_content(seconds)], sync=False)
        others = [name for name in storage.names(LEASES) if name.startswith(prefix) and name != lease.name]
        if any(_is_held(storage, name) for name in others):
            storage.remove(lease.name)
            log.debug("Lease refused, another process came at the same time: %s", prefix)
            return None
        for name in others:
            storage.remove(name)
        log.debug("Lease taken for %.0f s: %s", seconds, lease.name)
        return lease

    @classmethod
    def wait_for(
        cls,
        storage: OutboxStorage,
        group: tuple[str, str],
        deadline: Deadline,
        *,
        seconds: float = LEASE_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Self | None:
        """Take the lease as soon as nobody else holds it; return ``None`` if that is not before the deadline."""
        while True:
            lease = cls.take(storage, group, seconds)
            if lease is not None or deadline.expired:
                return lease
            # Two that wait for each other must not go on in step.
            sleep(min(deadline.remaining(), 0.05 + secrets.randbelow(200) / 1000))

    def renew(self) -> bool:
        """Extend the lease to its whole time if half of it is gone.

        :returns: False if it has expired: others may hold it now.
        """
        if self.until.expired:
            log.debug("Lease expired: %s", self.name)
            return False
        if self.until.remaining() < self.seconds / 2:
            until = Deadline.after(self.seconds)
            self._storage.write(self.name, [_content(self.seconds)], sync=False)
            self.until = until
            log.debug("Lease renewed for %.0f s: %s", self.seconds, self.name)
        return True

    def release(self) -> None:
        """Give up the lease; if the outbox refuses, it expires."""
        with suppress(OSError):
            self._storage.remove(self.name)
        log.debug("Lease released: %s", self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Holder(msgspec.Struct):
    """Content of a lease."""

    machine: str
    process: int
    expires_ms: int


def _is_held(storage: OutboxStorage, name: str) -> bool:
    try:
        holder = msgspec.convert(unseal(storage.read(name))[0], _Holder)
    except (FileNotFoundError, NotRegularFileError, EntryFormatError, msgspec.ValidationError) as error:
        log.debug("Not a lease: %s: %s", name, error)
        return False
    return time.time() * 1000 < holder.expires_ms and not is_gone(holder.machine, holder.process)


def _content(seconds: float) -> bytes:
    holder = _Holder(machine(), os.getpid(), round((time.time() + seconds) * 1000))
    return seal(msgspec.structs.asdict(holder))

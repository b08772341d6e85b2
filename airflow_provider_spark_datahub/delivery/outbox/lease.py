"""Leases: of all drainers of an outbox, on all hosts, only one at a time delivers a task instance's entries."""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Self

import msgspec

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.format import LEASES, EntryFormatError, seal, unseal
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.files import NotRegularFileError

log = logging.getLogger(__name__)


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CGROUP = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mountinfo")


@cache
def machine() -> str:
    """Return the host and, on Linux, all that keeps this process's number apart from the same number elsewhere.

    Containers of different hosts may share a host's name, and the first namespace of process ids has the same number
    on every host. The boot id is different on each, and after each boot.
    """
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (not a path)
    container = re.search(r"[0-9a-f]{64}", _text(_CGROUP)) or re.search(r"[0-9a-f]{64}(?=/hostname)", _text(_MOUNTS))
    parts = (socket.gethostname(), namespace, _text(_BOOT_ID).strip(), container[0][:12] if container else "")
    return " ".join(part for part in parts if part)


def process_start(process: int) -> int | None:
    """Return when a process of this machine started, in ticks since the boot; ``None`` if that is not known."""
    # The second field, the command in parentheses, may contain anything.
    fields = _text(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def is_gone(on: str, process: int, started: int | None = None) -> bool:
    """Return whether a process has ended; False if it is on another machine, which cannot be known from here.

    :param on: its :func:`machine`.
    :param started: its :func:`process_start`: another process may have its number now. ``None`` if it is not known.
    """
    if on != machine():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    now = process_start(process) if started is not None else None
    return now is not None and now != started


LEASE_SECONDS = 120.0
_MOST_SECONDS = 3_600.0
"""No lease is respected for longer, whatever it says: a clock was wrong, or something wrote nonsense."""
_abandoned: set[str] = set()
"""Leases of this process that it could not remove."""


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
        others = [name for name in storage.names(LEASES) if name.startswith(prefix)]
        if storage.knows_time and any(_is_held(storage, name) for name in others):
            log.debug("Lease refused, another process holds it: %s", prefix)
            return None
        seconds = min(seconds, _MOST_SECONDS)
        lease = cls(storage, f"{prefix}{secrets.token_hex(8)}.json", seconds, Deadline.after(seconds))
        try:
            storage.write(lease.name, [_content(storage, seconds)], sync=False)
            storage.observe_time(lease.name)
            others = [name for name in storage.names(LEASES) if name.startswith(prefix) and name != lease.name]
            held = any(_is_held(storage, name) for name in others)
        except OSError:
            lease.release()
            raise
        if held:
            lease.release()
            log.debug("Lease refused, another process came at the same time: %s", prefix)
            return None
        for name in others:
            with suppress(OSError):
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
            self._storage.write(self.name, [_content(self._storage, self.seconds)], sync=False)
            self.until = until
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
    :param expires_ms: by the clock of the holder; :attr:`seconds` later than it was written.
    """

    machine: str
    process: int
    started: int | None
    expires_ms: int
    seconds: float


def _is_held(storage: OutboxStorage, name: str) -> bool:
    if name in _abandoned:
        return False
    try:
        holder = msgspec.convert(unseal(storage.read(name))[0], _Holder)
    except (FileNotFoundError, NotRegularFileError, EntryFormatError, msgspec.ValidationError) as error:
        log.debug("Not a lease: %s: %s", name, error)
        return False
    # By the storage's clock, if it has one: it wrote the lease, and knows what time it is now.
    written_ms = storage.modified_ms(name)
    expires_ms = holder.expires_ms if written_ms is None else written_ms + holder.seconds * 1000
    now_ms = storage.now_ms()
    is_current = now_ms < expires_ms <= now_ms + (_MOST_SECONDS + _ROUNDING_SECONDS) * 1000
    return is_current and not is_gone(holder.machine, holder.process, holder.started)


_ROUNDING_SECONDS = 2.0


def _content(storage: OutboxStorage, seconds: float) -> bytes:
    process = os.getpid()
    expires_ms = round(storage.now_ms() + seconds * 1000)
    return seal(msgspec.structs.asdict(_Holder(machine(), process, process_start(process), expires_ms, seconds)))

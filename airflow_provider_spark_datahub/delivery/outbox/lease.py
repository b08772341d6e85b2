"""Which process something belongs to, and whether that process is gone.

Leases: of all drainers of an outbox, on all hosts, one at a time delivers a task instance's entries.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.format import LEASES, json_line
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage


def machine() -> str:
    """The host, and on Linux the namespace that its process ids belong to: containers may share a host's name."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (it is no path)
    return f"{socket.gethostname()} {namespace}"


def is_gone(on: str, process: int) -> bool:
    """Whether a process has ended. False where it is of another machine: that cannot be told from here.

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
    """The right to deliver one group of entries, until it expires. A context manager that releases itself.

    :param until: the moment at which it ends for its holder: a delivery under it begins nothing later.
    """

    _storage: OutboxStorage = field(repr=False)
    name: str
    seconds: float
    until: Deadline

    def renew(self) -> bool:
        """Have the whole time again, where half of it is gone.

        :returns: False where it expired before: others may hold it now.
        :raises OSError: the outbox refuses.
        """
        if self.until.expired:
            return False
        if self.until.remaining() < self.seconds / 2:
            until = Deadline.after(self.seconds)
            self._storage.write(self.name, [_content(self.seconds)])
            self.until = until
        return True

    def release(self) -> None:
        """Give it up; where the outbox refuses, it expires."""
        with suppress(OSError):
            self._storage.remove(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def take_lease(storage: OutboxStorage, group: tuple[str, str], seconds: float = LEASE_SECONDS) -> Lease | None:
    """The lease of a group of entries, or ``None`` where another holds it.

    Each holder writes an object of its own, and holds the lease where it then sees no other one. Of two that come at
    the same time, the one whose listing is later sees the other's object, since a listing shows what was written
    before: never do both hold it; both may have to come again. This needs neither locks nor conditional writes.

    :param group: task instance and connection, as :attr:`EntryName.group
        <airflow_provider_spark_datahub.delivery.outbox.format.EntryName.group>` has them.
    :param seconds: after which it is no longer respected, by the wall clocks of the hosts.
    :raises OSError: the outbox refuses.
    """
    folder = f"{LEASES}/{'.'.join(group)}"
    if any(_is_held(storage, name) for name in _names(storage, folder)):
        return None
    lease = Lease(storage, f"{folder}/{secrets.token_hex(8)}.json", seconds, Deadline.after(seconds))
    storage.write(lease.name, [_content(seconds)])
    others = [name for name in _names(storage, folder) if name != lease.name]
    if any(_is_held(storage, name) for name in others):
        storage.remove(lease.name)
        return None
    for name in others:
        storage.remove(name)
    return lease


def wait_for_lease(
    storage: OutboxStorage,
    group: tuple[str, str],
    deadline: Deadline,
    *,
    seconds: float = LEASE_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease | None:
    """The same, as soon as nobody else holds it; ``None`` where that is not before the deadline.

    :raises OSError: the outbox refuses.
    """
    while True:
        lease = take_lease(storage, group, seconds)
        if lease is not None or deadline.expired:
            return lease
        # Two that wait for each other must not go on in step.
        sleep(min(deadline.remaining(), 0.05 + secrets.randbelow(200) / 1000))


def _names(storage: OutboxStorage, folder: str) -> Iterator[str]:
    return (one.name for one in storage.stored(folder))


def _is_held(storage: OutboxStorage, name: str) -> bool:
    try:
        holder: Any = json.loads(storage.read(name))
        expires_ms, on, process = float(holder["expires_ms"]), holder["machine"], int(holder["process"])
    except FileNotFoundError:
        return False
    except (KeyError, TypeError, ValueError):
        return False
    if time.time() * 1000 >= expires_ms:
        return False
    return not is_gone(on, process)


def _content(seconds: float) -> bytes:
    expires_ms = round((time.time() + seconds) * 1000)
    return json_line({"machine": machine(), "process": os.getpid(), "expires_ms": expires_ms})

"""Processes of machines: who wrote an object of the outbox, and whether it can still go on.

Tests: ``tests/delivery/test_outbox_lease.py``.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CGROUP = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mountinfo")


@cache
def machine() -> str:
    """Return a name of this machine within which process ids are unique.

    The host's name alone is not enough: containers of different hosts may share it. On Linux, the
    boot id differs.
    """
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (not a path)
    container = re.search(r"[0-9a-f]{64}", _text(_CGROUP)) or re.search(
        r"[0-9a-f]{64}(?=/hostname)", _text(_MOUNTS)
    )
    parts = (
        socket.gethostname(),
        namespace,
        _text(_BOOT_ID).strip(),
        container[0][:12] if container else "",
    )
    return " ".join(part for part in parts if part)


@cache
def _machine_digest() -> str:
    """Return :func:`machine` in twelve characters, for names of files."""
    return hashlib.sha256(machine().encode()).hexdigest()[:12]


def process_start(process: int) -> int | None:
    """Return when a process of this machine started, in ticks since the boot; ``None`` if that is
    not known.
    """
    # The second field, the command in parentheses, may contain anything.
    fields = _text(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def is_gone(on: str, process: int, started: int | None = None) -> bool:
    """Return whether a process has ended; False if it is on another machine, which cannot be known
    from here.

    :param on: its :func:`machine`.
    :param started: its :func:`process_start`, if it is known: another process may have its number
        now.
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


@lru_cache(maxsize=1)
def _mark(process: int) -> str:
    return f"{_machine_digest()}-{process}-{process_start(process) or 0}"


def mark() -> str:
    """Return a short name of this process, for its leases and for the names of files that it has
    not finished yet.
    """
    return _mark(os.getpid())


def is_of_nobody(mark: str) -> bool:
    """Return whether the process of a :func:`mark` has ended; False if it is on another machine."""
    on, process, started = mark.split("-")
    return on == _machine_digest() and is_gone(machine(), int(process), int(started) or None)

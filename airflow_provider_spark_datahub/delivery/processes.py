"""Which process something belongs to, and whether that process is gone."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


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

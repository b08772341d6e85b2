"""Bounds for tests that something does not wait, on a machine that may stall; ``benchmarks/``
measures speed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds by which a busy machine may delay what takes no time."""
HANGS = 60.0
"""Seconds that something hangs which nobody is to wait for."""


BUDGETS = (1.0, 4.0, 16.0, 64.0)
"""Seconds for what waits until they are over. If a machine stalls, the first may be too few for
what comes before.
"""


def within(
    attempt: Callable[[float], T],
    is_enough: Callable[[T], bool],
    budgets: Sequence[float] = BUDGETS,
) -> T:
    """Return the result of an attempt within the first budget that was enough, or within the last."""
    first, *longer = budgets
    result = attempt(first)
    for budget in longer:
        if is_enough(result):
            break
        result = attempt(budget)
    return result


@contextmanager
def not_outlasting(budget: float) -> Iterator[None]:
    """Fail if the block waits for what hangs instead of ending with its budget.

    :param budget: seconds.
    """
    started = time.monotonic()
    yield
    assert time.monotonic() - started < budget + PATIENCE


def join(thread: threading.Thread, seconds: float = HANGS) -> None:
    """Wait for a thread that ends by itself; if it hangs, fail and say in which line."""
    thread.join(seconds)
    if thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        raise AssertionError(f"{thread.name} has not ended after {seconds:g} s:\n{stack}")


@contextmanager
def waiting_processes(*commands: Sequence[str], user: int | None = None) -> Iterator[list[int]]:
    """Run processes with these arguments, which do nothing, while this lasts; yield their ids."""
    # The substitution is a process with the same arguments: it has ended when the line is printed.
    wait = ["/bin/bash", "-c", "exec 3<> <(:); wait $!; echo; read -t 600 -u 3"]
    processes = [
        subprocess.Popen([*wait, *command], stdout=subprocess.PIPE, user=user)
        for command in commands
    ]
    try:
        for process in processes:
            assert process.stdout
            process.stdout.readline()
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def at_once(calls: Sequence[Callable[[], object]]) -> None:
    """Make calls at the same time, each in a thread of its own, and wait for their ends."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread)


def join_threads(*names: str) -> None:
    """Wait for the threads whose names begin so."""
    for thread in threading.enumerate():
        if thread.name.startswith(names):
            join(thread)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something is there that comes by itself."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


_ON_DISKS = (
    *(
        "listdir",
        "lstat",
        "mkdir",
        "open",
        "remove",
        "rename",
        "replace",
        "rmdir",
        "scandir",
        "stat",
        "statvfs",
    ),
    *("unlink", "utime"),
)


@contextmanager
def hanging_disk(folder: Path, steps: Sequence[str] = _ON_DISKS) -> Iterator[list[str]]:
    """Let functions of ``os`` wait at whatever is in a folder, until the block ends; yield the
    paths that they got.
    """
    is_back = threading.Event()
    asked: list[str] = []

    def hanging(step: str) -> Callable[..., Any]:
        real = getattr(os, step)

        def hang(path: Any, *arguments: Any, **options: Any) -> Any:
            text = os.fspath(path) if not isinstance(path, int) else ""
            if isinstance(text, str) and f"{text}/".startswith(f"{folder}/"):
                asked.append(text)
                is_back.wait(HANGS)
            return real(path, *arguments, **options)

        return hang

    with pytest.MonkeyPatch.context() as patched:
        for step in steps:
            patched.setattr(os, step, hanging(step))
        try:
            yield asked
        finally:
            is_back.set()

"""Deadline of the lineage steps of a task, and a way to hold any call to it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Deadline:
    """Moment on a monotonic clock, shared by every step that spends the same budget.

    :param at: the moment, in seconds of ``clock``.
    :param clock: a clock that never goes back; its zero does not matter.
    """

    at: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """Return the deadline ``seconds`` from now."""
        return cls(clock() + seconds, clock)

    def remaining(self) -> float:
        """Return the seconds left, never below 0."""
        return max(0.0, self.at - self.clock())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining() == 0.0


class _Call:
    """Call that a worker runs, and its outcome."""

    __slots__ = ("done", "error", "run")

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class _Worker:
    """Daemon thread that runs one call after the other, as long as the next comes soon.

    An outbox makes thousands of calls a second; a thread for each would cost more than the calls.
    """

    IDLE_SECONDS = 0.05
    _idle: ClassVar[list[_Worker]] = []

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        threading.Thread(target=self._run, name="lineage-delivery", daemon=True).start()

    @classmethod
    def start(cls, call: _Call) -> None:
        """Have an idle worker, or a new one, run a call."""
        try:
            worker = cls._idle.pop()
        except IndexError:
            worker = cls()
        worker._calls.put(call)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            try:
                call.run()
            except BaseException as error:  # noqa: BLE001 (handed to the caller's thread, which raises it)
                call.error = error
            # First idle, then done, so that the caller's next call finds this worker.
            self._idle.append(self)
            call.done.release()
            del call

    def _next(self) -> _Call | None:
        """Return the next call; ``None`` if there is none, and nobody can give this worker one any more."""
        while True:
            try:
                return self._calls.get(timeout=self.IDLE_SECONDS)
            except Empty:
                # If it is not idle, somebody has just taken it: its call is on the way.
                with suppress(ValueError):
                    self._idle.remove(self)
                    return None


# A forked process has no thread of its parent.
os.register_at_fork(after_in_child=_Worker._idle.clear)


def run_with_deadline(deadline: Deadline, call: Callable[[], None]) -> bool:
    """Run ``call``, and wait for it until the deadline at most.

    A socket's timeout bounds the wait for the *next* bytes only. A server that sends one byte a second, a name lookup
    or a hung network file system outlast it. The call therefore runs in a daemon thread. A thread of an executor would
    not do: the interpreter joins those before it exits.

    :returns: True if the call ended, False if it was left behind. A call that is left behind must check the same
        deadline itself before it begins anything more.
    :raises BaseException: whatever the call raised before the deadline.
    """
    # Read only once. If the deadline is brought forward meanwhile, the call begins nothing more, but this still waits
    # for it: whoever brought the deadline forward knows that the call has ended.
    seconds = deadline.remaining()
    if not seconds:
        return False
    started = _Call(call)
    _Worker.start(started)
    if not started.done.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
        return False
    if started.error is not None:
        raise started.error
    return True

"""Deadline of the lineage steps of a task, and a way to hold any call to it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
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

    def attempt(self) -> None:
        """Run the call, and keep its error for the thread that waits for it."""
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 (raised by the waiting thread)
            self.error = error


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
        """Have an idle worker, or a new one, run a call.

        :raises RuntimeError: if the operating system has no thread for it.
        """
        try:
            worker = cls._idle.pop()
        except IndexError:
            try:
                worker = cls()
            except RuntimeError:
                if threading.main_thread().is_alive():
                    raise
                # From Python 3.12 on, a process that ends starts no thread: what is called must end by itself.
                call.attempt()
                call.done.release()
                return
        worker._calls.put(call)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call.attempt()
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


Turn = tuple[Callable[[], Deadline | None], Callable[[Deadline], None]]
"""Two functions: one returns the deadline of a call when its turn comes, or ``None`` to begin neither this call nor a
later one; the other is the call."""


class _Turns:
    """Calls that one worker runs, one after the other, and which of them has the turn."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns
        self._lock = threading.Lock()
        self._left_behind = False
        self.ended = 0
        self.deadline: Deadline | None = None

    def run(self) -> None:
        """Run the calls, until one of them may not begin or is left behind."""
        for begin, call in self._turns:
            deadline = begin()
            if deadline is None or not self._goes_on(deadline, ended=0):
                return
            call(deadline)
            if not self._goes_on(None, ended=1):
                return

    def _goes_on(self, deadline: Deadline | None, ended: int) -> bool:
        with self._lock:
            if not self._left_behind:
                self.ended += ended
                self.deadline = deadline
            return not self._left_behind

    def leave_behind(self) -> bool:
        """Begin no further call if the current one is beyond its deadline; return whether it is."""
        with self._lock:
            self._left_behind = self.deadline is not None and self.deadline.expired
            return self._left_behind


def run_in_turn(turns: Sequence[Turn]) -> tuple[int, BaseException | None]:
    """Run calls one after the other, each until its own deadline, as :func:`run_with_deadline` runs one.

    To hand each of thousands of short calls to another thread, and to wait for it, takes longer than the calls.

    :returns: how many calls ended, and what the one after them raised. If that has begun and raised nothing, it was
        left behind.
    """
    if not turns:
        return 0, None
    running = _Turns(turns)
    started = _Call(running.run)
    _Worker.start(started)
    while True:
        deadline = running.deadline
        # Before the first call has begun, and between two of them, it is soon known more.
        seconds = max(deadline.remaining(), _SOON) if deadline is not None else _SOON
        if started.done.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            return running.ended, started.error
        if running.leave_behind():
            return running.ended, None


_SOON = 0.01
"""Seconds."""

"""Deadline of a task's lineage steps, and functions that stop waiting for a call at its deadline."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class Deadline:
    """Moment on a monotonic clock, shared by every step that spends the same budget.

    :param at: the moment, in seconds of ``clock``.
    """

    at: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline ``seconds`` from now."""
        return cls(time.monotonic() + seconds)

    def remaining(self) -> float:
        """Return the seconds left, never below 0."""
        return max(0.0, self.at - self.clock())

    @property
    def expired(self) -> bool:
        """Return whether no time is left."""
        return self.remaining() == 0.0

    def run(self, call: Callable[[], None]) -> bool:
        """Run ``call``, and wait for it until the deadline at most.

        A socket's timeout only bounds the wait for the *next* bytes: slow servers, name lookups and
        hung file systems outlast it. So the call runs in a daemon thread (the interpreter joins
        those of an executor).

        :returns: True if the call ended, False if it was left behind. It must check the deadline
            itself before it begins more.
        :raises BaseException: whatever the call raised before the deadline.
        """
        # Read the deadline only once. If somebody brings it forward meanwhile, the call begins
        # nothing more, but this still waits for the call to end, so that the other thread can rely
        # on that.
        seconds = self.remaining()
        return bool(seconds) and _Call(call).run_within(seconds)


class _NoThreadError(RuntimeError):
    """The operating system has no thread for a call."""


class _Call:
    """Call in a thread of its own, and its outcome.

    A handler of a signal may interrupt the caller anywhere and raise, or make a call itself: it
    waits by a plain lock.
    """

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def _attempt(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 (raised by the waiting thread)
            self.error = error
        self.done.release()

    def run_within(self, seconds: float, grace: float = 0.0) -> bool:
        """Run the call in a thread; return False if it has not ended after this many seconds.

        :param grace: more seconds for the thread, which a suspended process may need.
        :raises _NoThreadError: if the operating system has no thread for it.
        :raises BaseException: whatever the call raised.
        """
        try:
            threading.Thread(target=self._attempt, name="lineage-delivery", daemon=True).start()
        except RuntimeError as error:
            if threading.main_thread().is_alive():
                raise _NoThreadError(str(error)) from error
            # From Python 3.12 on, a process that is exiting starts no thread: run the call here,
            # without a limit.
            self._attempt()
        if not self.done.acquire(
            timeout=min(seconds, threading.TIMEOUT_MAX)
        ) and not self.done.acquire(timeout=grace):
            return False
        self.done.release()
        if self.error is not None:
            raise self.error
        return True


_REQUEST_SECONDS = 10.0
"""Longest time of a disk or a store for one step, with its client's own retries."""
_LEAST_SECONDS = 0.5
"""Shortest such limit, even if less time is left until the deadline."""
_STALL_SECONDS = 0.05
_hanging: dict[str, tuple[Deadline, _Call, float]] = {}
"""By storage: the latest step that was left behind, its deadline, and for how many seconds it was
waited for.
"""


def step_in_time(storage: str, deadline: Deadline | None, step: Callable[[], _T]) -> _T:
    """Return the result of one step on a disk or a store, which may hang.

    The step may take half of the time until the deadline, but at least 0.5 s and at most 10 s.
    While a step that was left behind goes on, others with the same deadline are refused, so a
    caller waits for one of them at most.

    :param storage: root of the disk or store.
    :param deadline: ``None`` to allow 10 s.
    :raises TimeoutError: if the step did not begin, or did not end, in which case it may still
        happen later.
    """
    seconds = _REQUEST_SECONDS
    if deadline is not None:
        left_behind = _hanging.get(storage)
        if left_behind is not None and not left_behind[1].done.locked():
            _hanging.pop(storage, None)
        elif left_behind is not None and left_behind[0] is deadline:
            raise _no_answer(storage, left_behind[2])
        seconds = min(seconds, max(_LEAST_SECONDS, deadline.remaining() / 2))
    result: list[_T] = []
    started = _Call(lambda: result.append(step()))
    try:
        ended = started.run_within(seconds, _STALL_SECONDS)
    except _NoThreadError:
        # A step that most likely ends is worth more than its limit.
        return step()
    if not ended:
        if deadline is not None:
            _hanging[storage] = deadline, started, seconds
        raise _no_answer(storage, seconds)
    return result[0]


def _no_answer(storage: str, seconds: float) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, f"no answer within {seconds:.1f} s", storage)

"""Deadline of the lineage steps of a task, and a way to hold any call to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field


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


def run_with_deadline(deadline: Deadline, call: Callable[[], None]) -> bool:
    """Run ``call``, and wait for it until the deadline at most.

    A socket's timeout bounds the wait for the *next* bytes only. A server that sends one byte a second, a name lookup
    or a hung network file system outlast it. The call therefore runs in a daemon thread of its own. A thread of an
    executor would not do: the interpreter joins those before it exits.

    :returns: True if the call ended, False if it was left behind. A call that is left behind must check the same
        deadline itself before it begins anything more.
    :raises BaseException: whatever the call raised before the deadline.
    """
    # Read only once. If the deadline is brought forward meanwhile, the call begins nothing more, but this still waits
    # for it: whoever brought the deadline forward knows that the call has ended.
    seconds = deadline.remaining()
    if not seconds:
        return False
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 (handed to the caller's thread, which raises it)
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    threading.Thread(target=run, name="lineage-delivery", daemon=True).start()
    done, _ = wait([outcome], timeout=seconds)
    if done:
        outcome.result()
    return bool(done)

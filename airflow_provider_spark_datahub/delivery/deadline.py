"""The moment at which the lineage steps of a task must be over.

Holds a call to its deadline, whatever the call waits for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a monotonic clock, shared by every step that spends the same budget.

    :param at: the moment, in seconds of ``clock``.
    :param clock: a clock that never goes back; its zero does not matter.
    """

    at: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """The deadline ``seconds`` from now."""
        return cls(clock() + seconds, clock)

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.at - self.clock())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self.remaining() == 0.0


def within(deadline: Deadline, call: Callable[[], None]) -> bool:
    """Run ``call`` and wait for it until the deadline at most.

    Timeouts of a socket bound the wait for the *next* bytes, so a server that sends one byte a second, a name
    lookup or a hung network file system outlast each of them. The call therefore runs in a thread of its own. It
    is a daemon thread, not one of an executor: the interpreter joins those before it exits.

    :returns: True where the call ended, False where it was left behind. A call that is left behind must find out by
        itself, by the same deadline, that it may not begin anything more.
    :raises BaseException: whatever the call raised before the deadline.
    """
    # Asked once: a deadline that is brought forward meanwhile keeps the call from beginning more, and is not waited for
    # any shorter, so that whoever brought it forward knows that the call has ended.
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

"""Deadline of a task's lineage steps, and functions that stop waiting for a call at its deadline."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

log = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Deadline:
    """Moment on a monotonic clock, shared by every step that spends the same budget.

    :param at: the moment, in seconds of ``clock``.
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
        """Return whether no time is left."""
        return self.remaining() == 0.0


_calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
_idle = threading.Semaphore(0)
"""As many as there are threads that wait for a call."""
_IDLE_SECONDS = 0.05


def _start(call: Callable[[], _T]) -> Future[_T]:
    """Run a call in an idle daemon thread, or in a new one; one for each of thousands would cost more than the calls.

    :raises RuntimeError: if the operating system has no thread for it.
    """
    future: Future[_T] = Future()
    try:
        if not _idle.acquire(blocking=False):
            threading.Thread(target=_work, name="lineage-delivery", daemon=True).start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        # From Python 3.12 on, a process that is exiting starts no thread: run the call here, without a limit.
        _outcome(call, future)()
    else:
        _calls.put((call, future))
    return future


def _work() -> None:
    while True:
        try:
            call, future = _calls.get(timeout=_IDLE_SECONDS)
        except Empty:
            if _idle.acquire(blocking=False):
                return
            continue  # a call is on the way
        report = _outcome(call, future)
        # Become idle before the call counts as done, so that the caller's next call finds this thread.
        _idle.release()
        report()
        del call, future, report


def _outcome(call: Callable[[], Any], future: Future[Any]) -> Callable[[], None]:
    """Run a call, and return a function that reports its result or its error to the thread that waits for it."""
    try:
        return partial(future.set_result, call())
    except BaseException as error:  # noqa: BLE001 (raised by the waiting thread)
        return partial(future.set_exception, error)


def _is_done(future: Future[Any], seconds: float) -> bool:
    with suppress(FutureTimeoutError):
        future.exception(min(seconds, threading.TIMEOUT_MAX))
    return future.done()


def _forget_threads() -> None:
    global _calls, _idle
    _calls, _idle = SimpleQueue(), threading.Semaphore(0)


# A forked process has no thread of its parent.
os.register_at_fork(after_in_child=_forget_threads)


def run_with_deadline(deadline: Deadline, call: Callable[[], None]) -> bool:
    """Run ``call``, and wait for it until the deadline at most.

    A socket's timeout only bounds the wait for the *next* bytes: slow servers, name lookups and hung file systems
    outlast it. So the call runs in a daemon thread (the interpreter joins those of an executor).

    :returns: True if the call ended, False if it was left behind. It must check the deadline itself before it begins
        more.
    :raises BaseException: whatever the call raised before the deadline.
    """
    # Read the deadline only once. If somebody brings it forward meanwhile, the call begins nothing more, but this still
    # waits for the call to end, so that the other thread can rely on that.
    seconds = deadline.remaining()
    if not seconds:
        return False
    future = _start(call)
    if not _is_done(future, seconds):
        return False
    future.result()
    return True


_REQUEST_SECONDS = 10.0
"""Longest time of a disk or a store for one step, with its client's own retries."""
_LEAST_SECONDS = 0.5
"""Shortest such limit, even if less time is left until the deadline."""
_STALL_SECONDS = 0.05
_hanging: dict[str, tuple[Deadline, Future[Any], float]] = {}
"""By storage: the latest step that was left behind, its deadline, and for how many seconds it was waited for."""


def step_in_time(storage: str, deadline: Deadline | None, step: Callable[[], _T]) -> _T:
    """Return the result of one step on a disk or a store, which may hang.

    The step may take half of the time until the deadline, but at least 0.5 s and at most 10 s. While a step that was
    left behind goes on, others with the same deadline are refused, so a caller waits for one of them at most.

    :param storage: root of the disk or store.
    :param deadline: ``None`` to allow 10 s.
    :raises TimeoutError: if the step did not begin, or did not end, in which case it may still happen later.
    """
    seconds = _REQUEST_SECONDS
    if deadline is not None:
        left_behind = _hanging.get(storage)
        if left_behind is not None and left_behind[1].done():
            _hanging.pop(storage, None)
        elif left_behind is not None and left_behind[0] is deadline:
            raise _no_answer(storage, left_behind[2])
        seconds = min(seconds, max(_LEAST_SECONDS, deadline.remaining() / 2))
    future = _start(step)
    # A suspended process may need a little more.
    if not _is_done(future, seconds) and not _is_done(future, _STALL_SECONDS):
        if deadline is not None:
            _hanging[storage] = deadline, future, seconds
        raise _no_answer(storage, seconds)
    return future.result()


def _no_answer(storage: str, seconds: float) -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, f"no answer within {seconds:.1f} s", storage)


_WARNING_SECONDS = 5.0
_GIVE_UP_SECONDS = 60.0
_awaited: dict[int, tuple[str, float]] = {}
"""By thread: the disk whose step it waits for without a deadline, and since when."""
_watched: set[int] = set()


def step_at_leisure(storage: str, step: Callable[[], _T]) -> _T:
    """Return the result of one step on a disk, however long it takes; :func:`watched_disks` says if that is long.

    :param storage: root of the disk.
    """
    thread = threading.get_ident()
    _awaited[thread] = storage, time.monotonic()
    try:
        return step()
    finally:
        _awaited.pop(thread, None)


@contextmanager
def watched_disks(give_up: Callable[[str], object] | None = None) -> Iterator[None]:
    """Log a warning if this thread waits for a disk that does not answer, once for each disk.

    Nothing can end a system call on such a disk.

    :param give_up: called in another thread, with the reason, if one step takes a minute.
    """
    thread, is_over = threading.get_ident(), threading.Event()
    if thread in _watched:
        yield
        return

    def watch() -> None:
        warned = set[str]()
        while not is_over.wait(_WARNING_SECONDS / 5):
            storage, since = _awaited.get(thread, ("", time.monotonic()))
            seconds = time.monotonic() - since
            if seconds >= _WARNING_SECONDS and storage not in warned:
                warned.add(storage)
                log.warning("The disk of %s has not answered for %.0f s. Waiting for it.", storage, seconds)
            if seconds >= _GIVE_UP_SECONDS and give_up is not None:
                give_up(f"The disk of {storage} has not answered for {seconds:.0f} s.")
                return

    threading.Thread(target=watch, name="lineage-disks", daemon=True).start()
    _watched.add(thread)
    try:
        yield
    finally:
        _watched.discard(thread)
        is_over.set()

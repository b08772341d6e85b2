"""A thread that does one thing after the other, and is there only while there is something to do."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable


class WorkThread:
    """Calls what it is given, in this order, beside the thread that gives it.

    A forked process has neither the thread nor its work, and begins one of its own with the first thing to do.

    :param name: of the thread.
    :param daemon: a process that ends does not wait for it.
    :param backlog: how many things may wait; ``None`` for any number.
    """

    def __init__(self, name: str, *, daemon: bool, backlog: int | None = None) -> None:
        self._name = name
        self._daemon = daemon
        self._backlog = backlog
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def give(self, step: Callable[[], object]) -> bool:
        """Have it called, which must not raise.

        :returns: whether there was room for it.
        """
        with self._lock:
            if self._backlog is not None and len(self._waiting) >= self._backlog:
                return False
            self._waiting.append(step)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=self._daemon)
                self._thread.start()
            return True

    def wait(self, seconds: float) -> bool:
        """Wait until everything is done, or the time is over.

        :returns: whether everything is done.
        """
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        while (step := self._next()) is not None:
            step()

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            # Whoever gives the next thing begins the next thread.
            self._thread = None
            return None

"""A limit on how many proposals are sent in a second, so that a backfill leaves DataHub time for everybody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Rate:
    """A token bucket that any number of threads share.

    :param per_second: how many may pass in a second, on average; ``None`` for no limit.
    :param clock: a clock that never goes back.
    """

    def __init__(
        self,
        per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if per_second is not None and per_second <= 0:
            raise ValueError(f"the rate is {per_second} proposals a second, want more than 0")
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = clock()

    @property
    def burst(self) -> int | None:
        """How many may be sent at once: those of one second; ``None`` for any number."""
        return None if self._per_second is None else max(1, int(self._per_second))

    def take(self, count: int) -> None:
        """Wait until so many may pass."""
        if self._per_second is None:
            return
        with self._lock:
            now = self._clock()
            start = max(now, self._free_at)
            self._free_at = start + count / self._per_second
        if start > now:
            self._sleep(start - now)

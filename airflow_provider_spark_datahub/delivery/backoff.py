"""How long to wait before a delivery is tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter, so that the tasks of a DAG do not return to a server all at once.

    :param first: seconds before the first repetition, before jitter.
    :param longest: seconds that no wait exceeds.
    :param jitter: a number in [0, 1) per call; the wait is 50 % to 100 % of the exponential one.
    :param sleep: waits that many seconds.
    """

    first: float = 0.5
    longest: float = 8.0
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], object] = time.sleep

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the failure of attempt number ``attempt`` (1 is the first)."""
        # The exponent is bounded: 2.0 ** 1024 is an OverflowError.
        exponential = min(self.longest, self.first * 2.0 ** min(attempt - 1, 32))
        return exponential * (0.5 + self.jitter() / 2)

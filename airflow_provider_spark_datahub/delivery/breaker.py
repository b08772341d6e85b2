"""A circuit breaker per connection: a destination that is down is not asked by every entry that waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from airflow_provider_spark_datahub.delivery.backoff import Backoff
from airflow_provider_spark_datahub.delivery.sink import Delivery

FAILURES = 3
"""Deliveries of which nothing arrived, one after the other, before the circuit opens."""


class CircuitBreaker:
    """Opens after failures in a row, and lets one delivery through after each wait, until one arrives.

    Safe to share between threads.

    :param failures: in a row, that open it.
    :param backoff: the waits, growing with each delivery that fails while it is open.
    :param clock: seconds that never go back.
    """

    def __init__(
        self,
        failures: int = FAILURES,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failures = failures
        self._backoff = backoff or Backoff(first=5.0, longest=300.0)
        self._clock = clock
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._open_until = 0.0
        self._problem: str | None = None

    def refusal(self) -> str | None:
        """Why nothing may be sent now; ``None`` where it may.

        After a wait, one caller is let through, and the others wait again until its delivery is told.
        """
        with self._lock:
            if self._in_a_row < self._failures:
                return None
            now = self._clock()
            if now >= self._open_until:
                self._open_until = now + self._wait()
                return None
            left = self._open_until - now
            return (
                f"{self._in_a_row} deliveries in a row failed, the next attempt is due in {left:.0f} s: {self._problem}"
            )

    def record(self, delivery: Delivery) -> None:
        """Tell what became of a delivery that was let through."""
        with self._lock:
            if delivery.delivered or delivery.rejected or not delivery.pending:
                self._in_a_row = 0
                return
            self._in_a_row += 1
            self._problem = delivery.problem
            if self._in_a_row >= self._failures:
                self._open_until = self._clock() + self._wait()

    def _wait(self) -> float:
        return self._backoff.delay(max(1, self._in_a_row - self._failures + 1))


_breakers: dict[str, CircuitBreaker] = {}


def breaker_of(connection_id: str) -> CircuitBreaker:
    """The circuit breaker of a connection, shared by everything in this process that delivers through it."""
    return _breakers.setdefault(connection_id, CircuitBreaker())

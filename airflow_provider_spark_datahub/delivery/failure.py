"""Why something was not delivered, in terms that do not depend on the destination.

The boundary to code of others that does not say which errors it raises.

A file system of fsspec or a transport of openlineage-python may be anybody's class; the client of schema registries
raises what the HTTP client of its choice does. A bug in them must not cost more than what it was asked for, and one of
ours must not pass as theirs: only their code is called within this boundary.

What an error of Kafka says about sending the same once more.

Imports confluent-kafka at once; import this module where something is about to be sent.

Whose fault it is that a destination fails (HTTP 500): its own, or that of what it fails on.

How long to wait before a delivery is tried again.

A circuit breaker per connection: a destination that is down is not asked by every entry that waits for it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from confluent_kafka import KafkaError

from airflow_provider_spark_datahub.delivery.sink import Delivery, DeliveryRecord, Numbered

_LONGEST_WORDS = 500  # characters of an answer that are repeated in a log line


class FailureKind(Enum):
    """What a failure says about sending the same once more."""

    REJECTED = "the destination will never take this"
    THROTTLED = "the destination wants us to wait"
    FAILED = "the destination failed: it may be in trouble, or stumble over this alone"
    UNAVAILABLE = "no answer, or one that says that the destination is not there: it may work later"
    UNAUTHORISED = "the credentials are refused"
    MISCONFIGURED = "what answers is not the destination, or cannot be reached with these settings"

    @property
    def may_pass(self) -> bool:
        """Whether the same may arrive a little later."""
        return self in (FailureKind.THROTTLED, FailureKind.FAILED, FailureKind.UNAVAILABLE)


_STATUS_KINDS = {
    401: FailureKind.UNAUTHORISED,
    403: FailureKind.UNAUTHORISED,
    407: FailureKind.UNAUTHORISED,
    # About the address, never about what was sent: else a wrong path in the connection would reject all of it.
    404: FailureKind.MISCONFIGURED,
    405: FailureKind.MISCONFIGURED,
    408: FailureKind.UNAVAILABLE,
    425: FailureKind.UNAVAILABLE,
    429: FailureKind.THROTTLED,
    500: FailureKind.FAILED,
}


def kind_of_status(status: int) -> FailureKind:
    """What an HTTP status that is no success says about sending the same once more."""
    return _STATUS_KINDS.get(status, FailureKind.REJECTED if 400 <= status < 500 else FailureKind.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something was not acknowledged.

    :param words: the destination's or the network's own, in one line, without secrets.
    :param retry_after: seconds that the destination asked to wait; None where it did not.
    """

    kind: FailureKind
    words: str
    retry_after: float | None = None

    def verdict(self, remedy: str) -> str:
        """The predicate of the sentence that tells a user of the failure.

        :param remedy: what to do where the credentials are refused.
        """
        words = self.words.rstrip(".")
        match self.kind:
            case FailureKind.UNAUTHORISED:
                return f"refuses the connection's credentials ({words}): {remedy}"
            case FailureKind.MISCONFIGURED:
                return f"cannot be used with this connection ({words})"
            case FailureKind.FAILED:
                return f"fails ({words})"
            case _:
                return f"is not available ({words})"


def one_line(text: str) -> str:
    """``text`` without line breaks, and not longer than a log line should be."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_WORDS else f"{line[:_LONGEST_WORDS]} …"


T = TypeVar("T")


class ThirdPartyError(Exception):
    """What code of others raised, in its words and with the name of its class."""


def third_party(call: Callable[[], T], *known: type[Exception]) -> T:
    """Call code of others.

    :param known: errors that mean something to the caller, and are raised as they are.
    :raises ThirdPartyError: any other error.
    """
    try:
        return call()
    except known:
        raise
    except Exception as error:
        name, words = type(error).__name__, str(error)
        raise ThirdPartyError(f"{name}: {words}" if words else name) from error


_KINDS = {
    # Of the message, or of the batch that it was in.
    KafkaError.MSG_SIZE_TOO_LARGE: FailureKind.REJECTED,
    KafkaError.RECORD_LIST_TOO_LARGE: FailureKind.REJECTED,
    KafkaError.INVALID_RECORD: FailureKind.REJECTED,
    KafkaError._AUTHENTICATION: FailureKind.UNAUTHORISED,
    KafkaError.SASL_AUTHENTICATION_FAILED: FailureKind.UNAUTHORISED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: FailureKind.UNAUTHORISED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: FailureKind.UNAUTHORISED,
    KafkaError._SSL: FailureKind.MISCONFIGURED,
    KafkaError._UNKNOWN_TOPIC: FailureKind.MISCONFIGURED,
    KafkaError.UNKNOWN_TOPIC_OR_PART: FailureKind.MISCONFIGURED,
    KafkaError.TOPIC_EXCEPTION: FailureKind.MISCONFIGURED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: FailureKind.MISCONFIGURED,
}


def kind_of_kafka_error(error: KafkaError) -> FailureKind:
    """The kind of failure that it is; what is not known may pass."""
    return _KINDS.get(error.code(), FailureKind.UNAVAILABLE)


FAILED_ATTEMPTS = 2
"""How often the destination has to fail on something that is sent until that is a suspect."""
MOST_SUSPECTS = 5
"""On so many, each alone, the destination failed while it took nothing else: it is the destination's fault."""


class Suspects:
    """Items on which a destination failed, each sent alone, until it is clear whose fault it is.

    An item is to blame where the destination takes others before and after it: the last one that it took, once more.
    Where it took none before, it is enough that it takes a later one.

    :param destination: in a word or two, for the reason of a rejection.
    """

    def __init__(self, record: DeliveryRecord, destination: str) -> None:
        self._record = record
        self._destination = destination
        self._suspects: list[tuple[Numbered, Failure]] = []
        self._witness: Numbered | None = None

    @property
    def last(self) -> Failure | None:
        """The failure of the last item that is still a suspect."""
        return self._suspects[-1][1] if self._suspects else None

    def convict(self, witness: Numbered) -> None:
        """The destination took ``witness``, so it is not the destination's fault."""
        self._witness = witness
        for item, failure in self._suspects:
            self._record.reject(item, f"{self._destination} failed on it alone, not on others: {failure.words}")
        self._suspects.clear()

    def add(self, item: Numbered, failure: Failure, takes: Callable[[Numbered], bool]) -> bool:
        """Take one more.

        :param takes: whether the destination takes an item that it took before; to send it once more is harmless.
        :returns: False where it is the destination's fault, as far as can be told.
        """
        self._suspects.append((item, failure))
        if self._witness is None:
            return len(self._suspects) < MOST_SUSPECTS
        if not takes(self._witness):
            return False
        self.convict(self._witness)
        return True


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

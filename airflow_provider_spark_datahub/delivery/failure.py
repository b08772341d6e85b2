"""Failures of a delivery: their kinds, back-off between attempts, and outages."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from airflow_provider_spark_datahub.delivery.deadline import Deadline, step_in_time
from airflow_provider_spark_datahub.delivery.sink import Delivery, DeliveryRecord
from airflow_provider_spark_datahub.foundation.files import (
    PRIVATE_ACCESS,
    open_regular,
    write_durably,
)
from airflow_provider_spark_datahub.foundation.text import printable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_LONGEST_TEXT = 500  # characters of an answer that are repeated in a log line

_T = TypeVar("_T")


class FailureKind(Enum):
    """Kind of a failure, by which it is retried, rejected or reported as an outage."""

    REJECTED = "the server will never take this"
    THROTTLED = "the server wants us to wait"
    FAILED = "the server failed: it may be in trouble, or fail on this alone"
    UNAVAILABLE = "no answer, or one that says that the server is not there: it may work later"
    UNREACHABLE = "no connection: it is refused, or the host is unknown, which is known at once"
    UNAUTHORISED = "the credentials are refused"
    MISCONFIGURED = "another server answers, or none can be reached with these settings"

    @property
    def may_pass(self) -> bool:
        """Return whether the same request may succeed a little later."""
        return self in (
            FailureKind.THROTTLED,
            FailureKind.FAILED,
            FailureKind.UNAVAILABLE,
            FailureKind.UNREACHABLE,
        )

    @property
    def outage_after(self) -> float | None:
        """Seconds of failing attempts after which this kind means an outage; ``None`` if it never
        does.
        """
        return {
            FailureKind.UNREACHABLE: 0.0,
            FailureKind.UNAVAILABLE: DeliveryRecord.SILENCE_SECONDS,
        }.get(self)

    @classmethod
    def from_http_status(cls, status: int) -> FailureKind:
        """Return the kind of an HTTP status that is not a success."""
        return _HTTP_KINDS.get(
            status, cls.MISCONFIGURED if 400 <= status < 500 else cls.UNAVAILABLE
        )

    @classmethod
    def from_kafka_error(cls, error: KafkaError) -> FailureKind:
        """Return the kind of a Kafka error; unknown ones may pass."""
        return _KAFKA_KINDS.get(error.name(), cls.UNAVAILABLE)


_HTTP_KINDS = {
    # Only these are about the content: else a wrong address, a proxy or TLS would reject every
    # item.
    **dict.fromkeys((400, 409, 413, 422), FailureKind.REJECTED),
    **dict.fromkeys((401, 403, 407), FailureKind.UNAUTHORISED),
    **dict.fromkeys((408, 423, 425, 444, 460, 499), FailureKind.UNAVAILABLE),
    429: FailureKind.THROTTLED,
    500: FailureKind.FAILED,
}
# By name, so that this module works without Kafka's client.
_KAFKA_KINDS = {
    # About the message, or about its batch.
    **dict.fromkeys(
        ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD"), FailureKind.REJECTED
    ),
    **dict.fromkeys(
        (
            "_AUTHENTICATION",
            "SASL_AUTHENTICATION_FAILED",
            "TOPIC_AUTHORIZATION_FAILED",
            "CLUSTER_AUTHORIZATION_FAILED",
        ),
        FailureKind.UNAUTHORISED,
    ),
    **dict.fromkeys(
        (
            "_UNKNOWN_TOPIC",
            "UNKNOWN_TOPIC_OR_PART",
            "TOPIC_EXCEPTION",
            "_SSL",
            "UNSUPPORTED_SASL_MECHANISM",
        ),
        FailureKind.MISCONFIGURED,
    ),
}


@dataclass(frozen=True)
class Failure:
    """Reason why something was not acknowledged.

    :param text: in the server's or the network's words.
    :param retry_after: seconds that the server asked to wait; ``None`` if it did not ask.
    """

    kind: FailureKind
    text: str
    retry_after: float | None = None

    def for_log(self, redact: Callable[[str], str]) -> Self:
        """Return the failure with its text on one line and without secrets."""
        return replace(self, text=shorten(redact(self.text)))

    def predicate(self, remedy: str) -> str:
        """Return the predicate of a sentence about the sink; ``remedy`` says what to do about
        refused credentials.
        """
        text = self.text.rstrip(".")
        match self.kind:
            case FailureKind.UNAUTHORISED:
                return f"refuses the connection's credentials ({text}): {remedy}"
            case FailureKind.MISCONFIGURED:
                return f"cannot be used with this connection ({text})"
            case FailureKind.FAILED:
                return f"fails ({text})"
            case _:
                return f"is not available ({text})"


def shorten(text: str) -> str:
    """Return ``text`` on one line, printable, and cut to a length that fits a log line."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]} …"


class LibraryError(Exception):
    """Any error of a library, with the name of its class."""


def call_library(call: Callable[[], _T], *expected: type[Exception]) -> _T:
    """Call a library that does not document which errors it raises, such as a third party's class.

    Call only the library in ``call``, so that our own bugs are not reported as the library's.

    :param expected: errors that the caller handles; they are raised as they are.
    :raises LibraryError: for any other error.
    """
    try:
        return call()
    except expected:
        raise
    except Exception as error:
        name, text = type(error).__name__, str(error)
        raise LibraryError(f"{name}: {text}" if text else name) from error


class Backoff(msgspec.Struct, frozen=True):
    """Exponential back-off with jitter, so that the tasks of a DAG do not return to a server all at
    once.

    :param first: seconds before the second attempt, before jitter.
    :param longest: most seconds of a wait.
    :param jitter: returns a number in [0, 1); the wait is 50 % to 100 % of the exponential one.
    :param sleep: waits that many seconds.
    """

    first: float = 0.5
    longest: float = 8.0
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], object] = time.sleep

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after the failure of attempt number ``attempt`` (1 is the
        first).
        """
        # The exponent is bounded: 2.0 ** 1024 is an OverflowError.
        exponential = min(self.longest, self.first * 2.0 ** min(attempt - 1, 32))
        return exponential * (0.5 + self.jitter() / 2)


@dataclass
class OutageNotes:
    """Notes for the other tasks of this host that a server is out: one small file for each
    connection and server.

    Without them, each task would spend its whole budget to find out. After a minute, one delivery
    asks the server again. A note that cannot be read or written is ignored.

    :param folder: on a disk; made if it is missing, for its owner only.
    :param clock: seconds since the epoch.
    """

    LIFE = 60.0
    """Longest life of a note, in seconds. A note with a longer one is ignored: a clock is wrong."""
    LARGEST = 4096
    """Bytes."""

    FOLDER = ".outages"
    """In the outbox, or in the events' folder if the outbox is not on a disk."""

    _folder: Path
    _clock: Callable[[], float] = time.time

    def refusal(
        self, connection_id: str, server: str, deadline: Deadline | None = None
    ) -> str | None:
        """Return why a server should not be asked now; ``None`` if it may be asked.

        :param server: :meth:`Sink.describe`, so that a changed connection is asked at once.
        :param deadline: limit for a disk that hangs (:func:`.step_in_time`).
        """
        with suppress(OSError):
            return step_in_time(
                str(self._folder.parent), deadline, lambda: self._refusal(connection_id, server)
            )
        return None

    def _refusal(self, connection_id: str, server: str) -> str | None:
        path, now = self._path(connection_id, server), self._clock()
        note = self._read(path)
        if note is None or not (
            note.since <= now and now - self.LIFE <= note.until <= now + self.LIFE
        ):
            return None
        if note.until <= now:
            # This delivery asks the server. Other tasks wait for its result.
            self._write(path, msgspec.structs.replace(note, until=now + self.LIFE))
            return None
        until = datetime.fromtimestamp(note.until, UTC)
        return f"{note.problem.rstrip('.')}; no other task of this host asks it again before {until:%H:%M:%S} UTC"

    def record(
        self, connection_id: str, server: str, delivery: Delivery, deadline: Deadline | None = None
    ) -> None:
        """Note an outage, or remove the note if the server answered. :param deadline: as above."""
        with suppress(OSError):
            step_in_time(
                str(self._folder.parent),
                deadline,
                lambda: self._record(connection_id, server, delivery),
            )

    def _record(self, connection_id: str, server: str, delivery: Delivery) -> None:
        path = self._path(connection_id, server)
        if delivery.outage:
            now = self._clock()
            self._write(
                path, _OutageNote(now, now + self.LIFE, delivery.problem or "it does not answer")
            )
        else:
            path.unlink(missing_ok=True)

    def _path(self, connection_id: str, server: str) -> Path:
        names = [socket.gethostname(), connection_id, server]  # hosts may share the folder
        return self._folder / f"{hashlib.sha256(msgspec.json.encode(names)).hexdigest()[:32]}.json"

    def _read(self, path: Path) -> _OutageNote | None:
        with suppress(OSError, ValueError, RecursionError), open_regular(path) as file:
            if os.fstat(file.fileno()).st_uid == os.geteuid():
                return msgspec.json.decode(file.read(self.LARGEST), type=_OutageNote)
        return None

    def _write(self, path: Path, note: _OutageNote) -> None:
        write_durably(path, [msgspec.json.encode(note)], sync=False, access=PRIVATE_ACCESS)


class _OutageNote(msgspec.Struct, frozen=True):
    """Note on an outage: since when, until when nobody asks (both in seconds since the epoch), and
    why.
    """

    since: float
    until: float
    problem: str

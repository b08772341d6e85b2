"""Interface of every sink: its items, the outcome of a delivery, and the result of a check."""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar, Self

import msgspec

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.foundation.text import counted

log = logging.getLogger(__name__)


NumberedItem = tuple[int, Proposal]
"""Item with its position in the delivery, so that two equal items stay two."""


class CheckStatus(StrEnum):
    """Outcome of a check."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class CheckResult(msgspec.Struct, frozen=True):
    """Result of one check, for a person.

    :param subject: the checked thing, e.g. ``connection``.
    :param message: the result in a sentence, without secrets.
    :param advice: what to do about it; may be empty.
    """

    subject: str
    status: CheckStatus
    message: str
    advice: str = ""

    def to_obj(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "subject": self.subject,
            "verdict": self.status,
            "words": self.message,
            "advice": self.advice,
        }


class SinkSettingsError(ValueError):
    """Connection that cannot be used for a sink; the message names the wrong part and what it
    should be.
    """

    @classmethod
    def wrong_type(cls, key: str, wanted: str, value: object) -> Self:
        """Return the error for a value of the wrong type in the extra; it does not hold the value."""
        return cls(
            f"{key!r} in the connection's extra must be {wanted}, not {type(value).__name__}."
        )


class Rejection(msgspec.Struct, frozen=True):
    """Item that the sink will never take as it is.

    :param reason: in the server's words.
    """

    item: Proposal
    reason: str

    @property
    def subject(self) -> str:
        """The rejected item in a few words."""
        return f"{self.item.aspect_name} of {self.item.entity_urn}"


class Delivery(msgspec.Struct, frozen=True):
    """Outcome of :meth:`Sink.deliver`: each item is in exactly one of the first three groups.

    :param delivered: the number of acknowledged items.
    :param rejected: the items that the sink will never take.
    :param pending: the items without an acknowledgement, in order. Sending them again is harmless
        if they did arrive.
    :param problem: one sentence that says why items are pending; ``None`` if none are.
    :param stored: False if something is only accepted for later processing (DataHub's ASYNC mode,
        Kafka); ``None`` if nothing was delivered.
    :param outage: whether the server could not be reached, or was silent for long enough.
    """

    delivered: int
    rejected: tuple[Rejection, ...] = ()
    pending: tuple[Proposal, ...] = ()
    problem: str | None = None
    stored: bool | None = None
    outage: bool = False


class DeliveryRecord:
    """State of a delivery in progress: a sink writes it from its thread, :meth:`Sink.deliver` reads
    it at any time.

    :ivar seconds: time that the delivery may take.
    :ivar patient: whether to go on until the deadline, even if the server cannot be reached.
    """

    SILENCE_SECONDS: ClassVar = 5.0
    """Seconds without any answer that mean an outage; a shorter silence may only be a slow answer.
    """

    def __init__(
        self, items: Sequence[Proposal], seconds: float = math.inf, *, patient: bool = False
    ) -> None:
        self.patient = patient
        self.seconds = seconds
        self._outage = False
        self._lock = threading.Lock()
        self._pending: dict[int, Proposal] = dict(enumerate(items))
        self._rejected: dict[int, Rejection] = {}
        self._delivered = 0
        self._stored: bool | None = None
        self._problem: str | None = None
        self._failed_attempt: str | None = None

    def pending(self) -> list[NumberedItem]:
        """Return the items that are neither acknowledged nor rejected yet, in order."""
        with self._lock:
            return list(self._pending.items())

    def confirm(self, batch: Sequence[NumberedItem], *, stored: bool) -> None:
        """Record that the server acknowledged ``batch``; ``stored`` is False if it will process it
        later.
        """
        with self._lock:
            for number, _ in batch:
                del self._pending[number]
            self._delivered += len(batch)
            self._failed_attempt = None
            self._stored = stored if self._stored is None else self._stored and stored

    def reject(self, numbered: NumberedItem, reason: str) -> None:
        """Record that the server will never take an item; ``reason`` is its answer."""
        number, item = numbered
        with self._lock:
            del self._pending[number]
            self._failed_attempt = None
            self._rejected[number] = Rejection(item, reason)

    def attempt_failed(self, problem: str) -> None:
        """Record a failed attempt before the next one; ``problem`` is reported if the deadline cuts
        that one short.
        """
        with self._lock:
            self._failed_attempt = problem

    def expire(self, problem: str) -> None:
        """Record that the deadline passed; ``problem`` is reported unless an earlier attempt
        failed.
        """
        with self._lock:
            self._outage = self._outage or self.seconds >= self.SILENCE_SECONDS
            self._problem = self._problem or self._failed_attempt or problem

    def stop(self, problem: str, outage_after: float | None = None) -> None:
        """Record why the pending items stay pending; the first problem stands.

        :param outage_after: seconds after which this problem means an outage; ``None`` if it never
            does.
        """
        with self._lock:
            self._outage = self._outage or (
                outage_after is not None and self.seconds >= outage_after
            )
            self._problem = self._problem or problem

    def delivery(self) -> Delivery:
        """Return the current state."""
        with self._lock:
            return Delivery(
                delivered=self._delivered,
                rejected=tuple(self._rejected[number] for number in sorted(self._rejected)),
                pending=tuple(self._pending.values()),
                problem=self._problem if self._pending else None,
                stored=self._stored,
                outage=self._outage and not self._delivered and not self._rejected,
            )


class Sink(ABC):
    """Receiver of proposals. A subclass implements :meth:`send` and :meth:`describe`.

    Delivery is at least once, in the order of the items. A sink is a context manager that closes
    itself.
    """

    name: ClassVar[str]
    """The kind of sink, as in logs and metrics: ``rest``, ``file``."""

    @property
    def web_address(self) -> str:
        """Address of DataHub's UI, without a slash at its end; empty if it does not follow from the
        connection.
        """
        return ""

    def deliver(
        self, items: Sequence[Proposal], deadline: Deadline, *, patient: bool = False
    ) -> Delivery:
        """Deliver what can be delivered before the deadline; never wait longer.

        Failures of the server are part of the result, not exceptions.

        :param patient: try until the deadline even if the server cannot be reached. Otherwise a
            refused connection ends the delivery after about a second, which suits items that the
            outbox keeps.
        """
        started, record = (
            time.monotonic(),
            DeliveryRecord(items, deadline.remaining(), patient=patient),
        )

        if items and not deadline.run(lambda: self.send(record, deadline)):
            record.expire(
                f"{self.describe()} did not acknowledge everything before the time for lineage was over."
            )
        delivery = record.delivery()
        log.debug(
            "Delivered %d of %s to %s in %d ms: %d rejected, %d pending%s",
            delivery.delivered,
            counted(len(items), "item"),
            self.describe(),
            (time.monotonic() - started) * 1000,
            len(delivery.rejected),
            len(delivery.pending),
            f" ({delivery.problem})" if delivery.problem else "",
        )
        return delivery

    def check(self, deadline: Deadline) -> list[CheckResult]:  # noqa: ARG002 (for sinks that ask a server)
        """Check what can be checked before the deadline without writing; the list may be empty."""
        return []

    @abstractmethod
    def describe(self) -> str:
        """Return the sink in a few words for logs, without secrets."""

    @abstractmethod
    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send ``record.pending()``, in a thread that may be left behind at the deadline: begin
        nothing after it.

        Report to the record at once: each acknowledgement, each rejection, and each failed attempt
        before the next one. Call ``record.stop`` if items stay pending.
        """

"""What a check found, for a person: well or not, in a sentence, and what to do.

Where proposals go: the interface of every destination, and what it says of a delivery.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, ClassVar, Self

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline, within


class Verdict(StrEnum):
    """How a check ended."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    :param subject: what was checked, e.g. ``connection``.
    :param words: what was found; never holds a secret.
    :param advice: what to do about it; empty where nothing is to be done.
    """

    subject: str
    verdict: Verdict
    words: str
    advice: str = ""

    def to_obj(self) -> dict[str, Any]:
        """The finding as JSON."""
        return asdict(self)


Numbered = tuple[int, Proposal]
"""A proposal with its position in what was to be delivered (two equal proposals stay two)."""


class SinkSettingsError(ValueError):
    """A connection from which no sink can be made. Says which part of it is wrong and what it should be."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A proposal that the destination will never take as it is.

    :param reason: the destination's own words.
    """

    proposal: Proposal
    reason: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of the proposals handed to :meth:`Sink.deliver`: each is in exactly one of the three groups.

    :param delivered: the number of proposals that the destination acknowledged.
    :param rejected: the proposals that it will never take.
    :param pending: the proposals without an acknowledgement, in their order. They may have arrived all the same
        (the answer got lost); to send them again is harmless.
    :param problem: one sentence that says why something is pending; None where nothing is.
    :param stored: True where everything delivered is stored, False where some of it is only accepted for later
        processing (DataHub's ASYNC mode), None where nothing was delivered.
    """

    delivered: int
    rejected: tuple[Rejection, ...] = ()
    pending: tuple[Proposal, ...] = ()
    problem: str | None = None
    stored: bool | None = None


class DeliveryRecord:
    """The state of a delivery under way: a transport writes it from its thread, :class:`Sink` reads it at any time.

    A transport that is left behind at the deadline may go on writing; what was read before does not change.
    """

    def __init__(self, proposals: Sequence[Proposal]) -> None:
        self._lock = threading.Lock()
        self._pending: dict[int, Proposal] = dict(enumerate(proposals))
        self._rejected: dict[int, Rejection] = {}
        self._delivered = 0
        self._stored: bool | None = None
        self._problem: str | None = None
        self._failed_attempt: str | None = None

    def pending(self) -> list[Numbered]:
        """What is neither acknowledged nor rejected yet, in order."""
        with self._lock:
            return list(self._pending.items())

    def confirm(self, batch: Sequence[Numbered], *, stored: bool) -> None:
        """The destination acknowledged ``batch``: it is stored, or (``stored=False``) only accepted."""
        with self._lock:
            for number, _ in batch:
                del self._pending[number]
            self._delivered += len(batch)
            self._failed_attempt = None
            self._stored = stored if self._stored is None else self._stored and stored

    def reject(self, item: Numbered, reason: str) -> None:
        """The destination will never take ``item``; ``reason`` is what it said."""
        number, proposal = item
        with self._lock:
            del self._pending[number]
            self._failed_attempt = None
            self._rejected[number] = Rejection(proposal, reason)

    def attempt_failed(self, problem: str) -> None:
        """An attempt failed, and another follows; ``problem`` is told where the deadline comes before its answer."""
        with self._lock:
            self._failed_attempt = problem

    def expire(self, problem: str) -> None:
        """No time is left. ``problem`` is told where the attempt that is under way was the first."""
        with self._lock:
            self._problem = self._problem or self._failed_attempt or problem

    def stop(self, problem: str) -> None:
        """What is pending now stays so. The first problem stands."""
        with self._lock:
            self._problem = self._problem or problem

    def delivery(self) -> Delivery:
        """The state of this moment."""
        with self._lock:
            return Delivery(
                delivered=self._delivered,
                rejected=tuple(self._rejected[number] for number in sorted(self._rejected)),
                pending=tuple(self._pending.values()),
                problem=self._problem if self._pending else None,
                stored=self._stored,
            )


class Sink(ABC):
    """A destination of proposals. One transport per module; each implements :meth:`send` and :meth:`describe`.

    Delivery is at least once, in the order of the proposals. It is a context manager that closes itself.
    """

    name: ClassVar[str]
    """The kind of destination, as in logs and metrics: ``rest``, ``file``."""

    def deliver(self, proposals: Sequence[Proposal], deadline: Deadline) -> Delivery:
        """Deliver what can be delivered until the deadline; never waits beyond it.

        Failures of the destination are part of the answer, not exceptions.
        """
        record = DeliveryRecord(proposals)
        if proposals and not within(deadline, lambda: self.send(record, deadline)):
            record.expire(f"{self.describe()} did not acknowledge everything before the time for lineage was over.")
        return record.delivery()

    def check(self, deadline: Deadline) -> list[Finding]:  # noqa: ARG002 (for those that ask a server)
        """What can be found out about the destination until the deadline without writing to it; may be nothing."""
        return []

    @abstractmethod
    def describe(self) -> str:
        """The destination in a few words for logs. Never holds a secret."""

    @abstractmethod
    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send ``record.pending()``, tell the record at once of each acknowledgement, rejection and failed attempt
        that is followed by another, and call ``record.stop`` where something stays pending. Runs in a thread that may
        be left behind at the deadline: begins nothing after it."""

    def close(self) -> None:  # noqa: B027 (a sink that holds nothing open needs no code)
        """Release what the sink holds. It cannot be used afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

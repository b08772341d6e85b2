"""Base of the sinks that send batches of items and get an answer to each.

Tests: ``tests/delivery/test_rest.py``, ``tests/delivery/test_object_store.py`` and
``tests/delivery/test_failure.py``.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Backoff, Failure, FailureKind
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, NumberedItem, Sink
from airflow_provider_spark_datahub.foundation.text import counted

log = logging.getLogger(__name__)

_UNREACHABLE_SECONDS = 1.0
"""Waits for a server that cannot be reached: long enough for a restart behind a load balancer, not
for an outage.
"""


class _BatchClient(Protocol):
    """Client of one delivery, which begins nothing after its deadline."""

    def post(self, proposals: Sequence[Proposal], /) -> bool | Failure:
        """Send proposals once; return True if they are stored, False if they are only accepted, or
        the failure.
        """

    def close(self) -> None:
        """Close the connections."""


class BatchSink(Sink):
    """Sink whose server takes a batch of items as a whole or not at all.

    A batch that the server rejects, or fails on (HTTP 500), is halved until the bad item is alone.
    An item that it rejects is rejected. One that it fails on is rejected if it takes other items
    before and after. Failures that may pass (no connection, no answer, 408, 429, 502, 503, 504) are
    retried until the deadline.

    :param backoff: the waits between attempts.
    :param most_retries: of one batch; ``None`` if only the deadline limits them.
    """

    largest_batch: ClassVar[int | None] = None
    """Items of a batch; ``None`` for all in one."""
    server: ClassVar[str]
    """Name of the server in a word or two."""
    remedy: ClassVar[str]
    """Advice if the server refuses the credentials."""

    def __init__(self, backoff: Backoff | None = None, most_retries: int | None = None) -> None:
        self.backoff = backoff or Backoff()
        self.most_retries = most_retries

    @abstractmethod
    def open_client(self, deadline: Deadline) -> _BatchClient:
        """Return a client for one delivery alone: one that is left behind at the deadline disturbs
        no other.
        """

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send batch after batch."""
        with closing(self.open_client(deadline)) as client:
            _Batches(self, client, record, deadline).send()

    def problem(self, failure: Failure, attempts: int, deadline: Deadline) -> str:
        """Return why items are pending after some attempts."""
        text = failure.text.rstrip(".")
        tried = counted(attempts, "request")
        if failure.kind is FailureKind.THROTTLED:
            asked = (
                ""
                if failure.retry_after is None
                else f", wants a wait of {failure.retry_after:.0f} s"
            )
            left = f"{deadline.remaining():.0f} s were left"
            return f"{self.describe()} takes no more for now ({text}{asked}, {left}, {tried})."
        if failure.kind.may_pass:
            failure = replace(failure, text=f"{text}, {tried}")
        return f"{self.describe()} {failure.predicate(self.remedy)}."


@dataclass
class _Batches:
    """Batches of one delivery."""

    _sink: BatchSink
    _client: _BatchClient
    _record: DeliveryRecord
    _deadline: Deadline

    def send(self) -> None:
        """Send the pending items, until all are judged or going on is useless."""
        record = self._record
        pending = record.pending()
        size = self._sink.largest_batch or len(pending)
        batches = deque(pending[start : start + size] for start in range(0, len(pending), size))
        least = (
            self._sink.backoff.first
        )  # seconds; with less time, the bad item of a batch cannot be found
        poison = _PoisonFilter(record, self._sink.server, lambda item: self._post([item])[0])
        while batches:
            batch = batches.popleft()
            answer, attempts = self._post(batch)
            if isinstance(answer, bool):
                record.confirm(batch, stored=answer)
                poison.judge(taken=batch[-1])
            elif answer.kind is FailureKind.REJECTED and len(batch) == 1:
                record.reject(batch[0], answer.text)
            elif (
                answer.kind not in (FailureKind.REJECTED, FailureKind.FAILED)
                or self._deadline.remaining() <= least
            ):
                self._stop(answer, attempts)
                return
            elif len(batch) > 1:
                middle = len(batch) // 2
                batches.extendleft((batch[middle:], batch[:middle]))
            elif not poison.add(batch[0], answer):
                break
        if poison.last is not None:
            self._stop(poison.last, _PoisonFilter.ATTEMPTS)

    def _post(self, batch: Sequence[NumberedItem]) -> tuple[bool | Failure, int]:
        """Post one batch until it is taken, its failure is final, or there is no time for another
        attempt.

        :returns: the last answer, and the number of attempts. If the deadline cut the last attempt
            short, the failure before it, which explains more.
        """
        items, posted, deadline = (
            [item for _, item in batch],
            counted(len(batch), "item"),
            self._deadline,
        )
        attempt, server_failures, waited = 1, 0, 0.0
        before: Failure | None = None
        while isinstance(answer := self._client.post(items), Failure):
            if before is not None and deadline.expired and answer.kind is FailureKind.UNAVAILABLE:
                answer = before
            wait = max(self._sink.backoff.delay(attempt), answer.retry_after or 0.0)
            server_failures += answer.kind is FailureKind.FAILED
            log.debug(
                "Request %d to post %s failed (%s): %s",
                attempt,
                posted,
                answer.kind.name,
                answer.text,
            )
            if (
                self._is_spent(answer, attempt, wait, waited)
                or server_failures >= _PoisonFilter.ATTEMPTS
            ):
                return answer, attempt
            self._record.attempt_failed(self._sink.problem(answer, attempt, deadline))
            before = answer
            self._sink.backoff.sleep(wait)
            waited += wait
            attempt += 1
        return answer, attempt

    def _is_spent(self, failure: Failure, attempt: int, wait: float, waited: float) -> bool:
        """Return whether no other attempt follows: a server that cannot be reached is soon given
        up.
        """
        most, is_unreachable = self._sink.most_retries, failure.kind is FailureKind.UNREACHABLE
        hopeless = (
            is_unreachable and not self._record.patient and waited + wait > _UNREACHABLE_SECONDS
        )
        out_of_time = wait >= self._deadline.remaining() or (most is not None and attempt > most)
        return hopeless or out_of_time or not failure.kind.may_pass

    def _stop(self, failure: Failure, attempts: int) -> None:
        self._record.stop(
            self._sink.problem(failure, attempts, self._deadline), failure.kind.outage_after
        )


@dataclass
class _PoisonFilter:
    """Filter that separates poison items from outages, for items on which a server failed (HTTP
    500) when sent alone.

    An item is rejected if the server fails on it again right after it took another item; one
    failure proves nothing.

    :param server: name of the server, for the reason of a rejection.
    :param resend: sends an item again. Returns True if it is stored, False if it is only accepted,
        or the failure.
    """

    ATTEMPTS = 2
    """Failures on an item before it is a suspect."""
    MOST_SUSPECTS = 5
    """Failures on different items in a row that mean that the server is down."""

    _record: DeliveryRecord
    _server: str
    _resend: Callable[[NumberedItem], bool | Failure]
    _suspects: list[tuple[NumberedItem, Failure]] = field(default_factory=list)
    _last_taken: NumberedItem | None = None

    @property
    def last(self) -> Failure | None:
        """The failure of the last item that is still a suspect."""
        return self._suspects[-1][1] if self._suspects else None

    def judge(self, taken: NumberedItem) -> None:
        """Send each suspect again, since the server has just taken another item, and reject it if
        that fails.

        A suspect stays one if the server cannot be asked.
        """
        self._last_taken = taken
        suspects, self._suspects = self._suspects, []
        for item, _ in suspects:
            match self._resend(item):
                case Failure(kind=FailureKind.FAILED, text=text):
                    self._record.reject(
                        item, f"{self._server} failed on it alone, not on others: {text}"
                    )
                case Failure(kind=FailureKind.REJECTED, text=text):
                    self._record.reject(item, text)
                case Failure() as failure:
                    self._suspects.append((item, failure))
                case bool() as stored:
                    self._record.confirm([item], stored=stored)

    def add(self, item: NumberedItem, failure: Failure) -> bool:
        """Add a suspect. If the server still takes its latest item, judge all suspects.

        :returns: False if the server seems to be down.
        """
        self._suspects.append((item, failure))
        if self._last_taken is None:
            return len(self._suspects) < self.MOST_SUSPECTS
        if isinstance(self._resend(self._last_taken), Failure):
            return False
        self.judge(self._last_taken)
        return not self._suspects

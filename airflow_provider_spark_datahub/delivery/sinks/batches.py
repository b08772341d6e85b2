"""Base of the sinks that send batches of items and get an answer to each."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Backoff, Failure, FailureKind, PoisonFilter, SetupError
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, NumberedItem, Sink
from airflow_provider_spark_datahub.printable import counted

log = logging.getLogger(__name__)


class BatchClient(Protocol):
    """Client of one delivery, which begins nothing after its deadline."""

    def post(self, items: Sequence[Any], /) -> bool | Failure:
        """Send items once; return True if they are stored, False if they are only accepted, or the failure."""

    def close(self) -> None:
        """Close the connections."""


class BatchSink(Sink):
    """Sink whose server takes a batch of items as a whole or not at all.

    A batch that the server rejects, or fails on (HTTP 500), is halved until the bad item is alone. An item that it
    rejects is rejected. One that it fails on is rejected if it takes other items before and after. Failures that may
    pass (no connection, no answer, 408, 429, 502, 503, 504) are retried until the deadline.

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
        self._backoff = backoff or Backoff()
        self._most_retries = most_retries

    @abstractmethod
    def open_client(self, deadline: Deadline) -> BatchClient:
        """Return a client for one delivery alone: one that is left behind at the deadline disturbs no other.

        :raises SetupError: if the settings do not allow it.
        """

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send batch after batch."""
        try:
            with closing(self.open_client(deadline)) as client:
                self._send_all(client, record, deadline)
        except SetupError as error:
            self._stop(record, error.failure, 0, deadline)

    def _send_all(self, client: BatchClient, record: DeliveryRecord, deadline: Deadline) -> None:
        pending = record.pending()
        size = self.largest_batch or len(pending)
        batches = deque(pending[start : start + size] for start in range(0, len(pending), size))
        least = self._backoff.first  # seconds; with less time, the bad item of a batch cannot be found

        def resend(numbered: NumberedItem) -> bool | Failure:
            return self._post(client, record, [numbered], deadline)[0]

        poison = PoisonFilter(record, self.server, resend)
        while batches:
            batch = batches.popleft()
            answer, attempts = self._post(client, record, batch, deadline)
            if isinstance(answer, bool):
                record.confirm(batch, stored=answer)
                poison.judge(taken=batch[-1])
            elif answer.kind is FailureKind.REJECTED and len(batch) == 1:
                record.reject(batch[0], answer.text)
            elif answer.kind not in (FailureKind.REJECTED, FailureKind.FAILED) or deadline.remaining() <= least:
                self._stop(record, answer, attempts, deadline)
                return
            elif len(batch) > 1:
                middle = len(batch) // 2
                batches.extendleft((batch[middle:], batch[:middle]))
            elif not poison.add(batch[0], answer):
                break
        if poison.last is not None:
            self._stop(record, poison.last, PoisonFilter.ATTEMPTS, deadline)

    def _post(
        self, client: BatchClient, record: DeliveryRecord, batch: Sequence[NumberedItem], deadline: Deadline
    ) -> tuple[bool | Failure, int]:
        """Post one batch, in as many attempts as the time allows; return the last answer and their number."""
        items = [item for _, item in batch]
        posted = counted(len(batch), "item")
        answer, attempts = self._backoff.retry(
            f"post {posted}",
            lambda: client.post(items),
            deadline,
            lambda failure, attempt: record.attempt_failed(self._problem(failure, attempt, deadline)),
            self._most_retries,
            patient=record.patient,
        )
        if isinstance(answer, bool):
            log.debug("Request %d to post %s succeeded (stored: %s)", attempts, posted, answer)
        return answer, attempts

    def _stop(self, record: DeliveryRecord, failure: Failure, attempts: int, deadline: Deadline) -> None:
        record.stop(self._problem(failure, attempts, deadline), failure.kind.outage_after)

    def _problem(self, failure: Failure, attempts: int, deadline: Deadline) -> str:
        text = failure.text.rstrip(".")
        tried = counted(attempts, "request")
        if failure.kind is FailureKind.THROTTLED:
            asked = "" if failure.retry_after is None else f", wants a wait of {failure.retry_after:.0f} s"
            left = f"{deadline.remaining():.0f} s were left"
            return f"{self.describe()} takes no more for now ({text}{asked}, {left}, {tried})."
        if failure.kind in (FailureKind.FAILED, FailureKind.UNAVAILABLE, FailureKind.UNREACHABLE):
            failure = replace(failure, text=f"{text}, {tried}")
        return f"{self.describe()} {failure.predicate(self.remedy)}."

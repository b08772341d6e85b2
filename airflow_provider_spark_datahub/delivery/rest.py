"""The REST sink: proposals to DataHub's metadata service (GMS), in batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_spark_datahub.delivery.backoff import Backoff
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.rest_settings import RestSettings
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Numbered, Sink

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.rest_transport import Failure, GmsClient

LARGEST_BATCH = 200
"""Proposals per request: acryl-datahub's own limit, so that one call of its emitter is one request."""


class RestSink(Sink):
    """Delivers to GMS with acryl-datahub's REST emitter.

    A batch that GMS rejects is halved until the culprit stands alone, since GMS takes a batch as a whole or not at
    all. Failures that may pass (no connection, no answer, 408, 429, 5xx) are repeated until the deadline; the
    emitter's own repetitions, which know no deadline, are switched off.

    :param backoff: the waits between attempts.
    :param sleep: waits that many seconds.
    """

    name: ClassVar[str] = "rest"

    def __init__(
        self, settings: RestSettings, *, backoff: Backoff | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._settings = settings
        self._backoff = backoff or Backoff()
        self._sleep = sleep

    def describe(self) -> str:
        """``DataHub at URL``."""
        return f"DataHub at {self._settings.server}"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send batch after batch. The connection is of this call alone, so a call left behind disturbs no other."""
        from airflow_provider_spark_datahub.delivery.rest_transport import FailureKind, GmsClient

        batches = deque(_batches(record.pending()))
        with GmsClient(self._settings, deadline) as gms:
            while batches:
                batch = batches.popleft()
                answer, attempts = self._post(gms, batch, deadline)
                if isinstance(answer, bool):
                    record.confirm(batch, stored=answer)
                elif answer.kind is not FailureKind.REJECTED:
                    record.stop(self._problem(answer, attempts, deadline))
                    return
                elif len(batch) == 1:
                    record.reject(batch[0], answer.words)
                else:
                    middle = len(batch) // 2
                    batches.extendleft((batch[middle:], batch[:middle]))

    def _post(self, gms: GmsClient, batch: Sequence[Numbered], deadline: Deadline) -> tuple[bool | Failure, int]:
        """The answer to one batch after as many attempts as it takes and the time allows, and their number."""
        from airflow_provider_spark_datahub.delivery.rest_transport import FailureKind

        most = self._settings.retry_max_times
        attempt = 1
        while True:
            answer = gms.post([proposal for _, proposal in batch])
            if isinstance(answer, bool) or answer.kind not in (FailureKind.THROTTLED, FailureKind.UNAVAILABLE):
                return answer, attempt
            wait = max(self._backoff.delay(attempt), answer.retry_after or 0.0)
            if wait >= deadline.remaining() or (most is not None and attempt > most):
                return answer, attempt
            self._sleep(wait)
            attempt += 1

    def _problem(self, failure: Failure, attempts: int, deadline: Deadline) -> str:
        from airflow_provider_spark_datahub.delivery.rest_transport import FailureKind

        words = failure.words.rstrip(".")
        tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        match failure.kind:
            case FailureKind.UNAUTHORISED:
                verdict = f"refuses the connection's credentials ({words}): set a valid access token as its password"
            case FailureKind.MISCONFIGURED:
                verdict = f"cannot be used with this connection ({words})"
            case FailureKind.THROTTLED:
                asked = "" if failure.retry_after is None else f", wants a wait of {failure.retry_after:.0f} s"
                left = f"{deadline.remaining():.0f} s were left"
                verdict = f"takes no more for now ({words}{asked}, {left}, {tried})"
            case _:
                verdict = f"is not available ({words}, {tried})"
        return f"{self.describe()} {verdict}."


def _batches(items: Sequence[Numbered]) -> list[Sequence[Numbered]]:
    return [items[start : start + LARGEST_BATCH] for start in range(0, len(items), LARGEST_BATCH)]

"""The REST sink: proposals to DataHub's metadata service (GMS), in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_spark_datahub.delivery.backoff import Backoff
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind, one_line
from airflow_provider_spark_datahub.delivery.finding import Finding, Verdict
from airflow_provider_spark_datahub.delivery.rest_settings import RestSettings
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Numbered, Sink
from airflow_provider_spark_datahub.delivery.suspects import FAILED_ATTEMPTS, Suspects

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.rest_transport import GmsClient

LARGEST_BATCH = 200
"""Proposals per request: acryl-datahub's own limit, so that one call of its emitter is one request."""

_REMEDY = "set a valid access token as its password"
_ADDRESS = "give GMS's own URL as the connection's host: http://gms:8080, or https://datahub.example/api/gms"


class RestSink(Sink):
    """Delivers to GMS with acryl-datahub's REST emitter.

    GMS takes a batch as a whole or not at all. One that it rejects is halved until the culprit stands alone; so is one
    that it fails on (HTTP 500, which is also its answer to an aspect that it cannot read), and there the culprit is
    rejected where GMS takes other proposals before and after it. Failures that may pass (no connection, no answer,
    408, 429, 502, 503, 504) are repeated until the deadline; the emitter's own repetitions, which know no deadline,
    are switched off.

    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "rest"

    def __init__(self, settings: RestSettings, *, backoff: Backoff | None = None) -> None:
        self._settings = settings
        self._backoff = backoff or Backoff()

    def describe(self) -> str:
        """``DataHub at URL``."""
        return f"DataHub at {self._settings.server}"

    def check(self, deadline: Deadline) -> list[Finding]:
        """Whether GMS answers, and takes the connection's credentials: its configuration is open to everyone, so an
        aspect is read as well."""
        from airflow_provider_spark_datahub.delivery.rest_transport import GmsClient

        with GmsClient(self._settings, deadline) as gms:
            config = gms.get("/config")
            if isinstance(config, Failure):
                return [Finding("DataHub", Verdict.BAD, f"{self.describe()} {config.verdict(_REMEDY)}", _ADDRESS)]
            if not isinstance(config, dict) or config.get("noCode") != "true":
                words = f"{self.describe()} answers, but is not DataHub's metadata service (GMS)"
                return [Finding("DataHub", Verdict.BAD, words, _ADDRESS)]
            found = [Finding("DataHub", Verdict.GOOD, f"{self.describe()} answers: {_version(config)}")]
            read = gms.get("/aspects/urn%3Ali%3AdataPlatform%3Aspark?aspect=dataPlatformInfo&version=0", may_miss=True)
        if isinstance(read, Failure):
            refused = read.kind is FailureKind.UNAUTHORISED
            verdict = Verdict.BAD if refused else Verdict.WARNING
            return [*found, Finding("credentials", verdict, f"{self.describe()} {read.verdict(_REMEDY)}")]
        return [*found, Finding("credentials", Verdict.GOOD, "DataHub lets us read")]

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send batch after batch. The connection is of this call alone, so a call left behind disturbs no other."""
        from airflow_provider_spark_datahub.delivery.rest_transport import GmsClient

        batches = deque(_batches(record.pending()))
        suspects = Suspects(record, "DataHub")
        with GmsClient(self._settings, deadline) as gms:
            while batches:
                batch = batches.popleft()
                answer, attempts = self._post(gms, record, batch, deadline)
                if isinstance(answer, bool):
                    record.confirm(batch, stored=answer)
                    suspects.convict(witness=batch[-1])
                elif answer.kind not in (FailureKind.REJECTED, FailureKind.FAILED) or self._is_over(deadline):
                    record.stop(self._problem(answer, attempts, deadline))
                    return
                elif len(batch) > 1:
                    middle = len(batch) // 2
                    batches.extendleft((batch[middle:], batch[:middle]))
                elif answer.kind is FailureKind.REJECTED:
                    record.reject(batch[0], answer.words)
                elif not suspects.add(batch[0], answer, lambda item: self._takes(gms, record, item, deadline)):
                    break
            if suspects.last is not None:
                record.stop(self._problem(suspects.last, FAILED_ATTEMPTS, deadline))

    def _is_over(self, deadline: Deadline) -> bool:
        """Whether too little time is left to find out which proposal is to blame."""
        return deadline.remaining() <= self._backoff.first

    def _takes(self, gms: GmsClient, record: DeliveryRecord, item: Numbered, deadline: Deadline) -> bool:
        """Whether GMS still takes what it took before."""
        answer, _ = self._post(gms, record, [item], deadline)
        return isinstance(answer, bool)

    def _post(
        self, gms: GmsClient, record: DeliveryRecord, batch: Sequence[Numbered], deadline: Deadline
    ) -> tuple[bool | Failure, int]:
        """The answer to one batch after as many attempts as it takes and the time allows, and their number."""
        most = self._settings.retry_max_times
        attempt, failed = 1, 0
        while True:
            answer = gms.post([proposal for _, proposal in batch])
            if isinstance(answer, bool) or not answer.kind.may_pass:
                return answer, attempt
            failed += answer.kind is FailureKind.FAILED
            wait = max(self._backoff.delay(attempt), answer.retry_after or 0.0)
            if wait >= deadline.remaining() or (most is not None and attempt > most):
                return answer, attempt
            if failed >= FAILED_ATTEMPTS:
                return answer, attempt
            record.attempt_failed(self._problem(answer, attempt, deadline))
            self._backoff.sleep(wait)
            attempt += 1

    def _problem(self, failure: Failure, attempts: int, deadline: Deadline) -> str:
        words = failure.words.rstrip(".")
        tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        if failure.kind is FailureKind.THROTTLED:
            asked = "" if failure.retry_after is None else f", wants a wait of {failure.retry_after:.0f} s"
            left = f"{deadline.remaining():.0f} s were left"
            return f"{self.describe()} takes no more for now ({words}{asked}, {left}, {tried})."
        if failure.kind in (FailureKind.FAILED, FailureKind.UNAVAILABLE):
            failure = replace(failure, words=f"{words}, {tried}")
        return f"{self.describe()} {failure.verdict(_REMEDY)}."


def _version(config: dict[str, Any]) -> str:
    """What GMS says of its version."""
    try:
        return f"version {one_line(str(config['versions']['acryldata/datahub']['version']))}"
    except (KeyError, TypeError):
        return "its version is not told"


def _batches(items: Sequence[Numbered]) -> list[Sequence[Numbered]]:
    return [items[start : start + LARGEST_BATCH] for start in range(0, len(items), LARGEST_BATCH)]

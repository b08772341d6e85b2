"""The second destination: raw OpenLineage events to a backend such as Marquez."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_spark_datahub.delivery.backoff import Backoff
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.failure import Failure, FailureKind
from airflow_provider_spark_datahub.delivery.openlineage_settings import OpenLineageSettings
from airflow_provider_spark_datahub.delivery.raw_events import event_of
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Numbered, Sink
from airflow_provider_spark_datahub.delivery.suspects import FAILED_ATTEMPTS, Suspects

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.openlineage_transport import EventTransport

_REMEDY = "set a valid API key as its password"


class OpenLineageSink(Sink):
    """Delivers through a transport of openlineage-python: events one by one, in their order, so
    that a backend never sees the end of a run before its start.

    What may pass is tried again until the deadline; transports' own repetitions, which know no deadline, are switched
    off. An event that the backend fails on (HTTP 500) is rejected where it takes others before and after it.

    :param backoff: the waits between attempts.
    """

    name: ClassVar[str] = "openlineage"

    def __init__(self, settings: OpenLineageSettings, *, backoff: Backoff | None = None) -> None:
        self._settings = settings
        self._backoff = backoff or Backoff()

    def describe(self) -> str:
        """``the OpenLineage backend at URL``."""
        return f"the OpenLineage backend {self._settings.where}"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        """Send event after event. The transport is of this call alone."""
        from airflow_provider_spark_datahub.delivery.openlineage_transport import EventTransport, SetupError

        try:
            with EventTransport(self._settings, deadline) as transport:
                failure = self._send_all(transport, record, deadline)
        except SetupError as error:
            failure = error.failure
        if failure is not None:
            record.stop(self._problem(failure))

    def _send_all(self, transport: EventTransport, record: DeliveryRecord, deadline: Deadline) -> Failure | None:
        suspects = Suspects(record, "the OpenLineage backend")
        for item in record.pending():
            event = event_of(item[1])
            if event is None:
                return Failure(
                    FailureKind.MISCONFIGURED,
                    "it takes OpenLineage events, and this is a proposal to DataHub: name it as openlineage_conn_id",
                )
            failure = self._emit(transport, record, event, deadline)
            if failure is None:
                record.confirm([item], stored=True)
                suspects.convict(witness=item)
            elif failure.kind is FailureKind.REJECTED:
                record.reject(item, failure.words)
            elif failure.kind is not FailureKind.FAILED or deadline.remaining() <= self._backoff.first:
                return failure
            elif not suspects.add(item, failure, lambda known: self._takes(transport, record, known, deadline)):
                break
        return suspects.last

    def _takes(self, transport: EventTransport, record: DeliveryRecord, item: Numbered, deadline: Deadline) -> bool:
        """Whether the backend still takes the last event that it took, which changes the order of none."""
        event = event_of(item[1])
        return event is not None and self._emit(transport, record, event, deadline) is None

    def _emit(
        self, transport: EventTransport, record: DeliveryRecord, event: Mapping[str, Any], deadline: Deadline
    ) -> Failure | None:
        attempt, failed = 1, 0
        while (failure := transport.emit(event)) is not None:
            failed += failure.kind is FailureKind.FAILED
            wait = self._backoff.delay(attempt)
            if not failure.kind.may_pass or wait >= deadline.remaining() or failed >= FAILED_ATTEMPTS:
                break
            record.attempt_failed(self._problem(failure))
            self._backoff.sleep(wait)
            attempt += 1
        return failure

    def _problem(self, failure: Failure) -> str:
        return f"{self.describe()} {failure.verdict(_REMEDY)}."

"""Lineage of a job while it runs (``emit_periodically``), delivered from a background thread."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.conversion import patched_edges, retractions
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.printable import counted
from airflow_provider_spark_datahub.task.job_events import JobEvents

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Conversion, Proposal
    from airflow_provider_spark_datahub.conversion.run_tree import TaskAttempt
    from airflow_provider_spark_datahub.task.delivery import TaskDelivery
    from airflow_provider_spark_datahub.task.options import LineageOptions

log = logging.getLogger(__name__)


class RunningLineage:
    """Periodic delivery of a running job's lineage, under the same URNs as at its end.

    These proposals are not put into the outbox: the next delivery, and the end of the attempt, send them again.

    :param open_events: opens the job's events at their beginning; called in the thread.
    :param ended: set when the job has ended; from then on nothing more is delivered.
    """

    def __init__(
        self,
        options: LineageOptions,
        attempt: TaskAttempt,
        delivery: TaskDelivery,
        open_events: Callable[[], JobEvents],
        ended: threading.Event,
    ) -> None:
        self._options = options
        self._attempt = attempt
        self._delivery = delivery
        self._open_events = open_events
        self._events: JobEvents | None = None
        self._ended = ended
        self._idle = threading.Event()
        self._idle.set()
        self._sent_edges: dict[str, set[str]] = {}
        self._logged: tuple[list[str], list[str]] = ([], [])
        self._problem: str | None = None

    def follow(self, seconds: float) -> None:
        """Deliver in this thread, every ``seconds``, until the job has ended."""
        while not self._ended.wait(seconds):
            self._idle.clear()
            try:
                # Checked again: the job may have ended before this thread was marked as busy.
                if not self._ended.is_set():
                    self._deliver_new()
            finally:
                self._idle.set()

    def stop(self, deadline: Deadline) -> JobEvents | None:
        """Wait for a delivery that is under way, for half of the time at most. The job has ended.

        :returns: the events as far as they were read, if the end of the attempt can continue from there.
        """
        events = self._events if self._idle.wait(deadline.remaining() / 2) else None
        return events if events is not None and events.can_finish else None

    def retractions(self, proposals: Collection[Proposal]) -> list[Proposal]:
        """Return patches that remove the edges that were sent while the job ran but are not in its final proposals."""
        return retractions(self._sent_edges, proposals)

    def _deliver_new(self) -> None:
        # If a step fails, the events may be half read: the next call opens them again.
        events, self._events = self._events or self._open_events(), None
        delivered = True
        for conversion in events.snapshot(self._ended.is_set, again=self._problem is not None):
            proposals = events.proposals(self._attempt, conversion)
            delivered = self._deliver(conversion, proposals) and delivered
        if delivered:
            events.mark_delivered()
        self._events = events

    def _deliver(self, conversion: Conversion, proposals: list[Proposal]) -> bool:
        for urn, paths in patched_edges(proposals).items():
            # Record the edges before the delivery: they may be stored although no answer arrives.
            self._sent_edges.setdefault(urn, set()).update(paths)
        deadline = Deadline(time.monotonic() + self._options.timeout, self._clock)
        delivery = self._delivery.send(proposals, deadline)
        self._log(conversion, len(proposals), delivery.delivered, delivery.problem)
        return delivery.delivered == len(proposals)

    def _clock(self) -> float:
        """Return the time, or infinity once the job has ended, so that no older lineage arrives after the end's."""
        return math.inf if self._ended.is_set() else time.monotonic()

    def _log(self, conversion: Conversion, proposals: int, delivered: int, problem: str | None) -> None:
        """Log only changes at INFO and WARNING, since a job may run for weeks."""
        log.debug("Delivered %d of %s while the job runs", delivered, counted(proposals, "proposal"))
        datasets = conversion.inputs, conversion.outputs
        if datasets != self._logged and delivered:
            log.info(
                "Lineage of the running job: %s, %s; %s of %s delivered.", counted(len(conversion.inputs), "input"),
                counted(len(conversion.outputs), "output"), delivered, counted(proposals, "proposal"),
            )  # fmt: skip
            self._logged = datasets
        if problem and not self._problem and not self._ended.is_set():
            log.warning("Lineage of the running job was not delivered, and will be sent again: %s", problem)
        self._problem = problem

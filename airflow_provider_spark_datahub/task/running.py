"""What is told of a job while it runs, from a thread beside it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.task.delivery import TaskDelivery
from airflow_provider_spark_datahub.task.job_events import JobEvents

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Conversion, Proposal
    from airflow_provider_spark_datahub.conversion.run_tree import TaskTry
    from airflow_provider_spark_datahub.delivery import Deadline
    from airflow_provider_spark_datahub.task.options import LineageOptions

log = logging.getLogger(__name__)


class RunningLineage:
    """Delivers, every so often, what a job did so far, under the URNs of its end.

    It is not put into the outbox: what does not arrive is told again the next time, and all of it at the end.

    :param open_events: the job's events from their beginning; called in the thread.
    """

    def __init__(
        self,
        options: LineageOptions,
        task_try: TaskTry,
        delivery: TaskDelivery,
        open_events: Callable[[], JobEvents],
    ) -> None:
        self._options = options
        self._try = task_try
        self._delivery = delivery
        self._open_events = open_events
        self._events: JobEvents | None = None
        self._stopped = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._added: dict[str, set[str]] = {}
        self._told: tuple[list[str], list[str]] = ([], [])
        self._problem: str | None = None

    def follow(self, seconds: float) -> None:
        """Deliver in this thread until :meth:`stop`.

        :param seconds: between two deliveries.
        """
        while not self._stopped.wait(seconds):
            self._idle.clear()
            try:
                # Asked once more: who stopped it in between did not wait.
                if not self._stopped.is_set():
                    self._tell_news()
            finally:
                self._idle.set()

    def stop(self, deadline: Deadline) -> JobEvents | None:
        """Begin nothing more, and wait for what is under way; for half of the time at most.

        :returns: the events as far as they were read, where the end can go on from there.
        """
        self._stopped.set()
        events = self._events if self._idle.wait(deadline.remaining() / 2) else None
        return events if events is not None and events.can_finish else None

    def taken_back(self, end: Collection[Proposal]) -> list[Proposal]:
        """Patches for what was told and what the end, which knows everything, does not tell.

        :param end: all that the end tells.
        """
        from airflow_provider_spark_datahub.conversion import retractions

        return retractions(self._added, end)

    def _tell_news(self) -> None:
        # Not there where something fails in between: they may be half read then.
        events, self._events = self._events or self._open_events(), None
        arrived = True
        for conversion in events.so_far(self._stopped.is_set, again=self._problem is not None):
            arrived = self._tell(conversion) and arrived
        if arrived:
            events.told()
        self._events = events

    def _tell(self, conversion: Conversion) -> bool:
        from airflow_provider_spark_datahub.conversion import added_edges
        from airflow_provider_spark_datahub.conversion.run_tree import below, task_proposals
        from airflow_provider_spark_datahub.delivery import Deadline

        jobs = conversion.jobs = below(conversion.jobs, self._try)
        proposals = [*task_proposals(self._try, jobs), *conversion.proposals(self._options.settings)]
        for urn, paths in added_edges(proposals).items():
            # Before it is sent: it may be stored without an answer.
            self._added.setdefault(urn, set()).update(paths)
        deadline = Deadline(time.monotonic() + self._options.timeout, self._clock)
        delivery = self._delivery.send(proposals, deadline)
        self._log(conversion, len(proposals), delivery.delivered, delivery.problem)
        return delivery.delivered == len(proposals)

    def _clock(self) -> float:
        """No time is left when the job ends, so that nothing older arrives after what is told then."""
        return math.inf if self._stopped.is_set() else time.monotonic()

    def _log(self, conversion: Conversion, proposals: int, delivered: int, problem: str | None) -> None:
        """Only what is new is told: a job may run for weeks."""
        found = conversion.inputs, conversion.outputs
        if found != self._told and delivered:
            log.info(
                "Lineage so far: %s inputs, %s outputs; %s of %s proposals delivered.",
                *map(len, found), delivered, proposals,
            )  # fmt: skip
            self._told = found
        if problem and not self._problem and not self._stopped.is_set():
            log.warning("Lineage so far was not delivered, and will be told again: %s", problem)
        self._problem = problem

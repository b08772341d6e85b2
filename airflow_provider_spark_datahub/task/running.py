"""One attempt while its job runs: announced, and delivered periodically (``emit_periodically``), in
a thread.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.conversion import patched_edges, retractions
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.foundation.memory import gc_paused
from airflow_provider_spark_datahub.foundation.text import counted

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Conversion, Proposal
    from airflow_provider_spark_datahub.task.attempt import AttemptLineage
    from airflow_provider_spark_datahub.task.job_events import JobEvents
    from airflow_provider_spark_datahub.task.submitted import SubmittedJob

log = logging.getLogger(__name__)

_USED_AT_THE_END = ("task.ended", "task.job_events", "delivery.outbox.drain", "capture.event_log")
"""Modules that would delay the submit. They are imported while the job runs, which costs the task
no time.
"""


_LOG_SECONDS = 10.0
"""Time between two looks at the size of Spark's event log."""


class RunningAttempt:
    """One attempt while its job runs, in a thread of its own.

    Its deliveries are not put into the outbox: the next one, and the end of the attempt, send them
    again.

    :ivar inputs: URNs of the datasets read up to now, even by queries of a long job that are
        forgotten at its end; likewise :attr:`outputs`.
    """

    def __init__(self, lineage: AttemptLineage) -> None:
        self._lineage = lineage
        self._delivery = lineage.delivery
        self._timeout = lineage.options.timeout
        self._job: SubmittedJob | None = None
        self._events: JobEvents | None = None
        self._ended = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._sent_edges: dict[str, set[str]] = {}
        self._logged: tuple[list[str], list[str]] = ([], [])
        self.inputs = set[str]()
        self.outputs = set[str]()
        self._problem: str | None = None

    def announce(self) -> None:
        """Deliver what earlier attempts left behind, then report that this attempt is running.

        The end of the attempt delivers again what fails here.
        """
        with gc_paused():
            for name in _USED_AT_THE_END:
                import_module(f"airflow_provider_spark_datahub.{name}")
        job = self._lineage.job
        if job.events is not None and not isinstance(job.events, Path):
            # The first request loads the client of the store; the end of the attempt has no time
            # for that.
            with suppress(OSError):
                job.events.sizes()
        try:
            self._delivery.deliver_earlier()
        except (OSError, ValueError) as error:
            log.warning(
                "Could not deliver what earlier attempts left: %s. The end of this attempt delivers it again.",
                error,
            )
        delivery = self._delivery.send(
            self._lineage.task_attempt.proposals(), Deadline.after(self._timeout)
        )
        log.debug("Announced the attempt: %s delivered", counted(delivery.delivered, "proposal"))

    def follow(self) -> None:
        """Until the job has ended, bound its event log, and deliver its lineage every
        ``emit_periodically`` seconds.
        """
        period = self._lineage.options.emit_periodically or math.inf
        due = time.monotonic() + period
        while not self._ended.wait(min(_LOG_SECONDS, max(0.0, due - time.monotonic()))):
            self._lineage.job.event_log.bound()
            if time.monotonic() < due:
                continue
            due = time.monotonic() + period
            self._idle.clear()
            try:
                # Checked again: the job may have ended before this thread was marked as busy.
                if not self._ended.is_set():
                    self._deliver_new()
            finally:
                self._idle.set()

    def stop(self) -> None:
        """Begin no further delivery: the job has ended, or another process waits for it."""
        self._ended.set()

    def hand_over(self, deadline: Deadline) -> JobEvents | None:
        """Wait for a delivery that is under way, for half of the time at most. The job has ended.

        :returns: the events as far as they were read, if the end of the attempt can continue from
            there.
        """
        events = self._events if self._idle.wait(deadline.remaining() / 2) else None
        # Events that were read before the attempt reconnected are not of its job.
        return (
            events
            if events is not None and events.can_finish and self._job is self._lineage.job
            else None
        )

    def retractions(self, proposals: Collection[Proposal]) -> list[Proposal]:
        """Return patches that remove the edges that were sent while the job ran but are not in its
        final proposals.
        """
        return retractions(self._sent_edges, proposals)

    def _deliver_new(self) -> None:
        from airflow_provider_spark_datahub.task.job_events import JobEvents

        if self._job is not self._lineage.job:
            self._events, self._job = None, self._lineage.job
        # If a step fails, the events may be half read: the next call opens them again.
        events, self._events = self._events or JobEvents(self._job), None
        delivered = True
        for conversion in events.snapshot(self._ended.is_set, again=self._problem is not None):
            proposals = events.proposals(self._lineage.task_attempt, conversion)
            delivered = self._deliver(conversion, proposals) and delivered
        if delivered:
            events.mark_delivered()
        self._events = events

    def _deliver(self, conversion: Conversion, proposals: list[Proposal]) -> bool:
        proposals = self._delivery.revise(proposals)
        for urn, paths in patched_edges(proposals).items():
            # Record the edges before the delivery: they may be stored although no answer arrives.
            self._sent_edges.setdefault(urn, set()).update(paths)
        deadline = Deadline(time.monotonic() + self._timeout, self._clock)
        delivery = self._delivery.send(proposals, deadline)
        self._log(conversion, len(proposals), delivery.delivered, delivery.problem)
        return delivery.delivered == len(proposals)

    def _clock(self) -> float:
        """Return the time, or infinity once the job has ended, so that no older lineage arrives
        after the end's.
        """
        return math.inf if self._ended.is_set() else time.monotonic()

    def _log(
        self, conversion: Conversion, proposals: int, delivered: int, problem: str | None
    ) -> None:
        """Log only changes at INFO and WARNING, since a job may run for weeks."""
        datasets = conversion.inputs, conversion.outputs
        self.inputs.update(datasets[0])
        self.outputs.update(datasets[1])
        if datasets != self._logged and delivered:
            log.info(
                "Lineage of the running job: %s, %s; %s of %s delivered.", counted(len(conversion.inputs), "input"),
                counted(len(conversion.outputs), "output"), delivered, counted(proposals, "proposal"),
            )  # fmt: skip
            self._logged = datasets
        if problem and not self._problem and not self._ended.is_set():
            log.warning(
                "Lineage of the running job was not delivered, and will be sent again: %s", problem
            )
        self._problem = problem

"""The end of one attempt: its events become delivered lineage, and its report says why if they do
not.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture import EVENT_FOLDER, CollectionReport, Outcome
from airflow_provider_spark_datahub.conversion import DatasetId, patched_edges, redact_text
from airflow_provider_spark_datahub.delivery import Deadline, step_in_time
from airflow_provider_spark_datahub.delivery.outbox import EdgeRecord
from airflow_provider_spark_datahub.foundation.memory import gc_paused
from airflow_provider_spark_datahub.foundation.text import counted
from airflow_provider_spark_datahub.task.attempt import LAST_LINE_CHARS, AttemptLineage
from airflow_provider_spark_datahub.task.delivery import TaskDelivery
from airflow_provider_spark_datahub.task.job_events import JobEvents
from airflow_provider_spark_datahub.task.report import LineageReport

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import (
        Conversion,
        JobLineage,
        Proposal,
        WrittenDataset,
    )
    from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult
    from airflow_provider_spark_datahub.task.earlier import SucceededAttempt
    from airflow_provider_spark_datahub.task.running import RunningAttempt
    from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog

log = logging.getLogger(__name__)

_CONVERSION_SHARE = 0.85
"""Part of the remaining time for the end of the conversion; the rest is for writing what it made
into the outbox.
"""

_FAILURE_CHARS = 1_000
"""Longest description of a failure that is kept."""
_LISTENER_ALONE = (
    "OpenLineage's listener alone misses file sinks of streams, some queries and some columns"
)


@dataclass(frozen=True)
class AttemptEnd:
    """End of an attempt.

    :param spark_succeeded: whether spark-submit succeeded.
    :param end_ms: time of the end, in ms since the epoch.
    :param seconds: time for the lineage steps.
    :param failure: how the call that starts Spark failed, in a few words without secrets; empty if
        it did not.
    :param submitted: whether the call started a job at all, as far as that is known.
    """

    spark_succeeded: bool
    result: AttemptResult
    end_ms: int
    seconds: float
    failure: str = ""
    submitted: bool = True


@dataclass
class EndedAttempt:
    """One attempt after its job.

    :param lineage: the attempt with its submitted job.
    :param running: the attempt while the job ran; ``None`` if the job never ran.
    :ivar conversion: of the job; ``None`` until it is converted.
    :ivar written: datasets that the job wrote; if the attempt only delivers, those of the earlier
        attempt's job.
    """

    _lineage: AttemptLineage
    end: AttemptEnd
    _running: RunningAttempt | None = None
    conversion: Conversion | None = None
    written: Sequence[WrittenDataset] = ()
    _names_all_edges: bool = False

    def __post_init__(self) -> None:
        self._attempt = self._lineage.task_attempt.ended(self.end.end_ms, self.end.result)
        self._started = time.monotonic()
        self._deadline = Deadline.after(self.end.seconds)

    def finish(self) -> LineageReport:
        """Collect, convert and deliver everything, within the time of the end."""
        lineage, end, report = self._lineage, self.end, self._lineage.report
        if self._running is not None:
            self._running.stop()
        spark = "succeeded" if end.spark_succeeded else "failed"
        log.debug(
            "The job has ended: Spark %s, the task is %s; %.1f s for lineage",
            spark,
            end.result,
            end.seconds,
        )
        with lineage.delivery.leased(self._deadline), gc_paused():
            if lineage.record is not None:
                lineage.record = lineage.record.ended(
                    end.end_ms, end.result, spark_succeeded=end.spark_succeeded
                )
                lineage.delivery.record_end(lineage.record)
            if lineage.driver_output.is_killed:
                lineage.job.event_log.await_close(self._deadline)
            events = self._events()
            collected = events.collect(self._deadline)
            if end.spark_succeeded and lineage.reconnect_if_attached():
                events = JobEvents(lineage.job)
                collected = events.collect(self._deadline)
            proposals = self._converted(events, collected)
            if proposals is not None:
                self._deliver(collected, proposals)
            # A collection would look at everything that was made, and free nothing.
            gc.freeze()
        is_delivered = report.is_complete and not report.rejected
        # An entry that could not be removed will be converted again.
        if (
            is_delivered
            and collected.is_whole
            and lineage.job.events
            and report.outbox_entry is None
        ):
            self._remove_events()
        report.seconds = round(time.monotonic() - self._started, 3)
        return report

    def _events(self) -> JobEvents:
        """Return the events that were followed while the job ran, if they are usable, or read them
        from the start.
        """
        followed = self._running.hand_over(self._deadline) if self._running is not None else None
        return followed or JobEvents(self._lineage.job)

    def _converted(self, events: JobEvents, collected: CollectionReport) -> list[Proposal] | None:
        """Convert the job, and return its proposals; ``None`` if this is left to the next attempt
        or a drain.
        """
        succeeded = self.end.spark_succeeded
        queues = self._lineage.driver_output.dropping_queues
        events.has_dropped = bool(queues)
        if queues:
            self._lineage.report.warnings.append(
                f"Spark's event bus dropped events ({', '.join(queues)}), so that edges are only added: raise "
                "spark.scheduler.listenerbus.eventqueue.capacity"
            )
        in_time = Deadline.after(self._deadline.remaining() * _CONVERSION_SHARE)
        converted = events.lineage_in_time(succeeded, self._attempt, in_time)
        if converted is None:
            if self._lineage.delivery.leave_unfinished(collected, is_stuck=events.is_stuck):
                return None
            converted = events.lineage(succeeded, self._attempt)
        self.conversion, proposals = converted
        self.written = self.conversion.written
        self._describe(collected, self.conversion, self._notes_of_launches())
        own_edges = patched_edges(proposals)
        if events.saw_everything and self._running is not None:
            proposals += self._running.retractions(proposals)
        log.debug("Made %s", counted(len(proposals), "proposal"))
        self._keep_edges(own_edges)
        return proposals

    def _deliver(self, collected: CollectionReport, proposals: list[Proposal]) -> None:
        delivery, record = self._lineage.delivery, self._lineage.record
        if record is not None and not collected.is_whole:
            delivery.record_end(replace(record, keep_events=True))
        delivery.deliver(proposals, self._deadline, spark_succeeded=self.end.spark_succeeded)

    def _remove_events(self) -> None:
        job, report = self._lineage.job, self._lineage.report
        try:
            job.remove_events(self._deadline, spark_succeeded=self.end.spark_succeeded)
        except OSError as error:
            report.warnings.append(
                f"cannot remove the event file {job.events}: {error.strerror or error}"
            )
        else:
            report.events_file = None

    def deliver_only(self, succeeded: SucceededAttempt) -> LineageReport:
        """Deliver the lineage that an earlier attempt left, and this attempt's own place in the run
        tree.
        """
        lineage = self._lineage
        self.written = succeeded.written
        with lineage.delivery.leased(self._deadline):
            lineage.report.reason = lineage.earlier.problem_with(succeeded, self._deadline)
            self._deliver_runs(lineage.delivery)
        return lineage.report

    def correct(self) -> LineageReport:
        """Deliver a corrected result at the time of what :meth:`finish` delivered, so that it
        replaces that result.
        """
        lineage, report = self._lineage, LineageReport(connection=self._lineage.options.connection)
        self._deliver_runs(
            TaskDelivery(lineage.options, self._attempt.key, lineage.connections, report)
        )
        return report

    def _deliver_runs(self, delivery: TaskDelivery) -> None:
        delivery.deliver(
            self._attempt.proposals(), self._deadline, spark_succeeded=self.end.spark_succeeded
        )

    def compare(self) -> None:
        """Keep a fingerprint of the attempt, and report what changed since the last green run of
        the task.
        """
        if self.conversion is not None and not self._deadline.expired:
            said = f"{self._lineage.report.failure}\n{redact_text(self._lineage.driver_output.last_line)}"
            failure = None if self.end.spark_succeeded else said[:_FAILURE_CHARS]
            seen = (
                (self._running.inputs, self._running.outputs) if self._running is not None else ()
            )
            self._lineage.delivery.compare(self._attempt, self.jobs, self._deadline, failure, *seen)

    # -- what later jobs of the attempt, other runs, Airflow's assets and DataHub's own plugin need

    @property
    def jobs(self) -> list[JobLineage]:
        """All converted jobs of the attempt."""
        return [*(self._lineage.before or ()), *(self.conversion.jobs if self.conversion else ())]

    def _keep_edges(self, edges: Mapping[str, set[str]]) -> None:
        """Record the edges of a complete attempt, if other runs of the task or DataHub's plugin
        need them.
        """
        attempt, jobs = self._attempt, self.conversion.jobs if self.conversion else []
        is_complete = self._lineage.before is None and self.end.result == "SUCCESS"
        if not is_complete or not jobs or any(job.patch_edges for job in jobs):
            return
        self._names_all_edges = not attempt.is_mapped
        if not (attempt.is_mapped or attempt.written_by_plugin):
            return
        shared_edges: dict[str, tuple[str, ...]] = {job.job_urn: () for job in jobs}
        for urn, paths in edges.items():
            shared_edges[urn] = tuple(sorted(paths))
        record = EdgeRecord(
            attempt.key,
            self._lineage.options.connection,
            attempt.dag_run.start_ms or 0,
            attempt.dag_run.due_ms or attempt.dag_run.start_ms or 0,
            shared_edges if attempt.is_mapped else {},
            outputs=tuple(sorted(self._own_outputs())),
        )
        self._lineage.delivery.keep_edges(record)

    def openlineage_datasets(self, *, for_plugin: bool) -> tuple[list[DatasetId], list[DatasetId]]:
        """Return the inputs and outputs of the jobs.

        :param for_plugin: for DataHub's own Airflow plugin, by platform and name as in DataHub:
            outputs alone, as in :func:`.run_tree.TaskAttempt.proposals`. It replaces the edges of
            the task's DataJob by them, even after a failure and for each index of a mapped task.
            If this attempt does not name all of the task's outputs, those that other runs of the
            task named are added.
        """
        if for_plugin:
            return [], self._outputs_in_datahub()
        inputs = {
            one for job in self.jobs for each in job.lineage.inputs.values() for one in each.ids
        }
        outputs = {
            one for job in self.jobs for each in job.lineage.outputs.values() for one in each.ids
        }
        return sorted(inputs), sorted(outputs)

    def _outputs_in_datahub(self) -> list[DatasetId]:
        outputs = self._own_outputs()
        if not self._names_all_edges:
            for record in self._lineage.delivery.kept_edges():
                outputs.update(DatasetId(*dataset) for dataset in record.outputs)
        return sorted(outputs)

    def _own_outputs(self) -> set[DatasetId]:
        names = [dataset.name for job in self.jobs for dataset in job.lineage.outputs.values()]
        return {DatasetId(name.platform, name.full_name) for name in names}

    # -- the report

    @property
    def _was_submitted(self) -> bool:
        return self.end.submitted or self._lineage.job.is_earlier

    @property
    def listener_failure(self) -> str:
        """How the capture made the job fail, as far as that is known; empty if it did not."""
        return self._lineage.listener_failure if self.end.failure and self._was_submitted else ""

    def _why_no_events(self, collected: CollectionReport) -> str:
        job = self._lineage.job
        if collected.outcome is not Outcome.MISSING:
            return collected.sentence
        if not self._was_submitted:
            return f"the job was not started: {self.end.failure}"
        if job.event_log.why_empty:
            return job.event_log.why_empty
        if job.event_log.is_own and job.event_log.problems:
            return f"Spark's event log shows no query: {job.event_log.problems[0]}"
        if job.driver_is_here is False and isinstance(job.events, Path):
            return (
                f"there is no event file: the driver ran on another machine, and its {job.events} is not on "
                "this one, or the OpenLineage listener did not run there: set events_location to a folder that both "
                "share, or to an address in S3"
            )
        if not self.end.failure or not job.driver_is_here:
            return collected.sentence
        if self.listener_failure:
            return f"there is no event file: {self.listener_failure}"
        # The listener writes its first event when the application starts.
        failure = self._lineage.report.failure
        return f"the job failed before its Spark application started, so there are no events: {failure}"

    def _describe(
        self, collected: CollectionReport, conversion: Conversion, notes: Sequence[str]
    ) -> None:
        lineage, report, diagnostics = self._lineage, self._lineage.report, conversion.diagnostics
        job, settings = lineage.job, lineage.job.settings
        if self.end.failure:
            output = lineage.driver_output
            reason = redact_text(output.cause or output.last_line)[:LAST_LINE_CHARS]
            report.failure = (
                f"{self.end.failure}; it printed: {reason}" if reason else self.end.failure
            )
        report.events = collected.events
        report.bad_events = (
            collected.quarantined_count + collected.torn + diagnostics.rejected_events
        )
        report.jobs = list(dict.fromkeys(each.job_urn for each in conversion.jobs))
        report.inputs, report.outputs = conversion.inputs, conversion.outputs
        report.warnings += [
            f"{line.source}, line {line.line}: {line.reason}" for line in collected.quarantined
        ]
        self._describe_log(job.event_log, has_events=bool(collected.events))
        if self.listener_failure:
            does = "writes no event log" if job.event_log.why_empty else "runs without the listener"
            report.warnings.append(f"{self.listener_failure}; a next attempt {does}")
        report.warnings += notes if collected.events else []
        report.warnings += [*settings.domain_warnings(), *diagnostics.messages()]
        report.gaps += diagnostics.gaps
        report.sources = diagnostics.sources
        if collected.outcome in (Outcome.TORN, Outcome.TIMED_OUT, Outcome.REPLACED):
            report.warnings.append(collected.sentence)
        if job.problem:
            report.reason = job.problem
        elif not collected.events and not conversion.jobs:
            report.started_spark = (
                bool(notes) or not self._is_of_children or collected.outcome is not Outcome.MISSING
            )
            report.reason = "; ".join(dict.fromkeys(notes)) or self._why_no_events(collected)
        elif not conversion.jobs:
            rejected = counted(diagnostics.rejected_events, "event")
            report.reason = (
                f"none of {rejected} could be converted: {next(iter(diagnostics.rejections))}"
            )
        elif (unreported := diagnostics.unreported_messages()) and not report.has_lineage:
            report.reason = unreported[0]
        elif not report.has_lineage:
            report.reason = (
                "the job's events name no dataset: it read and wrote nothing that OpenLineage sees"
            )

    def _describe_log(self, event_log: SparkEventLog, *, has_events: bool) -> None:
        report = self._lineage.report
        report.warnings += event_log.problems
        if event_log.missing and self._lineage.options.capture == "event_log":
            report.warnings.append(f"no Spark event log: {event_log.missing}")
        elif event_log.missing and has_events:
            report.gaps.append(f"no Spark event log: {event_log.missing}; {_LISTENER_ALONE}")

    @property
    def _is_of_children(self) -> bool:
        """Whether the events are those of Sparks below the task, if it starts any."""
        place = self._lineage.job.events
        return isinstance(place, Path) and place.suffix == EVENT_FOLDER

    def _notes_of_launches(self) -> list[str]:
        place, disk = self._lineage.job.events, str(self._lineage.options.events_location)
        if not isinstance(place, Path) or not self._is_of_children:
            return []
        try:
            notes = step_in_time(
                disk, self._deadline, lambda: [*capture.ChildInjection.notes(place)]
            )
            return [redact_text(note) for note in notes]
        except OSError as error:
            return [f"the notes of the task's launches of Spark cannot be read: {error}"]

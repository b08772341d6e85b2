"""Lineage of one attempt, from before the submit to the report."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture import (
    EVENT_FOLDER,
    CollectionReport,
    DriverOutput,
    EventPlace,
    Injection,
    Outcome,
    ParentRun,
    PropertiesFile,
    RunningSubmit,
    Submission,
)
from airflow_provider_spark_datahub.conversion import patched_edges, redact_text
from airflow_provider_spark_datahub.delivery import Deadline, step_in_time
from airflow_provider_spark_datahub.gc_tuning import gc_paused
from airflow_provider_spark_datahub.printable import counted
from airflow_provider_spark_datahub.task.delivery import TaskDelivery
from airflow_provider_spark_datahub.task.ended import EndedAttempt
from airflow_provider_spark_datahub.task.options import UNNAMED_APPLICATION
from airflow_provider_spark_datahub.task.recovery import (
    UnfinishedAttempt,
    event_place,
    remove_events,
    was_read_completely,
)
from airflow_provider_spark_datahub.task.report import LineageReport
from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog
from airflow_provider_spark_datahub.task.submit_plan import SparkSubmit, SubmitPlan

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture import ChildInjection
    from airflow_provider_spark_datahub.conversion import Conversion
    from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult, TaskAttempt
    from airflow_provider_spark_datahub.task.job_events import JobEvents
    from airflow_provider_spark_datahub.task.options import Connections, LineageOptions
    from airflow_provider_spark_datahub.task.raw_events import EventForwarding, RawEvents
    from airflow_provider_spark_datahub.task.running import RunningLineage

log = logging.getLogger(__name__)

T = TypeVar("T")

_LAST_LINE_CHARS = 300
_ORPHAN_SECONDS = 10.0
"""Time for an orphaned spark-submit to end after SIGTERM, and again after SIGKILL."""
_RAW_EVENTS_SHARE = 0.05
"""Extra share of the time for lineage in which raw events are kept with proposals that could not be delivered."""
_USED_AT_THE_END = ("task.running", "delivery.outbox.drain")
"""Modules that would delay the submit. They are imported while the job runs, which costs the task no time."""


class Launcher(Protocol):
    """Starter of Spark for one task.

    :meth:`AttemptLineage.finish` gets the result of the job.
    """

    def inject(
        self, attempt: AttemptLineage, parent: ParentRun, root: ParentRun
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the task starts Spark with lineage. Its exit restores everything.

        :raises InjectionError: if lineage cannot be added without risk to the job.
        :raises OSError: if a file of the job cannot be read.
        """

    def stop(self) -> None:
        """Stop the job, and wait until it writes no more events."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """End of an attempt.

    :param spark_succeeded: whether spark-submit succeeded.
    :param end_ms: time of the end, in ms since the epoch.
    :param seconds: time for the lineage steps.
    :param failure: how the call that starts Spark failed, in a few words without secrets; empty if it did not.
    """

    spark_succeeded: bool
    result: AttemptResult
    end_ms: int
    seconds: float
    failure: str = ""


class AttemptLineage:
    """Lineage steps of one attempt, without Airflow: inject, announce, follow, then finish.

    :param ti_id: Airflow's id of the task instance, new for every attempt; empty if there is none.
    :ivar delivery: the half that knows the sink and the outbox.
    :ivar ended: the jobs that are converted; none before the end.
    :ivar driver_output: observer of what ``spark-submit`` prints.
    """

    def __init__(
        self,
        options: LineageOptions,
        attempt: TaskAttempt,
        connections: Connections,
        ti_id: str = "",
        before: AttemptLineage | None = None,
    ) -> None:
        self._options = options
        self._ti_id = ti_id
        self._attempt = attempt if before is None else before.ended.followed_by(attempt)
        self._connections = connections
        self.report = LineageReport(connection=options.connection)
        self.delivery = TaskDelivery(options, attempt.key, connections, self.report)
        self.ended: EndedAttempt = EndedAttempt(
            self._attempt, options.connection, self.delivery, before.ended if before else None
        )
        self._events_file: EventPlace | None = None
        self._record: UnfinishedAttempt | None = None
        self._reconnected = False
        self._not_injected: str | None = None
        self._driver_is_here: bool | None = None
        self._event_log = SparkEventLog(open_store=connections.open_store, since_ms=attempt.start_ms)
        self.driver_output = DriverOutput()
        self._running: RunningLineage | None = None
        self._job_ended = threading.Event()

    # -- before the submit

    @property
    def _plan(self) -> SubmitPlan:
        return SubmitPlan(self._options, self._attempt.key, self._connections, self._ti_id, self.report.warnings)

    def handle_orphans(self) -> None:
        """Report each spark-submit that an earlier attempt, whose task was killed, left running here, or stop it.

        Properties files that killed tasks of this user left are removed, since they hold credentials.
        """
        for path in PropertiesFile.remove_abandoned():
            log.debug("Removed the properties file that a killed task left: %s", path)
        for record in self.delivery.killed_attempts():
            for process in RunningSubmit.find(record.events_file, record.event_log or ""):
                whose = f"the spark-submit of attempt {record.task_try.try_number}, whose task was killed,"
                where = f"on {socket.gethostname()} (pid {process.pid})"
                if self._options.on_orphan != "kill":
                    text = f"{whose} still runs {where} and may write beside this attempt's: stop it, or set on_orphan"
                elif process.stop(_ORPHAN_SECONDS):
                    text = f"{whose} still ran {where}: it was stopped (on_orphan=kill)"
                else:
                    text = f"{whose} still runs {where}: it could not be stopped (on_orphan=kill)"
                log.warning("%s", text[0].upper() + text[1:])
                self.report.warnings.append(text)

    def avoid_failed_listener(self, failure: object) -> None:
        """Capture from Spark's own event log if the listener made the job of an earlier attempt fail.

        :param failure: result of :meth:`leave_listener_failure` from the task's state, if Airflow keeps one.
        """
        known = failure if isinstance(failure, str) else self.delivery.listener_failure(self._run_start_ms)
        if known and self._options.capture != "event_log":
            self._options = self._options.without_listener()
            self.report.warnings.append(
                f"an earlier attempt failed: {known}. This attempt runs without the listener, and its lineage comes "
                "from Spark's own event log"
            )

    def leave_listener_failure(self) -> str:
        """Record that later attempts must do without the listener, and return why.

        :raises OSError: if the outbox refuses.
        """
        return self.delivery.leave_listener_failure(self._run_start_ms, self._listener_failure)

    @property
    def listener_failed(self) -> bool:
        """Whether the listener made the job fail, as far as the driver's output shows."""
        return bool(self._listener_failure)

    @property
    def _listener_failure(self) -> str:
        if self._not_injected or self._options.capture == "event_log":
            return ""
        return redact_text(self.driver_output.listener_failure)[:_LAST_LINE_CHARS]

    @property
    def _run_start_ms(self) -> int:
        return self._attempt.dag_run.start_ms or 0

    def inject(self, submission: Submission, spark: SparkSubmit, parent: ParentRun, root: ParentRun) -> Injection:
        """Return the submission with the listener, its jar and its properties, or with Spark's own event log.

        :raises InjectionError: if the listener cannot be added without risk to the job, and its log is not to be read.
        :raises OSError: if the properties file cannot be read.
        """
        self._take_name(suffixed=spark.suffixed_name)
        self._driver_is_here = spark.local_driver
        injection, events_file = self._plan.inject(submission, spark, (parent, root), self._event_log)
        self._begin(events_file)
        return injection

    def _take_name(self, *, suffixed: str | None = None, unnamed: str | None = None) -> None:
        """Take settings that name the application for the launcher, unless the user set them."""
        settings = self._options.settings
        suffixed, unnamed = settings.suffixed_name or suffixed, settings.unnamed_as or unnamed
        self._options = replace(self._options, settings=replace(settings, suffixed_name=suffixed, unnamed_as=unnamed))

    @property
    def _own_name(self) -> str:
        """Name for an application that has none."""
        return f"{self._attempt.key.dag_id}_{self._attempt.key.task_id}".replace(".", "_")

    def inject_below(self, parent: ParentRun, root: ParentRun) -> ChildInjection:
        """Return the configuration of the listener for every Spark that the task starts below itself.

        :raises InjectionError: if the folder for events is relative.
        :raises OSError: if it cannot be written.
        """
        self._take_name(unnamed=self._own_name)
        injection, self._event_log = self._plan.inject_below((parent, root))
        self._begin(Path(injection.events_folder))
        return injection

    def inject_session(self, remote: str) -> str:
        """Return the connection string of a Spark Connect client whose session is the attempt's.

        :param remote: the client's own connection string.
        :raises InjectionError: if it is not an address of Spark Connect, or the server's event file cannot be read.
        """
        changed, events = self._plan.inject_session(remote, self._own_name)
        self._begin(events)
        return changed

    @property
    def connect_events(self) -> Path | None:
        """Event file of the Spark Connect server whose clients tasks are; ``None`` if there is none."""
        return self._options.connect_events

    def _begin(self, events_file: EventPlace) -> None:
        """Record in the outbox where the events will be, so that a later attempt or a drain can deliver them."""
        self._events_file, self.report.events_file = events_file, str(events_file)
        self._record = self._begun_record(events_file, self._options.openlineage_connection)
        self.delivery.begin(self._record.to_obj(), str(events_file))

    def _begun_record(self, events_file: EventPlace, backend: str | None = None) -> UnfinishedAttempt:
        options = self._options
        return UnfinishedAttempt.begun(self._attempt, options.settings, events_file, self._event_log, backend)

    def mark_not_injected(self, reason: str) -> None:
        """Record why the job runs without lineage. The runs of the attempt are delivered nevertheless."""
        self._not_injected = redact_text(reason)

    # -- an attempt that reconnects to the job of an earlier one

    def event_files(self) -> dict[str, Any]:
        """Return where the job's events are, as JSON, for :meth:`reconnect` of a later attempt; empty if nowhere."""
        return self._record.event_files() if self._record is not None else {}

    def reconnect_to(self, try_number: int) -> None:
        """Read the events of a job that an earlier attempt submitted, from where the outbox says that they are."""
        if not self._reconnected and try_number != self._attempt.try_number:
            self.reconnect(self.delivery.event_files_of(try_number))

    def reconnect(self, event_files: object) -> None:
        """Read the events of a job that an earlier attempt submitted.

        :param event_files: result of that attempt's :meth:`event_files`; ``None`` if it was not kept.
        """
        if not isinstance(event_files, dict) or not event_files.get("events_file"):
            self.mark_not_injected("this attempt reconnected to a job of an earlier one, whose events are not known")
            return
        events_file = event_place(event_files["events_file"], self._connections.open_store)
        folder = event_files.get("event_log")
        self._take_name(suffixed=event_files.get("suffixed_name"))
        log.debug("Reconnected to the job whose events are in %s", events_file)
        self._reconnected = True
        self._events_file, self.report.events_file = events_file, str(events_file)
        self._event_log = SparkEventLog(
            folder,
            is_own=bool(event_files.get("own_event_log")),
            events_file=str(events_file),
            open_store=self._connections.open_store,
        )
        self._not_injected = None
        self._record = self._begun_record(events_file)
        self.delivery.take_over(self._record.to_obj(), str(events_file))

    # -- while the job runs, in a thread of its own

    def announce(self) -> None:
        """Deliver what earlier attempts left behind, then report that this attempt is running.

        The end of the attempt delivers again what fails here.
        """
        with gc_paused():
            for name in _USED_AT_THE_END:
                import_module(f"airflow_provider_spark_datahub.{name}")
        if self._events_file is not None and not isinstance(self._events_file, Path):
            # The first request loads the client of the store; the end of the attempt has no time for that.
            with suppress(OSError):
                self._events_file.sizes()
        self._event_log.load_client()
        try:
            self.delivery.deliver_earlier()
        except (OSError, ValueError) as error:
            log.warning(
                "Could not deliver what earlier attempts left: %s. The end of this attempt delivers it again.", error
            )
        delivery = self.delivery.send(self._attempt.proposals(), Deadline.after(self._options.timeout))
        log.debug("Announced the attempt: %s delivered", counted(delivery.delivered, "proposal"))
        if not delivery.pending:
            try:
                self.delivery.deliver_others_of_dag(self._job_ended.is_set)
            except OSError as error:
                log.warning("Could not deliver what other tasks of the DAG left: %s. It stays in the outbox.", error)

    def follow(self) -> None:
        """Deliver the lineage of the running job every ``emit_periodically`` seconds, until :meth:`finish`."""
        if not self._options.emit_periodically:
            return
        from airflow_provider_spark_datahub.task.running import RunningLineage

        self._running = RunningLineage(self._options, self._attempt, self.delivery, self._open_events, self._job_ended)
        self._running.follow(self._options.emit_periodically)

    def stop_following(self) -> None:
        """Begin no further delivery of the running job, which another process waits for."""
        self._job_ended.set()

    # -- after the job

    def finish(self, end: AttemptEnd) -> LineageReport:
        """Collect, convert and deliver everything, within the time of ``end``."""
        started = time.monotonic()
        deadline = Deadline.after(end.seconds)
        self._job_ended.set()
        spark = "succeeded" if end.spark_succeeded else "failed"
        log.debug("The job has ended: Spark %s, the task is %s; %.1f s for lineage", spark, end.result, end.seconds)
        forwarding = self._forwarding()
        with self.delivery.leased(deadline), gc_paused():
            if self._record is not None:
                self._record = self._record.ended(end.end_ms, end.result, spark_succeeded=end.spark_succeeded)
                self.delivery.record_end(self._record.to_obj())
            events = self._events_at_the_end(deadline)
            collected = events.collect(deadline)
            ended = self._attempt.ended(end.end_ms, end.result)
            lineage = events.lineage_in_time(end.spark_succeeded, ended, deadline)
            if lineage is None:
                if self.delivery.leave_unfinished(collected, is_stuck=events.is_stuck):
                    self.report.seconds = round(time.monotonic() - started, 3)
                    return self.report
                lineage = events.lineage(end.spark_succeeded, ended)
            conversion, proposals = lineage
            self.ended.conversion = conversion
            self._describe(collected, conversion, end.failure, self._notes_of_launches(deadline))
            own_edges = patched_edges(proposals)
            if events.saw_everything and self._running is not None:
                proposals += self._running.retractions(proposals)
            log.debug("Made %s", counted(len(proposals), "proposal"))
            self.ended.keep_edges(own_edges, end.result)
            raw = self._raw_events(events, deadline)
            kept = self._events_file is None or raw is None or forwarding.keep(raw, self._events_file, deadline)
            removable = was_read_completely(collected) and kept
            if self._record is not None and not removable:
                self.delivery.record_end(replace(self._record, keep_events=True).to_obj())
            self.delivery.deliver(proposals, deadline, spark_succeeded=end.spark_succeeded)
            if self._events_file and (self.report.pending or self.report.rejected):
                self.delivery.keep_raw_events(self._events_file, raw, Deadline.after(end.seconds * _RAW_EVENTS_SHARE))
        forwarding.deliver(deadline)
        # An entry that could not be removed will be converted again.
        if self._events_file and self.report.is_complete and removable and self.report.outbox_entry is None:
            self._remove_events_file(self._events_file, deadline)
        self.report.seconds = round(time.monotonic() - started, 3)
        return self.report

    def deliver_only(self, end: AttemptEnd, spark_attempt: int) -> LineageReport:
        """Deliver the lineage that an earlier attempt left, and this attempt's own place in the run tree.

        :param spark_attempt: the earlier attempt, whose Spark job succeeded.
        """
        deadline = Deadline.after(end.seconds)
        with self.delivery.leased(deadline):
            self.delivery.check_waiting(spark_attempt)
            proposals = self._attempt.ended(end.end_ms, end.result).proposals()
            self.delivery.deliver(proposals, deadline, spark_succeeded=end.spark_succeeded)
        self._forwarding().deliver(deadline)
        return self.report

    def correct(self, end: AttemptEnd) -> LineageReport:
        """Deliver a corrected result at the time of what :meth:`finish` delivered, so that it replaces that result."""
        report = LineageReport(connection=self._options.connection)
        delivery = TaskDelivery(self._options, self._attempt.key, self._connections, report)
        proposals = self._attempt.ended(end.end_ms, end.result).proposals()
        delivery.deliver(proposals, Deadline.after(end.seconds), spark_succeeded=end.spark_succeeded)
        return report

    @property
    def run_urn(self) -> str:
        """URN of the task run."""
        return self._attempt.urn

    @property
    def job_urn(self) -> str:
        """URN of the task's DataJob."""
        return self._attempt.job_urn

    def _open_events(self, *, keep_raw: bool = False) -> JobEvents:
        from airflow_provider_spark_datahub.task.job_events import JobEvents

        return JobEvents(self._options.settings, self._events_file, self._event_log, keep_raw=keep_raw)

    def _events_at_the_end(self, deadline: Deadline) -> JobEvents:
        """Return the events that were followed while the job ran, if they are usable, or read them from the start."""
        followed = self._running.stop(deadline) if self._running is not None else None
        if followed is not None and not self._reconnected:
            return followed
        # Events that were read before the attempt reconnected are not of its job.
        return self._open_events(keep_raw=self._options.openlineage_connection is not None)

    def _forwarding(self) -> EventForwarding:
        from airflow_provider_spark_datahub.task.raw_events import EventForwarding

        return EventForwarding(self._options, self._attempt.key, self._connections, self.report)

    def _raw_events(self, events: JobEvents, deadline: Deadline) -> RawEvents | None:
        """Return the raw events to forward; ``None`` without a backend.

        Normally they were collected in the pass that converted the events. If that pass followed the running job, the
        file is read again: collecting while a job runs for weeks would fill the worker's memory.
        """
        if self._options.openlineage_connection is None or self._events_file is None:
            return None
        from airflow_provider_spark_datahub.task.raw_events import RawEvents

        return events.raw or RawEvents.read(self._events_file, deadline)

    def _why_no_events(self, collected: CollectionReport, failure: str) -> str:
        if collected.outcome is not Outcome.MISSING:
            return collected.sentence
        if self._driver_is_here is False and isinstance(self._events_file, Path):
            return (
                f"there is no event file: the driver ran on another machine, and its {self._events_file} is not on "
                "this one, or the OpenLineage listener did not run there: set events_location to a folder that both "
                "share, or to an address in S3"
            )
        if not failure or not self._driver_is_here:
            return collected.sentence
        if self.listener_failed:
            return f"there is no event file: {self._listener_failure}"
        # The listener writes its first event when the application starts.
        last = redact_text(self.driver_output.last_line)[:_LAST_LINE_CHARS]
        said = f"; its last line: {last}" if last else ""
        return f"the job failed before its Spark application started, so there are no events: {failure}{said}"

    def _describe(
        self, collected: CollectionReport, conversion: Conversion, failure: str, notes: Sequence[str]
    ) -> None:
        report, settings = self.report, self._options.settings
        diagnostics = conversion.diagnostics
        report.events = collected.events
        report.bad_events = collected.quarantined_count + collected.torn + diagnostics.rejected_events
        report.jobs = list(dict.fromkeys(job.job_urn for job in conversion.jobs))
        report.inputs, report.outputs = conversion.inputs, conversion.outputs
        report.warnings += [f"{line.source}, line {line.line}: {line.reason}" for line in collected.quarantined]
        report.warnings += self._event_log.problems
        if failure and self.listener_failed:
            report.warnings.append(f"{self._listener_failure}; a next attempt runs without the listener")
        report.warnings += notes if collected.events else []
        report.warnings += [*settings.domain_warnings(), *diagnostics.messages()]
        report.gaps += diagnostics.gaps
        if collected.outcome in (Outcome.TORN, Outcome.TIMED_OUT, Outcome.REPLACED):
            report.warnings.append(collected.sentence)
        unnamed = settings.flow_id(UNNAMED_APPLICATION)
        if unnamed != settings.flow_id("") and any(job.definition.flow.flow_id == unnamed for job in conversion.jobs):
            report.warnings.append(
                f"the application has no name of its own: its flow is {unnamed!r}, as that of every other "
                "task without 'name'; set 'name', or 'pipeline_name' in the option 'lineage'"
            )
        if self._not_injected:
            report.reason = self._not_injected
        elif not collected.events and not conversion.jobs:
            report.reason = "; ".join(dict.fromkeys(notes)) or self._why_no_events(collected, failure)
        elif not conversion.jobs:
            rejected = counted(diagnostics.rejected_events, "event")
            report.reason = f"none of {rejected} could be converted: {diagnostics.rejections[0]}"
        elif (unreported := diagnostics.unreported_messages()) and not report.has_lineage:
            report.reason = unreported[0]
        elif not report.has_lineage:
            seen = "the job's events name no dataset: it read and wrote nothing that OpenLineage sees"
            report.reason = "; ".join(part for part in (seen, self.driver_output.sentence) if part)

    def _notes_of_launches(self, deadline: Deadline) -> list[str]:
        place = self._events_file
        if not isinstance(place, Path) or place.suffix != EVENT_FOLDER:
            return []
        try:
            notes = step_in_time(str(self._options.events_location), deadline, lambda: [*capture.launch_notes(place)])
            return [redact_text(note) for note in notes]
        except OSError as error:
            return [f"the notes of the task's launches of Spark cannot be read: {error}"]

    def _remove_events_file(self, path: EventPlace, deadline: Deadline) -> None:
        try:
            remove_events(path, self._event_log, deadline)
        except OSError as error:
            self.report.warnings.append(f"cannot remove the event file {path}: {error.strerror or error}")
            return
        self.report.events_file = None

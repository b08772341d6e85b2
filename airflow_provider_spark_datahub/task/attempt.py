"""The lineage of one task try, from before the submit to the report."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_spark_datahub.attempt_key import AttemptKey
from airflow_provider_spark_datahub.capture import (
    DEFAULT_OPENLINEAGE_JAR,
    CollectionReport,
    DriverOutput,
    Injection,
    IvyResolver,
    LineageInjection,
    Outcome,
    ParentRun,
    Submission,
    base_properties,
    choose_jar,
    event_file,
    find_installation,
    fresh,
    inject,
    replaced_transport,
    switched_off,
    version_banner,
)
from airflow_provider_spark_datahub.gc_tuning import gc_paused
from airflow_provider_spark_datahub.task.delivery import Connections, TaskDelivery
from airflow_provider_spark_datahub.task.job_events import JobEvents, SparkEventLog
from airflow_provider_spark_datahub.task.raw_events import EventForwarding
from airflow_provider_spark_datahub.task.recovery import TryRecord, try_proposals
from airflow_provider_spark_datahub.task.report import LineageReport
from airflow_provider_spark_datahub.task.running import RunningLineage

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Conversion, DatasetId, JobDataset
    from airflow_provider_spark_datahub.conversion.run_tree import TaskTry, TryResult
    from airflow_provider_spark_datahub.task.options import LineageOptions

log = logging.getLogger(__name__)

RESOLVE_SECONDS = 60.0
"""How long a Maven coordinate may take to be proven before the submit; a first download is 43 MB."""
BANNER_SECONDS = 20.0
"""How long ``spark-submit --version`` may take, where its folder does not tell which Spark it is."""
KEEPING_SHARE = 0.05
"""Of the time for lineage, what more it may take to put the raw events beside what could not be delivered."""
UNNAMED_APPLICATION = "arrow-spark"
"""The application name that SparkSubmitOperator falls back to: every task without a name shares it."""
_USED_AT_THE_END = (
    "conversion.convert",
    "delivery.outbox.drain",
    "delivery.outbox.storage",
    "delivery.outbox.lease",
)


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """The ``spark-submit`` that will run.

    :param env: its whole environment.
    :param local_driver: the driver runs on this machine.
    :param properties_file: the ``--properties-file`` option.
    """

    binary: str
    env: Mapping[str, str]
    local_driver: bool
    properties_file: str | None = None


@dataclass(frozen=True, slots=True)
class TryEnd:
    """How the try ended.

    :param spark_succeeded: what spark-submit said.
    :param end_ms: when, in ms since the epoch.
    :param seconds: that the lineage steps may take.
    """

    spark_succeeded: bool
    result: TryResult
    end_ms: int
    seconds: float


class ListenerOffError(Exception):
    """The job's own settings switch the OpenLineage listener off; the message names them."""


class TaskLineage:
    """Lineage steps of one try. Knows nothing of Airflow but what it is handed.

    :param ti_id: Airflow's id of the task instance, new for every attempt; empty if there is none.
    :ivar delivery: the half that knows the sink and the outbox.
    :ivar driver_output: to be shown what ``spark-submit`` prints.
    """

    def __init__(
        self,
        options: LineageOptions,
        key: AttemptKey,
        task_try: TaskTry,
        connections: Connections,
        ti_id: str = "",
    ) -> None:
        self._options = options
        self._key = key
        self._ti_id = ti_id
        self._try = task_try
        self.report = LineageReport(connection=options.connection)
        self._forwarding = EventForwarding(options, key, connections, self.report)
        self.delivery = TaskDelivery(options, key, connections, self.report)
        self.conversion: Conversion | None = None
        self._events_file: Path | None = None
        self._record: TryRecord | None = None
        self._reconnected = False
        self._not_injected: str | None = None
        self._event_log = SparkEventLog()
        self.driver_output = DriverOutput()
        self._running = RunningLineage(options, task_try, self.delivery, self._open_events)

    def inject(self, submission: Submission, spark: SparkSubmit, parent: ParentRun, root: ParentRun) -> Injection:
        """The submission with the listener, its jar and its settings.

        :raises JarProblemError: where no jar is safe for the job.
        :raises TransportNotCombinableError: where the user's own transport cannot be kept.
        :raises ListenerOffError: where the job's own settings switch the listener off.
        :raises RelativeEventsRootError: where the location of events is relative.
        :raises OSError: where the properties file cannot be read.
        """
        settings = self._options.settings
        installation = find_installation(spark.binary, spark.env)
        submission = replace(submission, base_properties=base_properties(installation, spark.properties_file))
        self._check_outside_settings(submission, spark)
        versions = version_banner(spark.binary, spark.env, BANNER_SECONDS) if installation is None else None
        jar = choose_jar(
            self._options.openlineage_jar or DEFAULT_OPENLINEAGE_JAR,
            submission,
            installation=installation,
            local_driver=spark.local_driver,
            resolver=IvyResolver(installation, submission, spark.env, RESOLVE_SECONDS) if installation else None,
            scala_version=versions.scala_version if versions else None,
        )
        events_file = fresh(event_file(self._options.events_location, self._key, self._ti_id))
        facets = {"spark.logicalPlan": True} if settings.capture_spark_plan else {}
        if not settings.capture_column_level_lineage:
            facets["columnLineage"] = False
        injection = inject(
            submission, LineageInjection(str(events_file), jar, parent, root, self._options.namespace, facets)
        )
        if injection.users_parent:
            self.report.warnings.append("the job names an OpenLineage parent run of its own, which was kept")
        self._events_file = events_file
        self.report.events_file = str(events_file)
        if settings.reads_event_log:
            logged = self._event_log.inject(injection.submission, events_file, local_driver=spark.local_driver)
            injection = replace(injection, submission=logged)
        self._record = TryRecord.begun(
            self._try, settings, events_file, self._event_log, self._options.openlineage_connection
        )
        self.delivery.begin(self._record.to_obj(), str(events_file))
        return injection

    # -- a try that goes back to the job of an earlier one

    def events_location(self) -> dict[str, Any]:
        """Where the job's events are, as JSON, for :meth:`reconnect`."""
        log = self._event_log
        return {
            "events_file": str(self._events_file) if self._events_file else None,
            "event_log": str(log.folder) if log.folder else None,
            "own_event_log": log.is_own,
        }

    def reconnect(self, submitted: object) -> None:
        """The job is one that an earlier try submitted: its events are where that try put them.

        :param submitted: what :meth:`events_location` gave then; ``None`` where it was not kept.
        """
        if not isinstance(submitted, dict) or not submitted.get("events_file"):
            self.not_injected("this try reconnected to a job of an earlier one, whose events are not known")
            return
        events_file, log = Path(submitted["events_file"]), submitted.get("event_log")
        self._reconnected = True
        self._events_file = events_file
        self._event_log = SparkEventLog.at(Path(log) if log else None, is_own=bool(submitted.get("own_event_log")))
        self._not_injected = None
        self.report.events_file = str(events_file)
        self._record = TryRecord.begun(self._try, self._options.settings, events_file, self._event_log)
        self.delivery.take_over(self._record.to_obj(), str(events_file))

    def _check_outside_settings(self, submission: Submission, spark: SparkSubmit) -> None:
        off = switched_off(submission, spark.env)
        if off:
            raise ListenerOffError(f"{off} switches the OpenLineage listener off")
        replaced = replaced_transport(spark.env, Path.cwd(), Path.home()) if spark.local_driver else None
        if replaced:
            self.report.warnings.append(
                f"the OpenLineage transport of {replaced} gets none of this job's events: set it as Spark properties "
                "(spark.openlineage.transport.*), and it is kept beside ours"
            )

    def not_injected(self, reason: str) -> None:
        """The job runs without lineage, for this reason; its place in the run tree is told all the same."""
        self._not_injected = reason

    # -- beside the job, in a thread of its own

    def announce(self) -> None:
        """Deliver what earlier tries left, and that this one runs. What does not arrive is told again at its end."""
        from airflow_provider_spark_datahub.conversion.run_tree import task_proposals
        from airflow_provider_spark_datahub.delivery import Deadline

        for name in _USED_AT_THE_END:
            # While Spark runs it costs the task no time; what sends it is imported by sending.
            import_module(f"airflow_provider_spark_datahub.{name}")
        try:
            self.delivery.deliver_earlier()
        except (OSError, ValueError) as error:
            log.warning("What earlier tries left waits for the end of this one: %s", error)
        self.delivery.send(task_proposals(self._try), Deadline.after(self._options.timeout))

    def follow(self) -> None:
        """Deliver what the job did so far, each ``emit_periodically`` seconds, until :meth:`finish`."""
        if self._options.emit_periodically:
            self._running.follow(self._options.emit_periodically)

    # -- after the job

    def finish(self, end: TryEnd) -> LineageReport:
        """Collect, convert, relate and deliver, within the end's budget.

        :raises OutboxError: where it cannot be recorded in the outbox what of it arrived.
        """
        from airflow_provider_spark_datahub.delivery import Deadline

        started = time.monotonic()
        deadline = Deadline.after(end.seconds)
        with self.delivery.at_work(deadline), gc_paused():
            if self._record is not None:
                record = self._record.ended(end.end_ms, end.result, spark_succeeded=end.spark_succeeded)
                self.delivery.ended(record.to_obj())
            followed = self._running.stop(deadline)
            # What was read before the try reconnected is not of its job.
            events = self._open_events() if followed is None or self._reconnected else followed
            collected, conversion = events.finish(end.spark_succeeded, lambda: deadline.expired)
            self.conversion = conversion
            self._describe(collected, conversion)
            task_try = self._try.ended(end.end_ms, end.result)
            proposals = try_proposals(task_try, conversion, self._options.settings)
            if events.knows_all:
                proposals += self._running.taken_back(proposals)
            kept = self._forwarding.keep(self._events_file, deadline)
            self.delivery.deliver(proposals, deadline, spark_succeeded=end.spark_succeeded)
            if self._events_file and (self.report.pending or self.report.rejected):
                self.delivery.keep_events(self._events_file, Deadline.after(end.seconds * KEEPING_SHARE))
        self._forwarding.deliver(deadline)
        was_read = collected.outcome not in (Outcome.TIMED_OUT, Outcome.UNREADABLE) and not collected.quarantined_count
        if self._events_file and self.report.is_complete and was_read and kept:
            self._remove_events_file(self._events_file)
        self.report.seconds = round(time.monotonic() - started, 3)
        return self.report

    def redeliver(self, end: TryEnd, awaited: int) -> LineageReport:
        """Deliver what an earlier try collected, and this try's own place in the run tree.

        :raises OutboxError: where it cannot be recorded in the outbox what of it arrived.
        """
        from airflow_provider_spark_datahub.conversion.run_tree import task_proposals
        from airflow_provider_spark_datahub.delivery import Deadline

        self.delivery.look_for(awaited)
        deadline = Deadline.after(end.seconds)
        with self.delivery.at_work(deadline):
            proposals = task_proposals(self._try.ended(end.end_ms, end.result))
            self.delivery.deliver(proposals, deadline, spark_succeeded=end.spark_succeeded)
        self._forwarding.deliver(deadline)
        return self.report

    # -- steps

    def openlineage_datasets(self, *, as_in_datahub: bool) -> tuple[list[DatasetId], list[DatasetId]]:
        """What the job read and what it wrote: by OpenLineage's names, or by platform and name as in DataHub."""
        from airflow_provider_spark_datahub.conversion import DatasetId

        def listed(datasets: Iterable[JobDataset]) -> list[DatasetId]:
            if as_in_datahub:
                return sorted({DatasetId(one.name.platform, one.name.full_name) for one in datasets})
            return sorted({dataset for one in datasets for dataset in one.ids})

        jobs = self.conversion.jobs if self.conversion else []
        return (
            listed(one for job in jobs for one in job.inputs.values()),
            listed(one for job in jobs for one in job.outputs.values()),
        )

    def _open_events(self) -> JobEvents:
        return JobEvents(self._options.settings, self._events_file, self._event_log)

    def _describe(self, collected: CollectionReport, conversion: Conversion) -> None:
        from airflow_provider_spark_datahub.conversion import unusable_domains

        report, settings = self.report, self._options.settings
        report.events = collected.events
        report.bad_events = collected.quarantined_count + collected.torn + conversion.rejected
        report.jobs = list(dict.fromkeys(job.job_urn for job in conversion.jobs))
        report.inputs, report.outputs = conversion.inputs, conversion.outputs
        report.warnings += [f"{one.source}, line {one.line}: {one.reason}" for one in collected.quarantined]
        report.warnings += conversion.problems
        report.warnings += self._event_log.problems
        report.warnings += [
            f"OpenLineage told nothing of SQL execution {lost.id} ({lost.description}): {lost.reason}"
            for lost in conversion.lost
        ]
        report.warnings += [f"domain {one!r} is no URN of a domain, and left out" for one in unusable_domains(settings)]
        report.warnings += [f"dataset {one.namespace} {one.name}: {why}" for one, why in conversion.unusable.items()]
        report.warnings += conversion.cut
        report.warnings += [*conversion.table_gaps, *conversion.column_gaps]
        if collected.outcome in (Outcome.TORN, Outcome.TIMED_OUT, Outcome.REPLACED):
            report.warnings.append(collected.sentence)
        unnamed = settings.flow_id(UNNAMED_APPLICATION)
        if unnamed != settings.flow_id("") and any(job.flow.flow_id == unnamed for job in conversion.jobs):
            report.warnings.append(
                f"the application has no name of its own: its flow is {unnamed!r}, as that of every other "
                "task without 'name'; set 'name', or the lineage option 'pipeline_name'"
            )
        if self._not_injected:
            report.reason = self._not_injected
        elif not collected.events:
            report.reason = collected.sentence
        elif not conversion.jobs:
            report.reason = f"none of the {conversion.rejected} events could be converted: {conversion.problems[0]}"
        elif conversion.table_gaps and not report.has_lineage:
            report.reason = conversion.table_gaps[0]
        elif not report.has_lineage:
            seen = "the job's events name no dataset: it read and wrote nothing that OpenLineage sees"
            report.reason = "; ".join(part for part in (seen, self.driver_output.sentence) if part)

    def _remove_events_file(self, path: Path) -> None:
        if self._options.keep_event_files:
            return
        self._event_log.remove()
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self.report.warnings.append(f"cannot remove the event file {path}: {error.strerror or error}")
            return
        self.report.events_file = None
        folder = path.parent
        # Other tries of the run may still write here: a folder goes when it is empty.
        with contextlib.suppress(OSError):
            while folder != self._options.events_location:
                folder.rmdir()
                folder = folder.parent

"""One attempt until its job is submitted: the listener, its jar, the place of events, a class
archive.
"""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture import (
    DEFAULT_OPENLINEAGE_JAR,
    EVENT_FOLDER,
    EVENT_LOG_FOLDER,
    DriverOutput,
    EventPlace,
    Injection,
    InjectionError,
    LineageInjection,
    ParentRun,
    SparkSubmit,
    Submission,
    event_file,
    event_log_folder,
    inject,
    unused_path,
)
from airflow_provider_spark_datahub.conversion import redact_text
from airflow_provider_spark_datahub.delivery import Deadline, step_in_time
from airflow_provider_spark_datahub.foundation.files import (
    PRIVATE_ACCESS,
    FileAccess,
    exists,
    make_folder,
    refusal,
    replaceable,
)
from airflow_provider_spark_datahub.task.delivery import TaskDelivery
from airflow_provider_spark_datahub.task.earlier import EarlierAttempts
from airflow_provider_spark_datahub.task.options import NAMESPACE, Connections, LineageOptions
from airflow_provider_spark_datahub.task.report import LineageReport
from airflow_provider_spark_datahub.task.spark_event_log import EMPTY_LOG, SparkEventLog
from airflow_provider_spark_datahub.task.submitted import (
    SubmittedJob,
    UnfinishedAttempt,
    reservation_file,
)

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture import ChildInjection, ClassArchive, JarChoice
    from airflow_provider_spark_datahub.conversion import JobLineage, LineageSettings
    from airflow_provider_spark_datahub.conversion.run_tree import TaskAttempt

log = logging.getLogger(__name__)

T = TypeVar("T")

LAST_LINE_CHARS = 300
"""Longest quotation of what the driver printed."""

_BEGIN_SECONDS = 8.0
"""Time for each step on the disk of the events before the submit. If it hangs, half of it is waited
for.
"""


class Launcher(Protocol):
    """Starter of Spark for one task."""

    def inject(
        self, attempt: AttemptLineage, parent: ParentRun, root: ParentRun
    ) -> AbstractContextManager[None]:
        """Return a context in which the task starts Spark with lineage. Its exit restores
        everything.

        :raises InjectionError: if lineage cannot be added without risk to the job.
        :raises OSError: if a file of the job cannot be read.
        """

    def stop(self) -> None:
        """Stop the job, and wait until it writes no more events."""


class AttemptLineage:
    """Lineage of one attempt, without Airflow, until its job is submitted.

    Then :class:`~airflow_provider_spark_datahub.task.running.RunningAttempt` takes over, and at the
    job's end
    :class:`~airflow_provider_spark_datahub.task.ended.EndedAttempt`.

    :param ti_id: Airflow's id of the task instance, new for every attempt; empty if there is none.
    :param before: jobs that the same attempt ran before, to whose lineage this job's is added.
    :ivar task_attempt: its place in the run tree.
    :ivar job: the submitted job; until then, one without events.
    :ivar record: of the job in the outbox; ``None`` until it is submitted.
    :ivar earlier: what earlier attempts left.
    :ivar delivery: knows the sink and the outbox.
    :ivar driver_output: observer of what ``spark-submit`` prints.
    """

    def __init__(
        self,
        options: LineageOptions,
        attempt: TaskAttempt,
        connections: Connections,
        ti_id: str = "",
        before: Sequence[JobLineage] | None = None,
    ) -> None:
        self.options = options
        self.task_attempt = attempt if before is None else _followed(before, attempt)
        self.before = before
        self.connections = connections
        self._ti_id = ti_id
        self.report = LineageReport(connection=options.connection)
        self.delivery = TaskDelivery(options, attempt.key, connections, self.report)
        run_start_ms = attempt.dag_run.start_ms or 0
        self.earlier = EarlierAttempts(
            options, attempt.key, run_start_ms, connections, self.report.warnings
        )
        self.driver_output = DriverOutput()
        self.record: UnfinishedAttempt | None = None
        self.job = SubmittedJob(options.settings)
        self._log_failure = ""

    def avoid_failed_listener(self, remembered: object) -> None:
        """Capture from Spark's own event log if the listener made the job of an earlier attempt
        fail.

        :param remembered: its :attr:`listener_failure` in the task's state, if Airflow keeps one.
        """
        known = remembered if isinstance(remembered, str) else self.earlier.listener_failure
        if known and known.startswith(EMPTY_LOG):
            self._log_failure = f"an earlier attempt failed: {known}. This attempt writes none"
            self.report.warnings.append(self._log_failure)
        elif known and self.options.capture != "event_log":
            self.options = replace(self.options, capture="event_log")
            self.report.warnings.append(
                f"an earlier attempt failed: {known}. This attempt runs without the listener, and its lineage comes "
                "from Spark's own event log"
            )

    @property
    def listener_failure(self) -> str:
        """How the capture made the job fail, as far as that is seen from here; empty if it did not."""
        if self.job.problem:
            return ""
        if self.job.event_log.why_empty and not self.driver_output.is_killed:
            return self.job.event_log.why_empty
        if self.options.capture == "event_log":
            return ""
        return redact_text(self.driver_output.listener_failure)[:LAST_LINE_CHARS]

    # -- the submit

    def inject(
        self,
        submissions: Sequence[Submission],
        spark: SparkSubmit,
        parent: ParentRun,
        root: ParentRun,
    ) -> list[Injection]:
        """Return the submissions with the listener, its jar and its properties, or with Spark's own
        event log.

        :param submissions: those of one call, mostly one.
        :raises InjectionError: if the listener cannot be added without risk to the job, and its log
            is not to be read.
        :raises OSError: if the properties file cannot be read.
        """
        events = self._on_events_disk(partial(self._new_event_place, spark))
        injected = [
            self._injected(submission, spark, events, (parent, root)) for submission in submissions
        ]
        if any(injection.users_parent for injection, _ in injected):
            self.report.warnings.append(
                "the job names an OpenLineage parent run of its own, which was kept"
            )
        logs = [event_log for _, event_log in injected]
        event_log = next((event_log for event_log in logs if event_log.folder), logs[0])
        if others := {str(other.folder) for other in logs if other.folder} - {
            str(event_log.folder)
        }:
            self.report.warnings.append(
                f"the event logs in {', '.join(sorted(others))} are not read: one call, one log"
            )
        if spark.local_driver and isinstance(events, Path):
            self._on_events_disk(partial(self._reserve, events))
        settings = self._named(spark.suffixed_name, spark.unnamed_as)
        self.begin(SubmittedJob(settings, events, event_log, spark.local_driver))
        return [injection for injection, _ in injected]

    def _injected(
        self,
        submission: Submission,
        spark: SparkSubmit,
        events: EventPlace,
        runs: tuple[ParentRun, ParentRun],
    ) -> tuple[Injection, SparkEventLog]:
        users = submission.properties
        injection, problem = self._injection(submission, spark, events, runs)
        event_log = SparkEventLog(
            open_store=self.connections.open_store, since_ms=self.task_attempt.start_ms
        )
        if self.options.reads_event_log:
            # Beside the event file; if the events go to a store, where the event file would be.
            beside = events if isinstance(events, Path) else self._event_file()
            with_log = partial(
                event_log.inject,
                injection.submission,
                beside,
                local_driver=spark.local_driver,
                store=self._own_log_in_store(spark, events),
                attempt=str(events),
                connection=self.options.event_log_connection,
                followed=self.options.emit_periodically is not None,
                access=self._access,
            )
            # Requests to a store have timeouts of their own.
            submission = self._on_events_disk(with_log) if spark.local_driver else with_log()
            injection = replace(injection, submission=submission)
        if problem is not None and event_log.folder is None:
            raise problem
        if problem is not None:
            reason = redact_text(str(problem))
            self.report.warnings.append(f"{reason}; the lineage comes from Spark's own event log")
        if spark.binary:
            capture.check_command_line(
                injection.submission.arguments, spark.env, spark.argument_bytes
            )
        added = injection.submission.properties.keys() - users.keys()
        log.debug("Events go to %s; properties added: %s", events, ", ".join(sorted(added)))
        return injection, event_log

    def inject_below(self, parent: ParentRun, root: ParentRun) -> ChildInjection:
        """Return the configuration of the listener for every Spark that the task starts below
        itself.

        :raises InjectionError: if the folder for events is relative.
        :raises OSError: if it cannot be written.
        """
        options = self.options
        folder = self._on_events_disk(self._made_events_folder)
        event_log = SparkEventLog()
        if options.reads_event_log:
            event_log = SparkEventLog(str(event_log_folder(folder)), is_own=True)
        injection = capture.ChildInjection(
            str(folder),
            parent,
            root,
            self._listener_properties(),
            options.openlineage_jar or DEFAULT_OPENLINEAGE_JAR,
            str(event_log.folder) if event_log.folder else None,
            str(options.class_archives) if options.class_archives else None,
        )
        self.begin(
            SubmittedJob(
                self._named(unnamed_as=self._own_name), Path(injection.events_folder), event_log
            )
        )
        return injection

    def inject_session(self, remote: str) -> str:
        """Return the connection string of a Spark Connect client whose session is the attempt's.

        :param remote: the client's own connection string.
        :raises InjectionError: if it is not an address of Spark Connect, or the server's event file
            cannot be read.
        """
        path = self.options.connect_events or Path()
        changed, session_id = capture.SessionEvents.remote(remote, self._ti_id or str(uuid4()))
        try:
            start = self._on_events_disk(path.stat).st_size
        except OSError as error:
            raise InjectionError(f"connect_events: {path}: {error.strerror or error}") from error
        self.begin(
            SubmittedJob(
                self.job.settings, capture.SessionEvents(path, session_id, start, self._own_name)
            )
        )
        return changed

    def run_without_lineage(self, reason: str) -> None:
        """Record why the job runs without lineage. The runs of the attempt are delivered
        nevertheless.
        """
        self.job = replace(self.job, problem=redact_text(reason))

    def begin(self, job: SubmittedJob) -> None:
        """Record in the outbox where the events will be, so that a later attempt or a drain can
        deliver them.
        """
        self.record = UnfinishedAttempt.begun(self.task_attempt, job)
        self.job, self.report.events_file = job, self.record.events_file
        self.delivery.begin(self.record)

    # -- a job that an earlier attempt submitted

    @property
    def event_files(self) -> dict[str, Any]:
        """Where the job's events are, as JSON, for :meth:`reconnect` of a later attempt; empty if
        nowhere.
        """
        return self.record.event_files if self.record is not None else {}

    def mark_deferred(self) -> None:
        """Record that the job goes on without this process: else a drain on this machine takes it
        for a killed one.
        """
        if self.record is not None and not isinstance(self.job.events, Path):
            self.delivery.record_end(replace(self.record, machine=""))

    def reconnect_to(self, try_number: int) -> None:
        """Read the events of a job that an earlier attempt submitted, from where the outbox says
        that they are.
        """
        if not self.job.is_earlier and try_number != self.task_attempt.try_number:
            self.reconnect(self.earlier.event_files_of(try_number))

    def reconnect_if_attached(self) -> bool:
        """Read the events of the attempt before if the service ran no other job for this one.

        Some services attach a request to the job that they have under its id or token. Its log is
        then where the attempt before had it.
        """
        number = self.task_attempt.try_number
        if not self.job.event_log.why_empty or self.job.is_earlier or number == 1:
            return False
        event_files = None
        with suppress(OSError):  # the outbox fails again when it is needed
            event_files = self.earlier.event_files_of(number - 1)
        if event_files is not None:
            self.reconnect(event_files)
        return event_files is not None

    def reconnect(self, event_files: object) -> None:
        """Read the events of a job that an earlier attempt submitted.

        :param event_files: that attempt's :attr:`event_files`; ``None`` if they were not kept.
        """
        if not isinstance(event_files, dict) or not isinstance(event_files.get("events_file"), str):
            self.run_without_lineage(
                "this attempt reconnected to a job of an earlier one, whose events are not known"
            )
            return
        settings = self._named(event_files.get("suffixed_name"))
        found = SubmittedJob.found(event_files, settings, self.connections.open_store)
        unused = self.job.event_log
        if not self.job.is_earlier and str(unused.folder) != event_files.get("event_log"):
            with suppress(OSError):  # it stays, without a log
                unused.remove()
        self.job = replace(found, driver_is_here=self.job.driver_is_here)
        log.debug("Reconnected to the job whose events are in %s", self.job.events)
        self.record = UnfinishedAttempt.begun(self.task_attempt, self.job)
        self.report.events_file = self.record.events_file
        self.delivery.take_over(self.record)

    # -- steps of the submit

    def _named(
        self, suffixed_name: str | None = None, unnamed_as: str | None = None
    ) -> LineageSettings:
        """Return the settings with names of the application that the launcher knows, unless the
        user set them.
        """
        settings = self.job.settings
        return replace(
            settings,
            suffixed_name=settings.suffixed_name or suffixed_name,
            unnamed_as=settings.unnamed_as or unnamed_as,
        )

    @property
    def _own_name(self) -> str:
        """Name for an application that has none."""
        return f"{self.task_attempt.key.dag_id}_{self.task_attempt.key.task_id}".replace(".", "_")

    def _on_events_disk(self, step: Callable[[], T]) -> T:
        """Return the result of a step before the submit on the disk of the event files.

        :raises TimeoutError: if the disk hangs. A driver with the listener would not end then.
        """
        return step_in_time(str(self.options.events_location), Deadline.after(_BEGIN_SECONDS), step)

    def _reserve(self, events_file: Path) -> None:
        # The driver makes it otherwise, with the umask's modes. Elsewhere the driver may be another
        # user.
        with suppress(OSError):
            make_folder(events_file.parent, sync=False, access=self._access)
            reservation_file(events_file).touch(self._access.file)

    def _made_events_folder(self) -> Path:
        self._find_events_folder()
        events_folder = unused_path(self._event_file().with_suffix(EVENT_FOLDER))
        make_folder(events_folder, sync=False, access=self._access)
        if self.options.reads_event_log:
            make_folder(event_log_folder(events_folder), sync=False, access=self._access)
        return events_folder

    @property
    def _access(self) -> FileAccess:
        limits = self.options.outbox_limits
        return FileAccess.of(group=limits is not None and limits.group_access)

    def _find_events_folder(self) -> None:
        """Use a folder of this user among the temporary files if the events' folder is another
        user's alone.
        """
        path = self._event_file().parent
        place = next(parent for parent in (path, *path.parents) if exists(parent))
        if os.access(place, os.W_OK | os.X_OK):
            return
        folder = Path(tempfile.gettempdir(), f"spark-datahub-{os.geteuid()}")
        make_folder(folder, sync=False, access=PRIVATE_ACCESS)
        if not replaceable(folder):
            why = refusal(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)))
            self.report.warnings.append(f"the events go to {folder}: {why}")
            self.options = replace(self.options, events_location=folder)

    def _event_file(self) -> Path:
        """Return the path of the attempt's event file, which an earlier attempt of the same key may
        have used.
        """
        return event_file(self.options.events_location, self.task_attempt.key, self._ti_id)

    def _new_event_place(self, spark: SparkSubmit) -> EventPlace:
        """Return a new place for the attempt's events: an unused file, or objects in a store."""
        options = self.options
        if not (
            spark.shares_disk
            or (options.events_store and (options.openlineage_jar or self._reaches(spark)))
        ):
            jar = (
                ""
                if spark.store_scheme
                else ", and openlineage_jar, since Spark's own event log cannot be had from there"
            )
            raise InjectionError(
                f"the driver shares no disk with this worker: set events_location to {spark.store_scheme or 's3'}://"
                f"connection@bucket/folder, an address that the job may write to{jar}"
            )
        if options.events_store is None:
            if spark.local_driver:
                self._find_events_folder()
            return unused_path(self._event_file())
        file = self._event_file()
        # Airflow's id of the task instance keeps attempts of the same key apart.
        relative = file.relative_to(options.events_location).as_posix()
        return capture.EventObjects.below(
            options.events_store, relative, self.connections.open_store
        )

    def _reaches(self, spark: SparkSubmit) -> bool:
        """Return whether the driver surely writes to the store of the events: Spark fails without
        its log.
        """
        scheme = (self.options.events_store or "").partition("://")[0]
        return capture.TRANSPORTS.get(spark.store_scheme or "") == capture.TRANSPORTS.get(
            scheme, ""
        )

    def _own_log_in_store(self, spark: SparkSubmit, events: EventPlace) -> tuple[str, str] | None:
        """Return the addresses of a log of the attempt's own in the store of the events, for driver
        and worker.

        :returns: ``None`` if the driver may not be able to write there.
        """
        if (
            not isinstance(events, capture.EventObjects)
            or spark.local_driver
            or not self._reaches(spark)
        ):
            return None
        if self._log_failure:
            return None
        address = urlsplit(f"{events.uri.removesuffix(EVENT_FOLDER)}{EVENT_LOG_FOLDER}")
        bucket = address.netloc.rpartition("@")[2]
        return f"{spark.store_scheme}://{bucket}{address.path}", address.geturl()

    def _needs_listener(self, spark: SparkSubmit, events: EventPlace) -> bool:
        """Return whether the options want the listener: it needs a jar, and Spark's own log in a
        store does not.
        """
        options = self.options
        if (
            options.capture != "auto"
            or spark.binary
            or options.openlineage_jar
            or not options.reads_event_log
        ):
            return options.capture != "event_log"
        return self._own_log_in_store(spark, events) is None

    def _listener_properties(self) -> dict[str, str]:
        """Return the listener's properties, without their prefix, that the settings want contrary
        to its defaults.
        """
        settings = self.options.settings
        return {
            "namespace": NAMESPACE,
            **(
                {"facets.spark.logicalPlan.disabled": "false"}
                if settings.capture_spark_plan
                else {}
            ),
            **(
                {}
                if settings.capture_column_level_lineage
                else {"facets.columnLineage.disabled": "true"}
            ),
            **({} if settings.trims_paths else capture.WHOLE_PATHS),
        }

    def _injection(
        self,
        submission: Submission,
        spark: SparkSubmit,
        events_file: EventPlace,
        runs: tuple[ParentRun, ParentRun],
    ) -> tuple[Injection, InjectionError | None]:
        """Return the submission with the listener, or without it if lineage comes from Spark's
        event log alone.

        :param runs: the parent run, and the root of the run tree.
        :returns: also why the listener cannot be added, if ``capture`` asks for it.
        :raises InjectionError: if the listener cannot be added without risk to the job, and
            ``capture`` does not allow the job's event log instead.
        :raises OSError: if the properties file cannot be read.
        """
        submission = spark.with_base(submission)
        if submission.secrets and spark.binary and not submission.replaceable:
            names_of_secrets = ", ".join(sorted(submission.secrets))
            log.debug(
                "Secrets in the job's Spark properties stay on its command line: %s",
                names_of_secrets,
            )
        problem = None
        if self._needs_listener(spark, events_file):
            try:
                return self._with_listener(submission, spark, events_file, runs), None
            except InjectionError as error:
                if self.options.capture == "listener":
                    raise
                problem = InjectionError(self._log_failure) if self._log_failure else error
        log.debug(
            "The job runs without the OpenLineage listener: %s",
            problem or "its event log is enough",
        )
        return Injection(submission, users_parent=False), problem

    def _with_listener(
        self,
        submission: Submission,
        spark: SparkSubmit,
        events_file: EventPlace,
        runs: tuple[ParentRun, ParentRun],
    ) -> Injection:
        if note := capture.check_listener(submission, spark):
            remedy = "set it as Spark properties (spark.openlineage.transport.*) to have it combined with ours"
            self.report.warnings.append(f"{note}: {remedy}")
        setting = self.options.openlineage_jar or DEFAULT_OPENLINEAGE_JAR
        transport = capture.TRANSPORTS.get(str(events_file).partition("://")[0])
        jar = spark.choose_jar(setting, submission, transport=transport)
        place = ", on the driver's class path" if jar.class_path else ""
        log.debug("OpenLineage jar: %s%s", redact_text(jar.origin), place)
        endpoint = (
            None
            if isinstance(events_file, Path)
            else self.connections.s3_endpoint(str(events_file))
        )
        lineage = LineageInjection(
            str(events_file), jar, *runs, self._listener_properties(), endpoint
        )
        injection = inject(submission, lineage)
        archive = self._class_archive(submission, spark, jar)
        return (
            replace(injection, submission=archive.added_to(injection.submission))
            if archive
            else injection
        )

    def _class_archive(
        self, submission: Submission, spark: SparkSubmit, jar: JarChoice
    ) -> ClassArchive | None:
        if self.options.class_archives is None or not spark.local_driver:
            return None
        try:
            archives = capture.ClassArchives.at(self.options.class_archives)
            archive = archives.find(submission, spark.installation, spark.env, jar)
        except capture.ClassArchiveError as error:
            log.info("The job starts without an archive of Java classes: %s", error)
            return None
        log.debug("Archive of Java classes: %s", archive.path)
        return archive


def _followed(jobs: Sequence[JobLineage], attempt: TaskAttempt) -> TaskAttempt:
    """Return an attempt for one more Spark job, whose lineage is added to that of the jobs before
    it.
    """
    read = {urn for job in jobs for urn in job.lineage.inputs}
    written = {urn for job in jobs for urn in job.lineage.outputs}
    return replace(
        attempt,
        only_adds=True,
        read_before=tuple(sorted(read)),
        written_before=tuple(sorted(written)),
    )

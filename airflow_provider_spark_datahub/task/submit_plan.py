"""Preparation of one attempt before the submit: the listener, its jar, the place of events, a class archive."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from airflow_provider_spark_datahub import capture
from airflow_provider_spark_datahub.capture import (
    DEFAULT_OPENLINEAGE_JAR,
    EVENT_FOLDER,
    EventPlace,
    Injection,
    InjectionError,
    IvyResolver,
    LineageInjection,
    ParentRun,
    SparkInstallation,
    SparkVersions,
    Submission,
    base_file,
    base_properties,
    choose_jar,
    event_file,
    event_log_folder,
    inject,
    knows_base_file,
    overridden_transport,
    unused_path,
)
from airflow_provider_spark_datahub.conversion import redact_text
from airflow_provider_spark_datahub.delivery import Deadline, step_in_time
from airflow_provider_spark_datahub.files import FileAccess, make_folder
from airflow_provider_spark_datahub.task.options import NAMESPACE
from airflow_provider_spark_datahub.task.recovery import reservation_file
from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.attempt_key import AttemptKey
    from airflow_provider_spark_datahub.capture import (
        ChildInjection,
        ClassArchive,
        JarChoice,
        ScalaVersion,
        SessionEvents,
    )
    from airflow_provider_spark_datahub.task.options import Connections, LineageOptions

log = logging.getLogger(__name__)

T = TypeVar("T")

_BEGIN_SECONDS = 8.0
"""Time for each step on the disk of the events before the submit. If it hangs, half of it is waited for."""
_BANNER_SECONDS = 20.0
"""Time for ``spark-submit --version``, which is called if its folder does not show Spark's version."""


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """The ``spark-submit`` that will run.

    :param binary: the command; ``None`` if it runs on another machine, whose Spark is not visible from here.
    :param env: its whole environment.
    :param local_driver: the driver runs on this machine.
    :param properties_file: the ``--properties-file`` option.
    :param scala_version: Scala version of a Spark that is not visible from here, if it is known.
    :param argument_bytes: size of its arguments beyond the submission, such as the application's.
    :param suffixed_name: application name to which the launcher appends a random suffix, if it does so.
    """

    binary: str | None
    env: Mapping[str, str]
    local_driver: bool
    properties_file: str | None = None
    scala_version: ScalaVersion | None = None
    suffixed_name: str | None = None
    argument_bytes: int = 0


class SubmitPlan:
    """Additions of one attempt to its call of Spark: before the submit.

    :param ti_id: Airflow's id of the task instance, which keeps attempts of the same key apart; may be empty.
    :param warnings: warnings of the attempt's report, to which the plan adds its own.
    """

    def __init__(
        self, options: LineageOptions, key: AttemptKey, connections: Connections, ti_id: str, warnings: list[str]
    ) -> None:
        self._options = options
        self._key = key
        self._connections = connections
        self._ti_id = ti_id
        self._warnings = warnings

    def inject(
        self, submission: Submission, spark: SparkSubmit, runs: tuple[ParentRun, ParentRun], event_log: SparkEventLog
    ) -> tuple[Injection, EventPlace]:
        """Return the submission with the listener, or with Spark's own event log, and the place of the events.

        :param runs: the parent run, and the root of the run tree.
        :raises InjectionError: if the listener cannot be added without risk to the job, and its log is not to be read.
        :raises OSError: if the properties file cannot be read.
        """
        events_file = self._on_events_disk(self._new_event_place)
        injection = self._injection(submission, spark, events_file, runs)
        if injection.users_parent:
            self._warnings.append("the job names an OpenLineage parent run of its own, which was kept")
        if self._options.settings.reads_event_log:
            # Beside the event file; if the events go to a store, where the event file would be.
            beside = events_file if isinstance(events_file, Path) else self._event_file()
            with_log = partial(
                event_log.inject,
                injection.submission,
                beside,
                local_driver=spark.local_driver,
                attempt=str(events_file),
                connection=self._options.event_log_connection,
            )
            injection = replace(injection, submission=self._on_events_disk(with_log))
        if spark.binary:
            capture.check_command_line(injection.submission.arguments, spark.env, spark.argument_bytes)
        if spark.local_driver and isinstance(events_file, Path):
            self._on_events_disk(partial(self._reserve, events_file))
        added = injection.submission.properties.keys() - submission.properties.keys()
        log.debug("Events go to %s; properties added: %s", events_file, ", ".join(sorted(added)))
        return injection, events_file

    def inject_below(self, runs: tuple[ParentRun, ParentRun]) -> tuple[ChildInjection, SparkEventLog]:
        """Return the configuration of the listener for every Spark below the task, and the place of their logs.

        :raises InjectionError: if the folder for events is relative.
        :raises OSError: if it cannot be written.
        """
        options = self._options
        events_folder = self._on_events_disk(self._made_events_folder)
        event_log = SparkEventLog()
        if options.settings.reads_event_log:
            event_log = SparkEventLog(str(event_log_folder(events_folder)), is_own=True)
        injection = capture.ChildInjection(
            str(events_folder),
            *runs,
            NAMESPACE,
            self._facets(),
            options.openlineage_jar or DEFAULT_OPENLINEAGE_JAR,
            str(event_log.folder) if event_log.folder else None,
            str(options.class_archives) if options.class_archives else None,
        )
        return injection, event_log

    def inject_session(self, remote: str, name: str) -> tuple[str, SessionEvents]:
        """Return the connection string of a Spark Connect client whose session is the attempt's, and its events.

        :param remote: the client's own connection string.
        :param name: name for an application that has none.
        :raises InjectionError: if it is not an address of Spark Connect, or the server's event file cannot be read.
        """
        path = self._options.connect_events or Path()
        changed, session_id = capture.remote_with_session(remote, self._ti_id or str(uuid4()))
        try:
            start = self._on_events_disk(path.stat).st_size
        except OSError as error:
            raise InjectionError(f"connect_events: {path}: {error.strerror or error}") from error
        return changed, capture.SessionEvents(path, session_id, start, name)

    def _on_events_disk(self, step: Callable[[], T]) -> T:
        """Return the result of a step before the submit on the disk of the event files.

        :raises TimeoutError: if the disk hangs. A driver with the listener would not end then.
        """
        return step_in_time(str(self._options.events_location), Deadline.after(_BEGIN_SECONDS), step)

    def _reserve(self, events_file: Path) -> None:
        # The driver makes it otherwise, with the umask's modes. Elsewhere the driver may be another user.
        with suppress(OSError):
            self._make_folder(events_file.parent)
            reservation_file(events_file).touch()

    def _made_events_folder(self) -> Path:
        events_folder = unused_path(self._event_file().with_suffix(EVENT_FOLDER))
        self._make_folder(events_folder.parent)
        events_folder.mkdir()
        if self._options.settings.reads_event_log:
            event_log_folder(events_folder).mkdir()
        return events_folder

    def _make_folder(self, folder: Path) -> None:
        limits = self._options.outbox_limits
        make_folder(folder, sync=False, access=FileAccess.of(group=limits is not None and limits.group_access))

    def _event_file(self) -> Path:
        """Return the path of the attempt's event file, which an earlier attempt of the same key may have used."""
        return event_file(self._options.events_location, self._key, self._ti_id)

    def _new_event_place(self) -> EventPlace:
        """Return a new place for the attempt's events: an unused file, or objects in a store."""
        options, file = self._options, self._event_file()
        if options.events_store is None:
            return unused_path(file)
        # Airflow's id of the task instance keeps attempts of the same key apart.
        relative = file.relative_to(options.events_location).as_posix()
        return capture.EventObjects.below(options.events_store, relative, self._connections.open_store)

    def _facets(self) -> dict[str, bool]:
        """Return the facets that the listener must send (or not send) contrary to its defaults."""
        settings = self._options.settings
        facets = {"spark.logicalPlan": True} if settings.capture_spark_plan else {}
        return facets if settings.capture_column_level_lineage else {**facets, "columnLineage": False}

    def _injection(
        self, submission: Submission, spark: SparkSubmit, events_file: EventPlace, runs: tuple[ParentRun, ParentRun]
    ) -> Injection:
        """Return the submission with the listener, or without it if lineage comes from Spark's event log.

        :param runs: the parent run, and the root of the run tree.
        :raises InjectionError: if the listener cannot be added without risk to the job, and ``capture`` does not allow
            the job's event log instead.
        :raises OSError: if the properties file cannot be read.
        """
        installation = SparkInstallation.find(spark.binary, spark.env) if spark.binary else None
        submission = replace(
            submission,
            base_properties=base_properties(installation, spark.properties_file),
            base_file=base_file(installation, spark.properties_file),
            replaceable=_knows_base_file(spark, installation),
        )
        if submission.secrets and spark.binary and not submission.replaceable:
            names_of_secrets = ", ".join(sorted(submission.secrets))
            log.debug("Secrets in the job's Spark properties stay on its command line: %s", names_of_secrets)
        reason = f"capture is {self._options.capture}"
        if self._options.capture != "event_log":
            try:
                return self._with_listener(submission, spark, installation, events_file, runs)
            except InjectionError as error:
                if self._options.capture == "listener":
                    raise
                reason = redact_text(error.reason)
                self._warnings.append(f"{reason}; the lineage comes from Spark's own event log")
        log.debug("The job runs without the OpenLineage listener: %s", reason)
        return Injection(submission, users_parent=False, users_transport=False)

    def _with_listener(
        self,
        submission: Submission,
        spark: SparkSubmit,
        installation: SparkInstallation | None,
        events_file: EventPlace,
        runs: tuple[ParentRun, ParentRun],
    ) -> Injection:
        self._check_listener(submission, spark)
        versions = None
        if installation is None and spark.binary:
            versions = SparkVersions.from_banner(spark.binary, spark.env, _BANNER_SECONDS)
        jar = choose_jar(
            self._options.openlineage_jar or DEFAULT_OPENLINEAGE_JAR,
            submission,
            installation=installation,
            local_driver=spark.local_driver,
            resolver=IvyResolver(installation, submission, spark.env) if installation else None,
            scala_version=versions.scala_version if versions else spark.scala_version,
            s3_transport=not isinstance(events_file, Path),
        )
        place = ", on the driver's class path" if jar.class_path else ""
        log.debug("OpenLineage jar: %s%s", redact_text(jar.origin), place)
        endpoint = None if isinstance(events_file, Path) else self._connections.s3_endpoint(str(events_file))
        lineage = LineageInjection(str(events_file), jar, *runs, NAMESPACE, self._facets(), endpoint)
        injection = inject(submission, lineage)
        archive = self._class_archive(submission, spark, installation, jar)
        return replace(injection, submission=archive.added_to(injection.submission)) if archive else injection

    def _class_archive(
        self, submission: Submission, spark: SparkSubmit, installation: SparkInstallation | None, jar: JarChoice
    ) -> ClassArchive | None:
        if self._options.class_archives is None or not spark.local_driver:
            return None
        try:
            archives = capture.ClassArchives.at(self._options.class_archives)
            archive = archives.find(submission, installation, spark.env, jar)
        except capture.ClassArchiveError as error:
            log.info("The job starts without an archive of Java classes: %s", error)
            return None
        log.debug("Archive of Java classes: %s", archive.path)
        return archive

    def _check_listener(self, submission: Submission, spark: SparkSubmit) -> None:
        off = submission.disabled_by(spark.env)
        if off:
            raise InjectionError(f"{off} switches the OpenLineage listener off")
        replaced = overridden_transport(spark.env, Path.cwd(), Path.home()) if spark.local_driver else None
        if replaced:
            self._warnings.append(
                f"the OpenLineage transport of {replaced} gets none of this job's events: set it as Spark properties "
                "(spark.openlineage.transport.*) to have it combined with ours"
            )


def _knows_base_file(spark: SparkSubmit, installation: SparkInstallation | None) -> bool:
    # A driver in a container has environment variables that spark-submit does not see.
    names = ("PATH", "SPARK_CONF_DIR", "SPARK_HOME")
    is_ours = all(spark.env.get(name) == os.environ.get(name) for name in names)
    return (
        spark.binary is not None
        and is_ours
        and knows_base_file(installation, spark.properties_file, spark.binary, spark.env)
    )

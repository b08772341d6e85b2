"""Capture of a Spark job's OpenLineage events: inject the listener before the submit, collect the events after it.

Knows neither Airflow nor DataHub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture.child_spark import (
        ChildInjection as ChildInjection,
        SubmitArguments as SubmitArguments,
        launch_notes as launch_notes,
    )
    from airflow_provider_spark_datahub.capture.class_archive import (
        ClassArchive as ClassArchive,
        ClassArchiveError as ClassArchiveError,
        ClassArchives as ClassArchives,
    )
    from airflow_provider_spark_datahub.capture.connect_session import (
        SESSION_SCHEME as SESSION_SCHEME,
        SessionEvents as SessionEvents,
        remote_with_session as remote_with_session,
    )
    from airflow_provider_spark_datahub.capture.event_lines import (
        EVENT_FOLDER as EVENT_FOLDER,
        UNREAD as UNREAD,
        BadLineError as BadLineError,
        CollectedEvents as CollectedEvents,
        CollectionReport as CollectionReport,
        EventPlace as EventPlace,
        EventSource as EventSource,
        Outcome as Outcome,
        checked_text as checked_text,
        follow as follow,
    )
    from airflow_provider_spark_datahub.capture.event_log import (
        ATTEMPT_PROPERTY as ATTEMPT_PROPERTY,
        EventLog as EventLog,
        LogFollower as LogFollower,
        LogLimits as LogLimits,
        LogObjects as LogObjects,
        LogPlace as LogPlace,
    )
    from airflow_provider_spark_datahub.capture.event_objects import (
        EventObjects as EventObjects,
        ObjectStore as ObjectStore,
        OpenStore as OpenStore,
    )
    from airflow_provider_spark_datahub.capture.injection import (
        Injection as Injection,
        LineageInjection as LineageInjection,
        ParentRun as ParentRun,
        event_file as event_file,
        event_log_folder as event_log_folder,
        inject as inject,
        inject_event_log as inject_event_log,
        overridden_transport as overridden_transport,
        unused_path as unused_path,
    )
    from airflow_provider_spark_datahub.capture.openlineage_jar import (
        DEFAULT_OPENLINEAGE_JAR as DEFAULT_OPENLINEAGE_JAR,
        IvyResolver as IvyResolver,
        JarChoice as JarChoice,
        choose_jar as choose_jar,
    )
    from airflow_provider_spark_datahub.capture.remote_spark import (
        LivyBatch as LivyBatch,
        SparkApplication as SparkApplication,
    )
    from airflow_provider_spark_datahub.capture.spark_installation import (
        ScalaVersion as ScalaVersion,
        SparkInstallation as SparkInstallation,
        SparkVersions as SparkVersions,
        base_file as base_file,
        base_properties as base_properties,
        knows_base_file as knows_base_file,
    )
    from airflow_provider_spark_datahub.capture.spark_submit import (
        DriverOutput as DriverOutput,
        InjectionError as InjectionError,
        PropertiesFile as PropertiesFile,
        RunningSubmit as RunningSubmit,
        Submission as Submission,
        check_command_line as check_command_line,
        temporary_folder as temporary_folder,
    )
    from airflow_provider_spark_datahub.capture.stored_files import (
        COMPRESSED as COMPRESSED,
        DamagedFileError as DamagedFileError,
        decompressed as decompressed,
        read_lines as read_lines,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "child_spark": "ChildInjection SubmitArguments launch_notes",
            "class_archive": "ClassArchive ClassArchiveError ClassArchives",
            "connect_session": "SESSION_SCHEME SessionEvents remote_with_session",
            "event_lines": (
                "EVENT_FOLDER BadLineError CollectedEvents CollectionReport EventPlace EventSource "
                "Outcome UNREAD checked_text follow"
            ),
            "event_log": "ATTEMPT_PROPERTY EventLog LogFollower LogLimits LogObjects LogPlace",
            "event_objects": "EventObjects ObjectStore OpenStore",
            "injection": (
                "Injection LineageInjection ParentRun event_file event_log_folder inject "
                "inject_event_log overridden_transport unused_path"
            ),
            "openlineage_jar": "DEFAULT_OPENLINEAGE_JAR IvyResolver JarChoice choose_jar",
            "remote_spark": "LivyBatch SparkApplication",
            "spark_installation": (
                "ScalaVersion SparkInstallation SparkVersions base_file base_properties knows_base_file"
            ),
            "spark_submit": (
                "DriverOutput InjectionError PropertiesFile RunningSubmit Submission check_command_line "
                "temporary_folder"
            ),
            "stored_files": "COMPRESSED DamagedFileError decompressed read_lines",
        },
    )

"""Capture of a Spark job's OpenLineage events: inject the listener before the submit, collect the
events after it.

Knows neither Airflow nor DataHub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .child_spark import ChildInjection, SubmitArguments
    from .class_archive import ClassArchive, ClassArchiveError, ClassArchives
    from .connect_session import SESSION_SCHEME, SessionEvents
    from .event_lines import (
        EVENT_FILE,
        EVENT_FOLDER,
        BadLineError,
        CollectedEvents,
        CollectionReport,
        EventPlace,
        EventSource,
        Outcome,
        checked_text,
        follow,
    )
    from .event_log import ATTEMPT_PROPERTY, EventLog, LogFollower, LogObjects, LogPlace
    from .event_objects import EventObjects, ObjectStore, OpenStore
    from .injection import (
        EVENT_LOG_FOLDER,
        TRANSPORTS,
        WHOLE_PATHS,
        Injection,
        LineageInjection,
        ParentRun,
        check_listener,
        event_file,
        event_log_folder,
        inject,
        inject_event_log,
        unused_path,
    )
    from .openlineage_jar import DEFAULT_OPENLINEAGE_JAR, JarChoice, SparkSubmit
    from .spark_installation import (
        ScalaVersion,
        SparkInstallation,
        banner_versions,
        base_properties,
    )
    from .spark_submit import (
        DriverOutput,
        InjectionError,
        Submission,
        check_command_line,
        private_folder,
        remove_abandoned_properties,
        running_submits,
        split_list,
    )
    from .stored_files import COMPRESSED, DamagedFileError, decompressed, read_lines
else:
    __getattr__, __dir__ = lazy_exports(__name__)

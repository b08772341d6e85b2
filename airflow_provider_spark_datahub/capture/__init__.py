"""Capture of a Spark job's OpenLineage events: inject the listener before the submit, collect the events after it.

Knows neither Airflow nor DataHub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.capture.collection import (
        COMPRESSED as COMPRESSED,
        BadLineError as BadLineError,
        CollectionReport as CollectionReport,
        DamagedFileError as DamagedFileError,
        EventSource as EventSource,
        FileFollower as FileFollower,
        Outcome as Outcome,
        checked_text as checked_text,
        collect_text as collect_text,
        follow_events as follow_events,
        lines_of as lines_of,
    )
    from airflow_provider_spark_datahub.capture.event_log import (
        LogFollower as LogFollower,
        read_event_log as read_event_log,
    )
    from airflow_provider_spark_datahub.capture.injection import (
        Injection as Injection,
        LineageInjection as LineageInjection,
        ParentRun as ParentRun,
        TransportNotCombinableError as TransportNotCombinableError,
        inject as inject,
        inject_event_log as inject_event_log,
        replaced_transport as replaced_transport,
        switched_off as switched_off,
    )
    from airflow_provider_spark_datahub.capture.location import (
        RelativeEventsRootError as RelativeEventsRootError,
        event_file as event_file,
        event_log_folder as event_log_folder,
        fresh as fresh,
    )
    from airflow_provider_spark_datahub.capture.openlineage_jar import (
        DEFAULT_OPENLINEAGE_JAR as DEFAULT_OPENLINEAGE_JAR,
        IvyResolver as IvyResolver,
        JarProblemError as JarProblemError,
        choose_jar as choose_jar,
    )
    from airflow_provider_spark_datahub.capture.spark_installation import (
        base_properties as base_properties,
        find_installation as find_installation,
        version_banner as version_banner,
    )
    from airflow_provider_spark_datahub.capture.spark_submit import (
        DriverOutput as DriverOutput,
        Submission as Submission,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "collection": (
                "BadLineError COMPRESSED CollectionReport DamagedFileError EventSource FileFollower Outcome "
                "checked_text collect_text follow_events lines_of"
            ),
            "event_log": "LogFollower read_event_log",
            "injection": (
                "Injection LineageInjection ParentRun TransportNotCombinableError inject inject_event_log "
                "replaced_transport switched_off"
            ),
            "location": "RelativeEventsRootError event_file event_log_folder fresh",
            "openlineage_jar": "DEFAULT_OPENLINEAGE_JAR IvyResolver JarProblemError choose_jar",
            "spark_installation": "base_properties find_installation version_banner",
            "spark_submit": "DriverOutput Submission",
        },
    )

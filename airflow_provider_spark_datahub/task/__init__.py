"""Lineage of one attempt, without Airflow: inject, collect, convert, deliver, report, and recover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.task.attempt import (
        AttemptEnd as AttemptEnd,
        AttemptLineage as AttemptLineage,
        Launcher as Launcher,
    )
    from airflow_provider_spark_datahub.task.options import (
        SECTION as SECTION,
        UNNAMED_APPLICATION as UNNAMED_APPLICATION,
        Connections as Connections,
        LineageConfiguration as LineageConfiguration,
        LineageOptions as LineageOptions,
        OptionError as OptionError,
    )
    from airflow_provider_spark_datahub.task.recovery import (
        drain_callbacks as drain_callbacks,
        event_bytes as event_bytes,
        is_ready as is_ready,
        may_run as may_run,
        recover_entry as recover_entry,
        remove_delivered_events as remove_delivered_events,
    )
    from airflow_provider_spark_datahub.task.report import XCOM_KEY as XCOM_KEY, LineageReport as LineageReport
    from airflow_provider_spark_datahub.task.submit_plan import SparkSubmit as SparkSubmit
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "attempt": "AttemptEnd AttemptLineage Launcher",
            "options": "Connections LineageConfiguration LineageOptions OptionError SECTION UNNAMED_APPLICATION",
            "recovery": "drain_callbacks event_bytes is_ready may_run recover_entry remove_delivered_events",
            "report": "LineageReport XCOM_KEY",
            "submit_plan": "SparkSubmit",
        },
    )

"""Conversion of OpenLineage run events to DataHub proposals: pure functions, no I/O, no clock.

The names in ``__all__`` are public API (``docs/conversion.md``); everything else is internal to this package. Other
folders enter through this module, :mod:`.run_tree` and :mod:`.archive`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

__all__ = [
    "Conversion",
    "Converter",
    "Ending",
    "EventError",
    "LineageSettings",
    "Proposal",
    "SettingsError",
    "convert_events",
    "convert_run_event",
]

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.aspects import (
        patched_edges as patched_edges,
        retractions as retractions,
    )
    from airflow_provider_spark_datahub.conversion.convert import (
        Conversion as Conversion,
        Converter as Converter,
        WrittenDataset as WrittenDataset,
        convert_events as convert_events,
        convert_run_event as convert_run_event,
        convert_single as convert_single,
    )
    from airflow_provider_spark_datahub.conversion.diagnostics import Diagnostics as Diagnostics
    from airflow_provider_spark_datahub.conversion.events import (
        DatasetId as DatasetId,
        EventError as EventError,
        as_object as as_object,
        parse_time_ms as parse_time_ms,
    )
    from airflow_provider_spark_datahub.conversion.facets.run import DataInterval as DataInterval, RunType as RunType
    from airflow_provider_spark_datahub.conversion.interruption import (
        OutOfTimeError as OutOfTimeError,
        time_limit as time_limit,
    )
    from airflow_provider_spark_datahub.conversion.proposals import (
        Proposal as Proposal,
        ProposalFormatError as ProposalFormatError,
        json_lines as json_lines,
    )
    from airflow_provider_spark_datahub.conversion.redaction import (
        event_without_secrets as event_without_secrets,
        redact_text as redact_text,
        redacted_trace as redacted_trace,
    )
    from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending as Ending, JobLineage as JobLineage
    from airflow_provider_spark_datahub.conversion.runs.lineage import JobDataset as JobDataset
    from airflow_provider_spark_datahub.conversion.setting_names import SettingsError as SettingsError
    from airflow_provider_spark_datahub.conversion.settings import LineageSettings as LineageSettings
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "aspects": "patched_edges retractions",
            "convert": "Conversion Converter WrittenDataset convert_single convert_events convert_run_event",
            "diagnostics": "Diagnostics",
            "events": "DatasetId EventError as_object parse_time_ms",
            "facets.run": "DataInterval RunType",
            "proposals": "Proposal ProposalFormatError json_lines",
            "redaction": "event_without_secrets redact_text redacted_trace",
            "runs.coalesce": "Ending JobLineage",
            "runs.lineage": "JobDataset",
            "setting_names": "SettingsError",
            "settings": "LineageSettings",
            "interruption": "OutOfTimeError time_limit",
        },
    )

"""Conversion of OpenLineage run events to DataHub proposals: pure functions, no I/O, no clock.

The names in ``__all__`` are public API (``docs/conversion.md``); everything else is internal to
this package. Other folders enter through this module, :mod:`.run_tree` and :mod:`.archive`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

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
    from .aspects import patched_edges, retractions
    from .convert import (
        Conversion,
        Converter,
        WrittenDataset,
        convert_events,
        convert_run_event,
        convert_single,
    )
    from .datasets import DatasetNamer, parent_folders
    from .diagnostics import Diagnostics
    from .events import DatasetId, EventError, parse_time_ms
    from .facets.run import DataInterval, RunType
    from .history.changes import (
        FEW_GREENS,
        MOST_COMPARED,
        SOME_TASK,
        DailyTable,
        Fingerprint,
        SilentTasks,
        Use,
        changes_since,
        folded,
    )
    from .history.impact import HeldRun, Impact, Records, UnknownWriteError
    from .interruption import OutOfTimeError, time_limit
    from .proposals import APPLICATION_JOB, Proposal, ProposalFormatError, json_lines
    from .redaction import redact_text, redacted_trace
    from .retirement import JobRecord, Revision, retired_job, revise
    from .runs.coalesce import Ending, JobLineage
    from .runs.lineage import JobDataset
    from .settings import LineageSettings, SettingsError, split_dataset_urn
else:
    __getattr__, __dir__ = lazy_exports(__name__)

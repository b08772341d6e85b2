"""Lineage of one attempt, without Airflow: inject, collect, convert, deliver, report, and recover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .attempt import AttemptLineage, Launcher
    from .earlier import SucceededAttempt
    from .ended import AttemptEnd, EndedAttempt
    from .options import (
        ARGUMENTS,
        OPTIONS,
        SECTION,
        Connections,
        LineageConfiguration,
        LineageOptions,
        OptionError,
    )
    from .recovery import (
        drain,
        event_bytes,
        is_ready,
        may_run,
        unawaited_events,
    )
    from .report import XCOM_KEY, LineageReport
    from .running import RunningAttempt
else:
    __getattr__, __dir__ = lazy_exports(__name__)

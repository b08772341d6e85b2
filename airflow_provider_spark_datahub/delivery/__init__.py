"""Delivery of proposals: the interface of every sink, deadlines, and files that survive a crash.

Other folders enter through this module, :mod:`.outbox` and :mod:`.sinks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .deadline import Deadline, step_in_time
    from .failure import OutageNotes
    from .reconciliation import Reconciliation
    from .sink import CheckResult, CheckStatus, Delivery, Rejection, Sink, SinkSettingsError
    from .sinks.settings import ConnectionParts
else:
    __getattr__, __dir__ = lazy_exports(__name__)

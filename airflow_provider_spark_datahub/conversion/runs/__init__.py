"""Runs folded from events, their lineage, and the jobs that are made of them.

Only applications of Hive need its sessions: their module is loaded with the first event of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .hive_sessions import HiveSession, HiveSessions
else:
    __getattr__, __dir__ = lazy_exports(__name__)

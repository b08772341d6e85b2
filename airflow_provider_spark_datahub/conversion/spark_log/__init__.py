"""Spark's own event log: streaming queries as jobs, and what OpenLineage did not report.

Most attempts have no such log: its modules are loaded with the first event of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .log import LoggedApplication, SparkLog
    from .plan_runs import application_events
    from .queries import queries_of_logs
    from .streaming import coalesce_with_queries
else:
    __getattr__, __dir__ = lazy_exports(__name__)

"""Spark's own event log: streaming queries as jobs, and what OpenLineage did not report.

Most attempts have no such log: its modules are loaded with the first event of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub._lazy import lazy_exports

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion.spark_log.log import (
        LoggedApplication as LoggedApplication,
        SparkLog as SparkLog,
    )
    from airflow_provider_spark_datahub.conversion.spark_log.run_events import (
        events_of_plans as events_of_plans,
        unnamed_sources as unnamed_sources,
    )
    from airflow_provider_spark_datahub.conversion.spark_log.streaming import (
        coalesce_with_queries as coalesce_with_queries,
    )
    from airflow_provider_spark_datahub.conversion.spark_log.unreported import (
        LostLineage as LostLineage,
        with_lineage_of_plans as with_lineage_of_plans,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "log": "LoggedApplication SparkLog",
            "run_events": "events_of_plans unnamed_sources",
            "streaming": "coalesce_with_queries",
            "unreported": "LostLineage with_lineage_of_plans",
        },
    )

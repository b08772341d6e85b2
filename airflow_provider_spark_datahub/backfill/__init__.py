"""Backfill of an archive with Spark: the plan and its submission, the Spark job, and the delivery
of its results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_spark_datahub.foundation.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .delivery import BackfillDelivery, Rate
    from .plan import (
        APPLICATION_NAME,
        CONVERTED_FILE,
        LOCAL,
        SPARK_MAIN,
        SUMMARY,
        BackfillPlan,
        PlanError,
        ResultFolder,
        folder_uri,
        read_part,
        write_package,
    )
else:
    __getattr__, __dir__ = lazy_exports(__name__)

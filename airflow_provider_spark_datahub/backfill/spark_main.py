"""Application that ``spark-submit`` starts: ``spark_main.py PLAN``, with the plan as one line of JSON.

Tests: ``tests/backfill/test_backfill_job.py``.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from airflow_provider_spark_datahub.backfill.plan import BackfillPlan, PlanError
from airflow_provider_spark_datahub.backfill.spark_job import BackfillJob
from airflow_provider_spark_datahub.conversion import SettingsError
from airflow_provider_spark_datahub.foundation.text import counted

_EXIT_USAGE = 2


def _main(plan_text: str) -> int:
    spark = SparkSession.builder.getOrCreate()
    try:
        job = BackfillJob(spark, BackfillPlan.from_json(plan_text), _report)
        summary = job.run()
    except (PlanError, SettingsError) as error:
        _report(str(error))
        return _EXIT_USAGE
    finally:
        spark.stop()
    proposals, runs = counted(summary["proposals"], "proposal"), counted(summary["runs"], "run")
    _report(f"{proposals} from {runs}, {summary['quarantined']} quarantined")
    return 0


def _report(line: str) -> None:
    print(f"backfill: {line}", file=sys.stderr, flush=True)  # noqa: T201 (a program of its own)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))

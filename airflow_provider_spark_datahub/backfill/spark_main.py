"""The application that ``spark-submit`` starts: ``submitted.py PLAN``, where the plan is one line of JSON."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from airflow_provider_spark_datahub.backfill.plan import BackfillPlan, PlanError
from airflow_provider_spark_datahub.backfill.spark_job import BackfillJob
from airflow_provider_spark_datahub.conversion import SettingsError

EXIT_USAGE = 2


def main(plan_text: str) -> int:
    """Carry out a plan. The result is the exit status."""
    spark = SparkSession.builder.getOrCreate()
    try:
        job = BackfillJob(spark, BackfillPlan.from_json(plan_text), _tell)
        summary = job.run()
    except (PlanError, SettingsError) as error:
        _tell(str(error))
        return EXIT_USAGE
    finally:
        spark.stop()
    _tell(f"{summary['proposals']} proposals from {summary['runs']} runs, {summary['quarantined']} quarantined")
    return 0


def _tell(line: str) -> None:
    print(f"backfill: {line}", file=sys.stderr, flush=True)  # noqa: T201 (a program of its own)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

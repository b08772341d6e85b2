"""A backfill on the cluster: from the files of an archive to parts that can be delivered, and what was counted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (how everybody calls it)

from airflow_provider_spark_datahub.backfill import plan as folder
from airflow_provider_spark_datahub.backfill.plan import BackfillPlan, check_plan
from airflow_provider_spark_datahub.spark.archive_files import find_files
from airflow_provider_spark_datahub.spark.archive_job import ArchiveJob, Index
from airflow_provider_spark_datahub.spark.converting import BAD, COUNT, VERSION
from airflow_provider_spark_datahub.spark.hadoop_files import HadoopFiles

_LISTED_REASONS = 20
_QUARANTINE_FILES = 8


class BackfillJob:
    """Carries out the conversion of a plan, once: a folder that has been converted is left as it is.

    :param tell: takes a line on the progress.
    """

    def __init__(self, spark: SparkSession, plan: BackfillPlan, tell: Callable[[str], None]) -> None:
        self._spark = spark
        self._plan = plan
        self._tell = tell
        self._files = HadoopFiles(spark)
        self._job = ArchiveJob(spark, plan.settings(), plan.selection(), plan.place(folder.WORK))

    def run(self) -> dict[str, Any]:
        """Convert; go on where an earlier run of the same plan was interrupted.

        :returns: the summary.
        :raises PlanError: the folder holds the results of another plan.
        """
        self._claim_folder()
        summary = self._files.read(self._plan.place(folder.CONVERTED_FILE))
        if summary is not None:
            self._tell("the archive has been converted already")
            return dict(json.loads(summary))
        return self._convert()

    def _claim_folder(self) -> None:
        place = self._plan.place(folder.PLAN_FILE)
        known = self._files.read(place)
        if known is None:
            self._files.write(place, self._plan.to_json())
        else:
            check_plan(self._plan, known)

    def _convert(self) -> dict[str, Any]:
        started = time.monotonic()
        index = self._job.known_index()
        summary: dict[str, Any] = {}
        if index is None:
            files = find_files(self._spark, self._plan.sources)
            summary |= {"files": files.count, "bytes": files.size}
            self._tell(f"reading {files.count} files, {files.size / 1e6:.1f} MB")
            index = self._job.index(files)
            self._files.write(self._plan.place(f"{folder.WORK}/files.json"), json.dumps(summary))
        else:
            self._tell("the archive has been read already")
            summary |= json.loads(self._files.read(self._plan.place(f"{folder.WORK}/files.json")) or "{}")
        read = time.monotonic()
        self._tell(f"converting {index.events} events, {index.size / 1e6:.1f} MB")
        kept = self._job.kept(index, self._plan.parts).persist(StorageLevel.DISK_ONLY)
        quarantine = _quarantine(index, kept)
        summary |= {"events": index.events, "event_bytes": index.size, **_counted(kept), **_reasons(quarantine)}
        summary["seconds"] = {"reading": round(read - started, 1), "converting": round(time.monotonic() - read, 1)}
        self._write(kept, quarantine, summary)
        kept.unpersist()
        return summary

    def _write(self, kept: DataFrame, quarantine: DataFrame, summary: dict[str, Any]) -> None:
        place = self._plan.place
        quarantine.coalesce(_QUARANTINE_FILES).write.mode("overwrite").json(place(folder.QUARANTINE))
        text = json.dumps(summary, indent=2)
        if not self._plan.dry_run:
            versions = kept.where(F.col("kind") == VERSION)
            versions.select("line").write.mode("overwrite").text(place(folder.PROPOSALS))
            table = versions.select(
                "entity_urn",
                "aspect_name",
                "change_type",
                F.col("line").alias("proposal"),
                F.timestamp_millis("time_ms").alias("event_time"),
                "reason",
            )
            table.write.mode("overwrite").parquet(place(folder.TABLE))
            self._files.write(place(folder.SUMMARY), text)
            self._files.write(place(folder.CONVERTED_FILE), text)
            self._files.delete(place(folder.WORK))
        else:
            self._files.write(place(folder.SUMMARY), text)


def _quarantine(index: Index, kept: DataFrame) -> DataFrame:
    refused = kept.where(F.col("kind") == BAD)
    return index.quarantined.union(refused.select("place", F.col("time_ms"), "reason"))


def _counted(kept: DataFrame) -> dict[str, Any]:
    """How many runs, versions of aspects, and proposals by aspect."""
    counts = kept.where(F.col("kind") == COUNT).groupBy("place").agg(F.sum("time_ms"))
    found: dict[str, Any] = {row[0]: row[1] for row in counts.collect()}
    aspects = kept.where(F.col("kind") == VERSION).groupBy("aspect_name").count().orderBy("aspect_name").collect()
    found["proposals"] = sum(row[1] for row in aspects)
    found["proposals_by_aspect"] = {row[0]: row[1] for row in aspects}
    return found


def _reasons(quarantine: DataFrame) -> dict[str, Any]:
    by_reason = quarantine.groupBy("reason").count()
    count = by_reason.agg(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0]
    frequent = by_reason.orderBy(F.desc("count"), "reason").limit(_LISTED_REASONS).collect()
    return {"quarantined": count, "quarantined_by_reason": {row[0]: row[1] for row in frequent}}

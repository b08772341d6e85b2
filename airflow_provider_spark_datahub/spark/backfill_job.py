"""A backfill on the cluster: from the files of an archive to parts that can be delivered, and what was counted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (how everybody calls it)

from airflow_provider_spark_datahub.backfill import plan as folder
from airflow_provider_spark_datahub.backfill.plan import PROPOSAL_COLUMN, BackfillPlan, check_plan
from airflow_provider_spark_datahub.spark.archive_files import find_files
from airflow_provider_spark_datahub.spark.archive_job import ArchiveJob
from airflow_provider_spark_datahub.spark.converting import BAD, COUNT
from airflow_provider_spark_datahub.spark.hadoop_files import HadoopFiles

_LISTED_REASONS = 20
_QUARANTINE_FILES = 8
_PARTS = {
    # Each proposal is another: to look for it among those before costs as much as to write it.
    f"parquet.enable.dictionary#{PROPOSAL_COLUMN}": "false",
    "parquet.compression.codec.zstd.level": "1",
}


class BackfillJob:
    """Carries out the conversion of a plan, once: a folder that has been converted is left as it is.

    :param tell: takes a line on the progress.
    """

    def __init__(self, spark: SparkSession, plan: BackfillPlan, tell: Callable[[str], None]) -> None:
        self._spark = spark
        self._plan = plan
        self._tell = tell
        self._files = HadoopFiles(spark)
        work = plan.place(folder.WORK)
        self._job = ArchiveJob(spark, plan.settings(), plan.selection(), work, plan.parts)
        self._seconds: dict[str, float] = {}

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
        found = self._step("reading", self._read)
        index = self._job.index()
        self._tell(f"{index.events} events, {index.size / 1e6:.1f} MB")
        self._step("converting", partial(self._job.convert, index))
        converted = self._job.converted()
        counts = _counts(converted)
        quarantine = index.quarantined.union(
            converted.where(F.col("kind") == BAD).select("place", F.col("number"), "reason")
        )
        reasons = _reasons(quarantine if counts["quarantined"] or index.facts.damaged else None)
        started = time.monotonic()
        quarantine.coalesce(_QUARANTINE_FILES).write.mode("overwrite").json(self._plan.place(folder.QUARANTINE))
        kept = self._job.kept(index)
        aspects = _aspects(kept if self._plan.dry_run else self._written(kept))
        self._seconds["writing"] = time.monotonic() - started
        events = {"events": index.events, "event_bytes": index.size}
        seconds = {step: round(lasted, 1) for step, lasted in self._seconds.items()}
        summary = {**found, **events, **counts, **aspects, **reasons, "seconds": seconds}
        self._files.write(self._plan.place(folder.SUMMARY), json.dumps(summary, indent=2))
        if not self._plan.dry_run:
            self._files.write(self._plan.place(folder.CONVERTED_FILE), json.dumps(summary, indent=2))
            self._files.delete(self._plan.place(folder.WORK))
        return summary

    def _step(self, name: str, carry_out: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """Carry out a step, unless an earlier run of this plan has done so."""
        marker = self._plan.place(f"{folder.WORK}/{name}.json")
        known = self._files.read(marker)
        if known is not None:
            self._tell(f"{name} has been done already")
        else:
            self._tell(name)
            started = time.monotonic()
            told = {"told": carry_out() or {}, "seconds": time.monotonic() - started}
            known = json.dumps(told)
            self._files.write(marker, known)
        done = json.loads(known)
        self._seconds[name] = done["seconds"]
        return dict(done["told"])

    def _read(self) -> dict[str, Any]:
        files = find_files(self._spark, self._plan.sources)
        self._tell(f"{files.count} files, {files.size / 1e6:.1f} MB")
        self._job.read(files)
        return {"files": files.count, "bytes": files.size}

    def _written(self, kept: DataFrame) -> DataFrame:
        """Write the parts: a partition is a file, so that all of an entity stay together, and in their order."""
        place = self._plan.place(folder.PROPOSALS)
        columns = ["entity_urn", "aspect_name", "change_type", PROPOSAL_COLUMN, "event_time", "reason"]
        table = kept.withColumn("event_time", F.timestamp_millis("time_ms")).select(*columns)
        table.write.mode("overwrite").options(**_PARTS).parquet(place)
        return self._spark.read.schema(table.schema).parquet(place)


def _counts(converted: DataFrame) -> dict[str, Any]:
    """How many runs, and versions of aspects."""
    counts = converted.where(F.col("kind") == COUNT).groupBy("place").agg(F.sum("number"))
    return {"runs": 0, "versions": 0, "quarantined": 0} | {row[0]: row[1] for row in counts.collect()}


def _aspects(kept: DataFrame) -> dict[str, Any]:
    """How many proposals, by aspect."""
    aspects = {row[0]: row[1] for row in kept.groupBy("aspect_name").count().collect()}
    return {"proposals": sum(aspects.values()), "proposals_by_aspect": dict(sorted(aspects.items()))}


def _reasons(quarantine: DataFrame | None) -> dict[str, Any]:
    if quarantine is None:
        return {"quarantined": 0, "quarantined_by_reason": {}}
    by_reason = quarantine.groupBy("reason").count()
    count = by_reason.agg(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0]
    frequent = by_reason.orderBy(F.desc("count"), "reason").limit(_LISTED_REASONS).collect()
    return {"quarantined": count, "quarantined_by_reason": {row[0]: row[1] for row in frequent}}

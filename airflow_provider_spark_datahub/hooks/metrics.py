"""Metrics of lineage, sent as Airflow's own: to StatsD or OpenTelemetry, by the section
``[metrics]``.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import Stats

from airflow_provider_spark_datahub.delivery.outbox import Outbox, OutboxRecords

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.task import LineageReport

log = logging.getLogger(__name__)


def count_attempt(report: LineageReport, dag_id: str, task_id: str) -> None:
    """Count an attempt, its proposals, and the seconds that lineage added to the task."""
    tags = {"dag_id": dag_id, "task_id": task_id}
    Stats.incr(
        f"spark_datahub.tasks.{'with' if report.has_lineage else 'without'}_lineage", 1, tags=tags
    )
    counts = {"delivered": report.delivered, "rejected": report.rejected, "pending": report.pending}
    for name, count in counts.items():
        if count:
            Stats.incr(f"spark_datahub.proposals.{name}", count, tags=tags)
    Stats.timing("spark_datahub.added", timedelta(seconds=report.seconds), tags=tags)


def gauge_outbox(outbox: Outbox) -> None:
    """Send the numbers of pending and quarantined entries, and the age of the oldest pending one in
    seconds.
    """
    try:
        records = OutboxRecords(outbox).newest(None, undelivered=True)
    except OSError as error:
        log.warning("Sent no metrics of the outbox, since it cannot be read: %s", error)
        return
    pending = [record.created_ms for record in records if record.state in ("pending", "unfinished")]
    age = max(0.0, time.time() - min(pending) / 1000) if pending else 0.0
    Stats.gauge("spark_datahub.outbox.pending", len(pending))
    Stats.gauge(
        "spark_datahub.outbox.quarantined", sum(record.state == "quarantined" for record in records)
    )
    Stats.gauge("spark_datahub.outbox.oldest_pending_seconds", round(age))

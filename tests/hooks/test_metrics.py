"""Metrics of lineage, as Airflow's own metrics get them."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Stats

from airflow_provider_spark_datahub.delivery.outbox.entries import OutboxRecords
from airflow_provider_spark_datahub.hooks import metrics
from airflow_provider_spark_datahub.task.report import LineageReport
from tests.delivery.outboxes import key, outbox_at, put

DOCS = Path(__file__).parents[2] / "docs"
TAGS = {"dag_id": "shop", "task_id": "build"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The metrics by name, each with its value and tags."""
    found: dict[str, Any] = {}
    for kind in ("incr", "timing", "gauge"):
        monkeypatch.setattr(
            Stats,
            kind,
            staticmethod(lambda name, value, tags=None: found.update({name: (value, tags)})),
        )
    return found


def test_an_attempt_is_counted_with_its_proposals_and_seconds(sent: dict[str, Any]) -> None:
    report = LineageReport(inputs=["a"], delivered=7, pending=2, seconds=1.5)
    metrics.count_attempt(report, **TAGS)
    assert sent == {
        "spark_datahub.tasks.with_lineage": (1, TAGS),
        "spark_datahub.proposals.delivered": (7, TAGS),
        "spark_datahub.proposals.pending": (2, TAGS),
        "spark_datahub.added": (timedelta(seconds=1.5), TAGS),
    }
    sent.clear()
    metrics.count_attempt(LineageReport(), **TAGS)
    assert set(sent) == {"spark_datahub.tasks.without_lineage", "spark_datahub.added"}


def test_the_outbox_is_gauged_even_if_it_is_empty(sent: dict[str, Any], tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    metrics.gauge_outbox(outbox)
    names = [
        f"spark_datahub.outbox.{name}"
        for name in ("pending", "quarantined", "oldest_pending_seconds")
    ]
    assert sent == dict.fromkeys(names, (0, None))
    put(outbox, key(), 1)
    put(outbox, key(task_id="other"), 1).quarantine("no such aspect")
    outbox.begin(key(task_id="killed"), connection_id="datahub", events="/e", redo={})
    metrics.gauge_outbox(outbox)
    assert [sent[name][0] for name in names[:2]] == [2, 1]
    assert 0 <= sent[names[2]][0] < 3600


def test_alerts_and_documentation_name_the_metrics_that_are_sent(
    sent: dict[str, Any], tmp_path: Path
) -> None:
    """As statsd_exporter and OpenTelemetry's collector name them in Prometheus; the latter adds
    _total to counters.
    """
    for inputs in ([], ["a"]):
        metrics.count_attempt(
            LineageReport(inputs=inputs, delivered=1, rejected=1, pending=1), **TAGS
        )
    counters = {
        name for name, (value, tags) in sent.items() if tags and not isinstance(value, timedelta)
    }
    metrics.gauge_outbox(outbox_at(tmp_path))
    names = {f"airflow_{name.replace('.', '_')}" for name in sent}
    names |= {f"airflow_{name.replace('.', '_')}_total" for name in counters}
    rules = (DOCS / "alerts/spark-lineage.yml").read_text()
    assert len(used := set(re.findall(r"\bairflow_\w+", rules))) == 6
    assert used <= names
    page = (DOCS / "outbox.md").read_text()
    assert [
        name for name in sent if name not in page and f"`.{name.rpartition('.')[2]}`" not in page
    ] == []


def test_an_outbox_that_cannot_be_read_has_no_gauges_and_fails_nothing(
    sent: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(OutboxRecords, "newest", refuse)
    metrics.gauge_outbox(outbox_at(tmp_path))
    assert sent == {}
    assert "Sent no metrics of the outbox, since it cannot be read" in caplog.text

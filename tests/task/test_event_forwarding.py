"""Raw events to an OpenLineage backend: neither it nor DataHub waits for the other, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.capture.event_lines import FileFollower
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.drain import Drain
from airflow_provider_spark_datahub.delivery.sink import RawEvent
from airflow_provider_spark_datahub.hooks.datahub import open_sink
from airflow_provider_spark_datahub.operators.task_lineage import LineagePendingError
from airflow_provider_spark_datahub.task.job_events import RawEvents
from tests.cli.commands import run as command
from tests.delivery.outboxes import Recording, key, outbox_at, receipts_in
from tests.operators.tries import CORPUS, FakeSpark, operator_with_lineage, report_of, run_try
from tests.servers.openlineage import Backend
from tests.servers.process import closed_port

# Seconds for lineage: more than a busy machine needs. A server that is down refuses at once.
ENOUGH = 60
CASE = "a_csv_join_agg"
RUN_IDS = [json.loads(line)["run"]["runId"] for line in (CORPUS / f"{CASE}.ndjson").read_text().splitlines()]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    with Backend() as backend:
        connect(monkeypatch, backend.url)
        yield backend


def connect(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MARQUEZ", json.dumps({"conn_type": "openlineage", "host": url}))


def forwarding(spark: FakeSpark, number: int = 1, **more: Any) -> dict[str, Any]:
    """Return the report of one attempt."""
    return run_try(
        spark, number, **{"max_tries": 5, "openlineage_conn_id": "marquez", "lineage_timeout": ENOUGH, **more}
    )


def forwarded(backend: Backend) -> list[str]:
    return [event["run"]["runId"] for event in backend.events]


def test_datahub_gets_proposals_and_the_backend_raw_events(spark: FakeSpark, backend: Backend, tmp_path: Path) -> None:
    spark.writes(CASE)
    report = forwarding(spark)
    assert forwarded(backend) == RUN_IDS
    assert (report["forwarded"], report["pending"], report["warnings"]) == (len(RUN_IDS), 0, [])
    assert (tmp_path / "sink" / "lineage.jsonl").exists()
    assert report["events_file"] is None
    assert list(outbox_at(tmp_path / "outbox").names()) == []


@pytest.mark.parametrize("datahub_is_down", [False, True])
def test_the_event_file_is_read_once(
    spark: FakeSpark, backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, datahub_is_down: bool
) -> None:
    reads: list[FileFollower[bytes]] = []
    real = FileFollower.rest

    def counted(self: FileFollower[bytes], deadline: Any) -> Iterator[bytes]:
        reads.append(self)
        return real(self, deadline)

    monkeypatch.setattr(FileFollower, "rest", counted)
    spark.writes(CASE)
    if datahub_is_down:
        (tmp_path / "sink").write_text("in the way")
    report = forwarding(spark)
    assert forwarded(backend) == RUN_IDS
    assert len(reads) == 1
    kept = list((tmp_path / "outbox").rglob("*.events.ndjson.gz"))
    assert len(kept) == datahub_is_down == bool(report["pending"])
    assert [path.read_bytes() for path in kept] == [
        RawEvents.read(CORPUS / f"{CASE}.ndjson", Deadline.after(60.0)).compressed() for _ in kept
    ]


def test_without_a_backend_nothing_is_forwarded(spark: FakeSpark, tmp_path: Path) -> None:
    spark.writes(CASE)
    assert report_of(operator_with_lineage(spark))["forwarded"] is None
    assert [one.connection_id for one in receipts_in(outbox_at(tmp_path / "outbox"))] == ["datahub_file"]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["warn", "retry", "fail"])
def test_a_backend_that_is_down_fails_no_task_and_loses_nothing(
    policy: str, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark.writes(CASE)
    connect(monkeypatch, f"http://127.0.0.1:{closed_port()}")
    report = forwarding(spark, lineage_on_failure=policy)
    assert (report["pending"], report["forwarded"], report["events_file"]) == (0, 0, None)
    (warning,) = report["warnings"]
    assert warning.startswith(
        "OpenLineage backend (marquez): events are pending in the outbox: the OpenLineage backend at "
    )
    with Backend() as backend:
        connect(monkeypatch, backend.url)
        assert command("emit", "--outbox", tmp_path / "outbox").exit_code == 0
        assert forwarded(backend) == RUN_IDS


@pytest.mark.slow
def test_pending_events_do_not_keep_spark_from_running(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only an attempt that failed for its lineage is followed by one that does not run Spark."""
    spark.writes(CASE)
    connect(monkeypatch, f"http://127.0.0.1:{closed_port()}")
    obstacle = tmp_path / "sink"
    obstacle.write_text("in the way")
    with pytest.raises(LineagePendingError):
        forwarding(spark, 1, lineage_on_failure="retry")
    obstacle.unlink()
    assert forwarding(spark, 2, lineage_on_failure="retry")["pending"] == 0
    assert len(spark.runs) == 1
    with Backend() as backend:
        connect(monkeypatch, backend.url)
        forwarding(spark, 3, lineage_on_failure="retry")
        assert forwarded(backend) == [*RUN_IDS, *RUN_IDS]
    assert len(spark.runs) == 2


def test_the_event_file_stays_if_the_outbox_is_full(
    spark: FakeSpark, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.writes(CASE)
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_MAX_BYTES", "1000")
    report = forwarding(spark)
    assert Path(report["events_file"]).is_file()
    assert any("OpenLineage backend (marquez): the events stay in" in warning for warning in report["warnings"])
    assert backend.events == []


def test_another_connection_to_datahub_gets_no_raw_events(backend: Backend, tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path / "outbox")
    event = RawEvent.from_json(b'{"run": {"runId": "1"}}')
    outbox.put(key(), [event], spark_succeeded=False, connection_id="marquez")
    datahub = Recording()
    drained = Drain(
        outbox, lambda name: (datahub, None) if name == "other" else open_sink(name), connection="other"
    ).run()
    assert (drained.delivered, datahub.arrived, forwarded(backend)) == (1, [], ["1"])

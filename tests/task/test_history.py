"""What attempts leave for comparisons: a fingerprint each, whatever becomes of them."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.conversion.history.changes import Fingerprint
from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.outbox import Histories
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
from airflow_provider_spark_datahub.task.ended import EndedAttempt
from airflow_provider_spark_datahub.task.recovery import recover_entry
from tests.delivery.outboxes import outbox_at
from tests.task.attempts import ENDED, FAILED, Try, entries

CUSTOMERS, ORDERS, REVENUE = (
    f"urn:li:dataset:(urn:li:dataPlatform:file,/lake/{path},PROD)"
    for path in ("raw/customers.csv", "raw/orders.csv", "out/a/revenue_by_country")
)


def ends(one: Try, end: object = ENDED) -> list[str]:
    """Let an attempt end, and return what it says that changed."""
    ended = EndedAttempt(one.lineage, end, one.running)  # type: ignore[arg-type]
    ended.finish()
    ended.compare()
    return one.lineage.report.changes


def kept(folder: Path) -> list[Fingerprint]:
    return list(Histories(outbox_at(folder / "outbox").storage).all())


def test_an_attempt_is_compared_with_the_last_green_run(tmp_path: Path) -> None:
    first = Try(tmp_path, run_id="r1")
    first.job_writes("a_csv_join_agg")
    assert ends(first) == []
    (record,) = kept(tmp_path)
    assert record.succeeded
    assert set(record.inputs) == {CUSTOMERS, ORDERS}
    assert record.inputs[ORDERS].columns
    assert (set(record.outputs), record.code["the OpenLineage jar"]) == ({REVENUE}, "1.53.0")
    second = Try(tmp_path, run_id="r2")
    file = second.job_writes("a_csv_join_agg")
    file.write_bytes(file.read_bytes().replace(b"raw/customers.csv", b"raw/people.csv"))
    later = replace(ENDED, end_ms=ENDED.end_ms + 1000)
    lines = [line.partition(" UTC: ")[2] for line in ends(second, later)]
    assert lines == [
        "reads /lake/raw/customers.csv no longer",
        "reads /lake/raw/people.csv, which no earlier green run did",
    ]
    assert [one.key.run_id for one in kept(tmp_path)] == ["r2", "r1"]


def test_a_failed_attempt_keeps_what_the_driver_said_and_is_no_green_run(tmp_path: Path) -> None:
    for run_id in ("r1", "r2"):
        failed = Try(tmp_path, run_id=run_id)
        failed.job_writes("a_csv_join_agg")
        failed.lineage.driver_output.last_line = "Path does not exist: password=secret1"
        assert ends(failed, replace(FAILED, failure="exit code 1")) == []
    records = kept(tmp_path)
    assert [(one.succeeded, "Path does not exist" in one.failure) for one in records] == [
        (False, True)
    ] * 2
    assert "secret1" not in records[0].failure


def test_a_job_without_lineage_is_not_compared_with(tmp_path: Path) -> None:
    one = Try(tmp_path)
    one.job_writes(b"")
    assert ends(one) == []
    assert kept(tmp_path) == []


def test_the_history_of_an_attempt_that_only_a_drain_converts_is_kept(tmp_path: Path) -> None:
    killed = Try(tmp_path)
    killed.job_writes("a_csv_join_agg")
    (entry,) = entries(tmp_path)
    assert recover_entry(entry, Deadline.after(60.0), over=True, result="SUCCESS") is not None
    (record,) = kept(tmp_path)
    assert (record.key.try_number, set(record.outputs)) == (1, {REVENUE})


def test_a_disk_that_refuses_the_history_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Try(tmp_path)
    one.job_writes("a_csv_join_agg")
    write = LocalStorage.write

    def refuse(storage: LocalStorage, name: str, *args: object, **options: object) -> None:
        if name.startswith("history/"):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(storage, name, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalStorage, "write", refuse)
    assert ends(one) == []
    assert one.lineage.report.is_complete
    assert kept(tmp_path) == []

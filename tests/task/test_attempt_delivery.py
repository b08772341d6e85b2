"""Delivery of an attempt's lineage, and of what earlier attempts left."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery.deadline import _LEAST_SECONDS, Deadline
from airflow_provider_spark_datahub.delivery.outbox.entries import OutboxLimits
from airflow_provider_spark_datahub.task.earlier import SucceededAttempt
from airflow_provider_spark_datahub.task.recovery import unawaited_events
from tests.cases import cases
from tests.delivery.outboxes import Recording, outbox_at
from tests.task.attempts import FAILED, Try, entries


def test_undelivered_proposals_stay_in_the_outbox(one: Try, tmp_path: Path) -> None:
    path = one.job_writes("a_csv_join_agg")
    one.sink_folder.touch()
    report = one.finish()
    assert (report.delivered, report.pending, report.stored) == (0, report.proposals, None)
    assert f"Cannot write to the folder {one.sink_folder}: Not a directory" in str(report.reason)
    assert not report.is_complete
    assert path.is_file()
    (entry,) = entries(tmp_path)
    assert report.outbox_entry == str(entry)
    assert len(entry.items()) == report.proposals
    assert (entry.manifest.spark_succeeded, entry.manifest.connection_id) == (True, "datahub_file")
    assert f"{report.pending} pending (datahub_file). Note: Cannot write" in report.sentence


def test_lineage_is_delivered_without_an_outbox(one: Try, tmp_path: Path) -> None:
    (tmp_path / "outbox").write_text("in the way")
    path = one.job_writes("a_csv_join_agg")
    report = one.finish()
    assert (report.delivered, report.pending) == (report.proposals, 0)
    assert len(one.delivered) == report.proposals
    assert any(
        warning.startswith("not kept in the outbox before the delivery: ")
        for warning in report.warnings
    )
    assert not path.exists()


@pytest.mark.parametrize("ended", [True, False])
def test_events_of_an_attempt_that_neither_outbox_nor_sink_takes_stay_and_are_named(
    tmp_path: Path, ended: bool
) -> None:
    """The outbox is full from before the submit on, and the sink is down; the task is killed or
    not.
    """
    one = Try(tmp_path, options={"outbox_limits": OutboxLimits(max_bytes=1)})
    path = one.job_writes("a_csv_join_agg")
    one.sink_folder.touch()
    if ended:
        report = one.finish()
        assert (report.delivered, report.pending) == (0, report.proposals)
        assert any(
            "is full" in warning and "outbox_max_bytes" in warning for warning in report.warnings
        )
        assert (report.outbox_entry, report.events_file) == (None, str(path))
    assert path.is_file()
    assert entries(tmp_path) == []
    outbox = outbox_at(tmp_path / "outbox", events_folder=tmp_path / "events")
    assert unawaited_events(outbox) == [str(path)]


def test_earlier_lineage_is_delivered_while_the_next_job_runs(tmp_path: Path) -> None:
    first, second = Try(tmp_path, 1), Try(tmp_path, 2)
    first.job_writes("c_fail_midway")
    first.sink_folder.touch()
    first.finish(replace(FAILED, result="UP_FOR_RETRY"))
    first.sink_folder.unlink()
    second.inject()
    second.running.announce()
    assert second.attempts == [(1, "STARTED"), (1, "UP_FOR_RETRY"), (2, "STARTED")]
    (own,) = entries(tmp_path)
    assert (own.manifest.state, own.name.try_number) == ("unfinished", 2)


def test_a_pending_earlier_attempt_holds_up_a_later_one(tmp_path: Path) -> None:
    sink = Recording(lambda proposal: '"attempt": 1' in json.dumps(proposal.to_obj()))
    first, second = Try(tmp_path, 1, sink=sink), Try(tmp_path, 2, sink=sink)
    first.job_writes("c_fail_midway")
    first.finish(replace(FAILED, result="UP_FOR_RETRY"))
    second.job_writes("a_csv_join_agg")
    report = second.finish()
    assert (report.delivered, report.pending) == (0, report.proposals)
    assert "the lineage of an earlier attempt goes first, and is pending" in str(report.reason)
    assert not any('"attempt": 2' in json.dumps(proposal.to_obj()) for proposal in sink.arrived)
    first_entry, second_entry = entries(tmp_path)
    assert (first_entry.name.try_number, second_entry.name.try_number) == (1, 2)
    assert report.outbox_entry == str(second_entry)


def test_rejections_are_one_line_with_a_count(tmp_path: Path) -> None:
    one = Try(tmp_path, sink=Recording(rejects="no such aspect"))
    path = one.job_writes("a_csv_join_agg")
    report = one.finish()
    assert (report.rejected, report.pending, report.is_complete) == (report.proposals, 0, True)
    assert path.is_file(), "a corrected converter may need it"
    assert unawaited_events(outbox_at(tmp_path / "outbox", events_folder=tmp_path / "events")) == []
    (warning,) = report.warnings
    count = f"{report.rejected} proposals were rejected, and kept in the outbox's quarantine: {report.rejected} times "
    assert warning.startswith(f"{count}no such aspect (e.g. ")


def retrying(tmp_path: Path, number: int) -> Try:
    return Try(tmp_path, number, options={"on_failure": "retry"})


@pytest.mark.slow
def test_a_slow_disk_does_not_keep_an_attempt_from_failing_for_its_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then, the time for lineage is over: the server that took none of it used it up."""
    first = retrying(tmp_path, 1)
    first.job_writes("a_csv_join_agg")
    first.sink_folder.touch()
    first.finish()
    first.lineage.earlier._outbox.deadline = Deadline.after(0)
    sync = os.fsync

    def slowly(descriptor: int) -> None:
        time.sleep(_LEAST_SECONDS + 0.2)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slowly)
    first.lineage.earlier.leave_to_retry([])
    assert retrying(tmp_path, 2).lineage.earlier.to_deliver(None) == SucceededAttempt(1, [])


@cases("task")
def test_the_tasks_state_names_the_attempt_whose_lineage_is_delivered(
    tmp_path: Path, remembered: object, number: int, awaited: int | None
) -> None:
    found = retrying(tmp_path, number).lineage.earlier.to_deliver(remembered)
    assert (found.try_number if found else None) == awaited

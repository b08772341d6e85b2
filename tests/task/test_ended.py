"""The end of an attempt: events become delivered lineage, or the report says why not."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.capture import SparkSubmit
from airflow_provider_spark_datahub.capture.spark_submit import Submission
from airflow_provider_spark_datahub.conversion.run_tree import AttemptResult, TaskAttempt
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.drain import DrainLimits
from airflow_provider_spark_datahub.delivery.outbox.entries import OutboxLimits
from airflow_provider_spark_datahub.task import delivery, earlier, recovery, submitted
from airflow_provider_spark_datahub.task.job_events import JobEvents
from airflow_provider_spark_datahub.task.recovery import recover_entry
from airflow_provider_spark_datahub.task.report import LineageReport
from tests.cases import cases
from tests.conversion.builders import query, whole_application
from tests.delivery.outboxes import outbox_at
from tests.operators.tries import CORPUS
from tests.oracles.strict import canonical_violations
from tests.patience import HANGS, hanging_disk, not_outlasting, wait_until
from tests.task.attempts import ENDED, FAILED, JOB, PARENT, ROOT, Try, entries, files_below


def test_events_that_a_driver_elsewhere_left_on_its_own_disk_are_reported_as_missing(
    tmp_path: Path,
) -> None:
    one = Try(tmp_path, options={"openlineage_jar": "provided"})
    elsewhere = SparkSubmit(binary=None, env={}, local_driver=False)
    one.lineage.inject([Submission()], elsewhere, PARENT, ROOT)
    file = one.lineage.report.events_file
    assert one.finish().reason == (
        f"there is no event file: the driver ran on another machine, and its {file} is not on this one, or the "
        "OpenLineage listener did not run there: set events_location to a folder that both share, or to an "
        "address in S3"
    )


def test_the_folder_of_a_job_that_has_just_begun_stays_when_another_attempt_ends(
    tmp_path: Path,
) -> None:
    """OpenLineage makes the folder once, before its first event: if it is gone then, all events of
    the job are lost.
    """
    ending, beginning = Try(tmp_path, number=1), Try(tmp_path, number=2)
    ending.job_writes("a_csv_join_agg")
    path = Path(beginning.inject()["spark.openlineage.transport.location"])
    ending.finish()
    path.write_bytes((CORPUS / "a_csv_join_agg.ndjson").read_bytes())
    assert beginning.finish().events == 23
    assert not list((tmp_path / "events").iterdir())


def test_everything_is_delivered_and_nothing_is_left(one: Try, tmp_path: Path) -> None:
    one.job_writes("a_csv_join_agg")
    report = one.finish()
    prefix = "urn:li:dataset:(urn:li:dataPlatform:file,/lake"
    expected = LineageReport(
        connection="datahub_file",
        events=23,
        jobs=[JOB],
        inputs=[f"{prefix}/raw/customers.csv,PROD)", f"{prefix}/raw/orders.csv,PROD)"],
        outputs=[f"{prefix}/out/a/revenue_by_country,PROD)"],
        proposals=len(one.delivered),
        delivered=len(one.delivered),
        stored=True,
    )
    assert report.seconds > 0
    report.seconds = 0.0
    assert report == expected
    assert [canonical_violations(proposal) for proposal in one.delivered] == [[]] * report.proposals
    assert not list((tmp_path / "events").iterdir())
    assert entries(tmp_path) == []


def test_edges_are_only_added_if_the_driver_printed_that_it_dropped_events(one: Try) -> None:
    one.job_writes("a_csv_join_agg")
    line = "WARN AsyncEventQueue: Dropped 9 events from shared since the application started.\n"
    assert list(one.lineage.driver_output.watched([line])) == [line]
    (warning,) = one.finish().warnings
    assert warning.startswith("Spark's event bus dropped events (shared), so that edges are only")
    edges = [each for each in one.delivered if each["aspectName"] == "dataJobInputOutput"]
    of_spark = {each["changeType"] for each in edges if ":(spark," in each["entityUrn"]}
    assert of_spark == {"PATCH"}


def test_every_step_is_logged_for_debugging(one: Try, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="airflow_provider_spark_datahub"):
        path = one.job_writes("a_csv_join_agg")
        one.running.announce()
        one.finish()
    expected = [
        "OpenLineage jar: ",
        f"Events go to {path}; properties added: ",
        "Entry begun, ",
        "Announced the attempt: ",
        "The job has ended: Spark succeeded, the task is SUCCESS; 30.0 s for lineage",
        "Entry updated, ",
        f"Collected 23 events, {(CORPUS / 'a_csv_join_agg.ndjson').stat().st_size} bytes, 0 unusable lines in ",
        "Converted to 1 job, 2 inputs, 1 output in ",
        "Made 29 proposals",
        "Entry finished, 29 items in ",
        f"Delivered 29 of 29 items to the folder {one.sink_folder} in ",
        "Entry settled, ",
        f"Removed {path}",
    ]
    messages = [record.getMessage() for record in caplog.records]
    found = [step for message in messages for step in expected if message.startswith(step)]
    assert found == expected
    proposals = [
        message.removeprefix("Proposal: ")
        for message in messages
        if message.startswith("Proposal: ")
    ]
    assert [json.loads(text) for text in proposals] == one.delivered


@pytest.mark.parametrize("fails", [False, True])
def test_the_garbage_collector_runs_again_after_the_end(
    one: Try, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    seen: list[bool] = []

    def deliver(*_: object, **__: object) -> None:
        seen.append(gc.isenabled())
        if fails:
            raise OSError("no")

    monkeypatch.setattr(one.lineage.delivery, "deliver", deliver)
    one.job_writes("a_csv_join_agg")
    with pytest.raises(OSError, match="no") if fails else contextlib.nullcontext():
        one.finish()
    assert (seen, gc.isenabled()) == ([False], True)


def test_only_empty_folders_of_events_are_removed(one: Try, tmp_path: Path) -> None:
    path = one.job_writes("a_csv_join_agg")
    of_another_task = path.parent.parent / "other" / "try1.ndjson"
    of_another_task.parent.mkdir()
    of_another_task.touch()
    one.finish()
    assert files_below(tmp_path / "events") == [of_another_task]
    assert not path.parent.exists()


def test_a_listener_that_did_not_run_is_the_reason(one: Try, tmp_path: Path) -> None:
    one.inject()
    report = one.finish()
    assert (report.events, report.inputs, report.jobs) == (0, [], [])
    assert str(report.reason).startswith(
        "there is no event file: the OpenLineage listener did not run"
    )
    assert str(tmp_path / "events" / "shop") in str(report.reason)
    assert report.delivered == report.proposals > 0


@cases("task")
def test_an_event_file_without_a_usable_event_is_the_reason(
    one: Try, content: str, reason: str
) -> None:
    one.job_writes(content.encode())
    report = one.finish()
    assert str(report.reason).startswith(reason)
    assert report.jobs == []
    assert f"No lineage: {reason}" in report.sentence


def test_a_query_whose_table_openlineage_does_not_name_is_the_reason(one: Try) -> None:
    wrote = query(job="shop.append_data.ice_sales_orders")
    one.job_writes("".join(f"{json.dumps(event)}\n" for event in whole_application(wrote)).encode())
    report = one.finish()
    assert "does not name the tables that these queries wrote" in str(report.reason)
    assert "append_data.ice_sales_orders" in report.sentence


def test_an_event_file_that_cannot_be_removed_is_a_warning(
    one: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one.job_writes("a_csv_join_agg")

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self), missing_ok)

    real = Path.unlink
    monkeypatch.setattr(
        Path,
        "unlink",
        lambda self, missing_ok=False: (refuse if self == path else real)(self, missing_ok),
    )
    report = one.finish()
    assert (report.pending, report.events_file) == (0, str(path))
    assert report.warnings == [f"cannot remove the event file {path}: Permission denied"]


def drain(one: Try, result: AttemptResult) -> None:
    """Drain the outbox after Airflow is done with the attempt."""
    connections = replace(one.lineage.connections, final_result=lambda _: result)
    recovery.drain(outbox_at(one.folder / "outbox"), connections, DrainLimits()).run()


@pytest.mark.slow
@cases("task")
def test_a_disk_that_hangs_at_the_end_does_not_outlast_the_budget(
    one: Try,
    steps: list[str] | None,
    seconds: float,
    sink_is_down: bool,
    said: str,
    states: list[str],
) -> None:
    """The events stay: whoever finds an entry that is not converted needs them."""
    path = one.job_writes("a_csv_join_agg")
    if sink_is_down:
        one.sink_folder.touch()
    with (
        hanging_disk(path, steps) if steps else hanging_disk(one.folder / "outbox"),
        not_outlasting(seconds),
    ):
        report = one.finish(replace(ENDED, seconds=seconds))
        assert path.is_file()
    assert said.replace("PATH", str(path)) in " ".join([*report.warnings, str(report.reason)])
    assert report.events_file == str(path)
    left = entries(one.folder)
    assert [entry.manifest.state for entry in left] == states
    assert (report.outbox_entry is not None) is bool(left)
    assert report.pending == (report.proposals if sink_is_down else 0)
    assert report.is_complete is (not report.failed and not sink_is_down)
    for entry in left:
        recovered = recover_entry(entry, Deadline.after(60.0), over=True)
        assert recovered is not None
        # An entry that was passed over does not know that the job succeeded: its edges are added,
        # to a DataJob of the output, which has three aspects.
        of_output = 0 if report.failed else 3
        assert recovered.manifest.pending == 29 + of_output


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["warn", "retry"])
def test_a_submit_waits_only_a_moment_for_an_outbox_whose_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """The attempt's end tries again. If the attempt is killed before, its event file is named."""
    monkeypatch.setattr(delivery, "_BEGIN_SECONDS", 0.2)
    monkeypatch.setattr(earlier, "_LOOK_SECONDS", 0.2)
    one = Try(tmp_path, 2, options={"on_failure": policy})
    with hanging_disk(tmp_path / "outbox") as asked, not_outlasting(2.0):
        with contextlib.suppress(OSError):
            one.lineage.earlier.warn_of_orphans()
        one.lineage.earlier.to_deliver(None)
        one.job_writes("a_csv_join_agg")
    assert asked
    warnings = " ".join(one.lineage.report.warnings)
    assert "not in the outbox before the submit: " in warnings
    assert "no answer within 0.5 s" in warnings
    outbox = outbox_at(tmp_path / "outbox", events_folder=tmp_path / "events")
    assert recovery.unawaited_events(outbox) == [one.lineage.report.events_file]
    report = one.finish()
    assert (report.is_complete, report.outbox_entry, entries(tmp_path)) == (True, None, [])


@pytest.mark.slow
@pytest.mark.parametrize("drained", [False, True])
def test_an_entry_that_a_slow_disk_made_too_late_is_not_converted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drained: bool
) -> None:
    """Nobody takes it for the entry of an attempt that was killed."""
    monkeypatch.setattr(delivery, "_BEGIN_SECONDS", 0.2)
    one = Try(tmp_path)
    with hanging_disk(tmp_path / "outbox/pending", ["replace"]):
        one.job_writes("a_csv_join_agg")
    assert "not in the outbox before the submit: " in one.lineage.report.warnings[0]
    wait_until(lambda: list((tmp_path / "outbox/pending").rglob("*.jsonl")))
    if drained:
        one.sink_folder.touch()
    assert one.finish().is_complete is not drained
    if drained:
        one.sink_folder.unlink()
        monkeypatch.setattr(submitted, "is_gone", lambda *_: True)
        drain(one, "FAILURE")
    assert one.results() == {"SUCCESS"}
    assert entries(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("known", ["SUCCESS", "FAILURE"])
@pytest.mark.parametrize("later_attempt", [False, True])
def test_the_result_of_an_unrecorded_end_is_airflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: AttemptResult, later_attempt: bool
) -> None:
    """Airflow's result is that of the last attempt, so it is not an earlier one's."""
    one = Try(tmp_path)
    one.job_writes("a_csv_join_agg")
    with hanging_disk(tmp_path / "outbox"):
        one.finish(replace(ENDED, seconds=2.0))
    if later_attempt:
        (left,) = (tmp_path / "outbox/pending").rglob("try-*.jsonl")
        left.rename(tmp_path / "left")  # as if its worker's disk were away
        two = Try(tmp_path, 2)
        two.job_writes("a_csv_join_agg")
        two.finish()
        left.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "left").rename(left)
    before = len(one.delivered)
    monkeypatch.setattr(submitted, "is_gone", lambda *_: True)
    monkeypatch.setattr(submitted.UnfinishedAttempt, "runs_here", False)
    drain(one, known)
    assert entries(tmp_path) == []
    assert one.results(since=before) == {"FAILURE" if later_attempt else known}
    assert {each["changeType"] for each in one.aspects("dataJobInputOutput", since=before)} == {
        "PATCH"
    }


@pytest.mark.parametrize("for_good", [False, True])
def test_events_that_cannot_be_read_at_the_moment_are_converted_later(
    one: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_good: bool
) -> None:
    path = one.job_writes("a_csv_join_agg")
    real = os.open

    def fail(of: Any, *arguments: Any, **options: Any) -> int:
        if os.fspath(of) == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(of))
        return real(of, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        report = one.finish()
        (entry,) = entries(tmp_path)
        with pytest.raises(OSError, match="cannot be read at the moment"):
            recover_entry(entry, Deadline.after(HANGS))
        assert (report.failed, report.delivered, entry.manifest.state) == (True, 0, "unfinished")
        assert f"{path}: Input/output error" in str(report.reason)
        if for_good:  # in the end, the attempt has its place in the run tree
            entry.outbox.limits = OutboxLimits(max_age=0.0)
            recover_entry(entry, Deadline.after(HANGS))
    if not for_good:
        recover_entry(entry, Deadline.after(HANGS))
    (recovered,) = entries(tmp_path)
    assert recovered.manifest.state == "pending"
    urns = {item.entity_urn for item in recovered.items()}
    assert (JOB in urns) is not for_good
    assert path.is_file()


def test_the_events_before_a_torn_line_make_edges_that_are_only_added(one: Try) -> None:
    content = (CORPUS / "a_csv_join_agg.ndjson").read_bytes()
    one.job_writes(content[:-100])
    report = one.finish(FAILED)
    assert (report.events, report.bad_events) == (22, 1)
    assert any("cut off" in warning for warning in report.warnings)
    assert report.has_lineage
    (io,) = one.aspects("dataJobInputOutput", JOB)
    assert io["changeType"] == "PATCH"


def test_a_file_of_bad_lines_alone_does_not_count_as_empty(one: Try) -> None:
    path = one.job_writes(b"no json\n[]\n")
    report = one.finish()
    assert (report.events, report.bad_events) == (0, 2)
    reason = str(report.reason)
    assert reason.startswith(f"no line of the events can be used: {path}, line 1: not valid JSON")
    assert reason.endswith(", and 1 other line is unusable")
    assert path.is_file()


def test_events_that_there_is_no_time_to_read_are_left_to_a_drain(one: Try, tmp_path: Path) -> None:
    path = one.job_writes("a_csv_join_agg")
    report = one.finish(replace(ENDED, seconds=0.0))
    assert (report.events, report.delivered, report.pending) == (0, 0, report.proposals)
    assert "the time for reading events was used up" in str(report.reason)
    assert path.is_file()
    assert len(files_below(tmp_path / "outbox/pending")) == 1


@pytest.mark.slow
def test_proposals_that_there_is_no_time_to_deliver_stay_in_the_outbox(
    one: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proposals of a huge job are made just in time: they are kept, and not even read again."""
    made = JobEvents.lineage_in_time

    def just_in_time(self: JobEvents, succeeded: bool, attempt: TaskAttempt, _: Deadline) -> Any:
        lineage = made(self, succeeded, attempt, Deadline.after(HANGS))
        time.sleep(2.0)
        return lineage

    monkeypatch.setattr(JobEvents, "lineage_in_time", just_in_time)
    one.job_writes("a_csv_join_agg")
    report = one.finish(replace(ENDED, seconds=2.0))
    assert (report.delivered, report.pending) == (0, report.proposals)
    assert "the time for lineage was over before its delivery" in str(report.reason)
    assert [entry.manifest.pending for entry in entries(tmp_path)] == [report.proposals]


def test_a_job_without_the_listener_has_its_task_run_and_the_reason(one: Try) -> None:
    one.lineage.run_without_lineage("the jar is missing")
    report = one.finish()
    assert report.reason == "the jar is missing"
    assert report.events_file is None
    assert {"type": "SUCCESS", "nativeResultType": "airflow"} in [
        event.get("result") for event in one.run_events()
    ]
    assert one.aspects("dataJobInputOutput") == []

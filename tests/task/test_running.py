"""Lineage of a job while it runs: its events come bit by bit, its lineage goes to a real file."""

from __future__ import annotations

import gzip
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.conversion.convert import Converter
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox import Histories
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Sink
from airflow_provider_spark_datahub.task import EndedAttempt, LineageReport, job_events
from tests.conversion.pairs import Catalog
from tests.delivery.outboxes import Recording, outbox_at
from tests.delivery.samples import delivered_text
from tests.operators.tries import CORPUS
from tests.oracles.strict import canonical_violations
from tests.patience import HANGS, wait_until
from tests.task.attempts import ENDED, FAILED, JOB, Try, aspects

PERIOD = 0.02
CASE = "a_csv_join_agg"
LINES = (CORPUS / f"{CASE}.ndjson").read_bytes().splitlines(keepends=True)
UNTIL_ITS_END = 22
"""Number of its events that name everything that it read and wrote, but not its end."""
READ = {
    f"urn:li:dataset:(urn:li:dataPlatform:file,/lake/raw/{name}.csv,PROD)"
    for name in ("customers", "orders")
}
WRITTEN = {"urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/a/revenue_by_country,PROD)"}
OUTPUT_JOB = f"{JOB[:-1]}.file./lake/out/a/revenue_by_country)"
"""DataJob of what it wrote, which has the edges until it is over."""

Json = dict[str, Any]


def job(folder: Path, sink: Sink | None = None, **options: Any) -> Try:
    return Try(folder, options={"emit_periodically": PERIOD, **options}, sink=sink)


class Job:
    """The job of an attempt, which writes events on request."""

    def __init__(self, one: Try) -> None:
        self._path = one.job_writes(b"")

    def writes(self, lines: list[bytes]) -> None:
        with self._path.open("ab") as stream:
            stream.write(b"".join(lines))


@contextmanager
def followed(one: Try) -> Iterator[Job]:
    """Follow the try's job from its beginning; it is over when the try is finished, or at the
    block's end.
    """
    running = Job(one)
    thread = threading.Thread(target=one.running.follow, name="lineage-of-running-job", daemon=True)
    thread.start()
    try:
        yield running
    finally:
        one.running.stop()


def followed_to_its_end(one: Try, until: Callable[[], object] | None = None) -> LineageReport:
    """Follow the try's job until what it wrote first is delivered, and return the report at its
    end.

    :param until: waited for instead.
    """
    with followed(one) as running:
        running.writes(LINES[:UNTIL_ITS_END])
        wait_until(until or (lambda: one.delivered))
        running.writes(LINES[UNTIL_ITS_END:])
        return one.finish()


def patched_edges(proposals: list[Json], urn: str, field: str) -> set[str]:
    """Return the datasets that patches of a DataJob add."""
    return {
        operation["value"]["destinationUrn"]
        for patch in aspects(proposals, "dataJobInputOutput", urn)
        for operation in json.loads(patch["aspect"]["value"])
        if operation["path"].startswith(f"/{field}/")
    }


def test_without_a_sink_nothing_is_announced(tmp_path: Path) -> None:
    one = Try(tmp_path, sink_problem="connection 'x' cannot be used")
    one.running.announce()
    assert not one.sink_folder.exists()


# -- while the job runs


def test_lineage_is_there_before_the_end_of_the_job(tmp_path: Path) -> None:
    one = job(tmp_path)
    with followed(one) as running:
        running.writes(LINES[:UNTIL_ITS_END])
        wait_until(lambda: patched_edges(one.delivered, OUTPUT_JOB, "outputDatasetEdges"))
        early = one.delivered
        assert patched_edges(early, OUTPUT_JOB, "inputDatasetEdges") == READ
        assert patched_edges(early, OUTPUT_JOB, "outputDatasetEdges") == WRITTEN
        assert {event["status"] for event in one.run_events()} == {"STARTED"}
        assert [canonical_violations(each) for each in early] == [[]] * len(early)
        running.writes(LINES[UNTIL_ITS_END:])
        report = one.finish()
    assert (report.events, report.pending, set(report.inputs), set(report.outputs)) == (
        23,
        0,
        READ,
        WRITTEN,
    )
    runs = {each["entityUrn"] for each in one.aspects("dataProcessInstanceOutput")}
    assert len(runs) == 2, "the task's and Spark's, each time the same"
    catalog = Catalog()
    catalog.apply(map(Proposal.from_obj, one.delivered))
    assert catalog.pairs() == {(read, written) for read in READ for written in WRITTEN}
    assert catalog.jobs[JOB].outputs == WRITTEN
    assert catalog.removed == {OUTPUT_JOB}, "the end does not have it"
    assert not list((tmp_path / "events").iterdir())


@pytest.mark.slow
def test_nothing_is_delivered_without_new_events(tmp_path: Path) -> None:
    one = job(tmp_path)
    with followed(one) as running:
        running.writes(LINES[:UNTIL_ITS_END])
        wait_until(lambda: one.delivered)
        time.sleep(PERIOD * 3)
        before = len(one.delivered)
        time.sleep(PERIOD * 10)
        assert len(one.delivered) == before


def test_without_coalesce_jobs_each_event_is_delivered_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events, "_MAX_SINGLE_EVENTS", 3)
    one = job(tmp_path, settings=LineageSettings(coalesce_jobs=False))
    query = f"{JOB[:-1]}.{CASE}.adaptive_spark_plan.a_revenue_by_country)"
    report = followed_to_its_end(one, lambda: one.aspects("dataJobInfo", query))
    assert (report.events, report.pending, set(report.outputs)) == (23, 0, WRITTEN)
    alone = Try(tmp_path / "alone", options={"settings": LineageSettings(coalesce_jobs=False)})
    alone.folder.mkdir()
    alone.job_writes(CASE)
    alone.finish()
    assert one.delivered[-report.proposals :] == alone.delivered


def renaming_job(folder: Path) -> tuple[list[Json], Json, int]:
    """Follow a job that renames a table after its first events were delivered, and fails then."""
    lines = gzip.decompress(
        (CORPUS.parents[1] / "more_jobs/events/drop_rename-4.3.0.ndjson.gz").read_bytes()
    )
    events = lines.splitlines(keepends=True)
    one = job(folder)
    with followed(one) as running:
        running.writes(events[:28])
        wait_until(lambda: "orders_new" in delivered_text(one.sink_folder))
        time.sleep(PERIOD * 3)
        running.writes(events[28:])
        report = one.finish(FAILED)
    return one.delivered, report.to_obj(), len(one.delivered) - report.proposals


def test_a_table_that_was_renamed_after_its_delivery_is_removed(tmp_path: Path) -> None:
    delivered, report, before = renaming_job(tmp_path)
    added, removed = set[tuple[str, str]](), set[tuple[str, str]]()
    for number, patch in enumerate(delivered):
        if patch["aspectName"] == "dataJobInputOutput":
            assert patch["changeType"] == "PATCH"
            for operation in json.loads(patch["aspect"]["value"]):
                if "/outputDatasetEdges/" in operation["path"]:
                    assert operation["op"] == "add" or number >= before
                    edge = patch["entityUrn"], operation["path"]
                    (added.add if operation["op"] == "add" else removed.add)(edge)
    assert {path.rpartition(",")[0].rpartition(",")[2] for _, path in removed} == {
        "swap.orders_new"
    }
    assert len(removed) == 2, "of Spark's job and of the task"
    assert removed < added
    assert report["pending"] == 0
    assert {urn.rpartition(",")[0].rpartition(",")[2] for urn in report["outputs"]} >= {
        "swap.orders"
    }


def test_a_job_whose_events_are_incomplete_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events, "_MAX_KEPT_RUNS", 2)
    monkeypatch.setattr(job_events, "_READ_AGAIN_BYTES", 1000)
    delivered, _, _ = renaming_job(tmp_path)
    operations = [
        operation["op"]
        for each in aspects(delivered, "dataJobInputOutput")
        for operation in json.loads(each["aspect"]["value"])
    ]
    assert set(operations) == {"add"}


# -- bounds


def test_a_long_job_forgets_queries_and_the_end_still_reports_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events, "_MAX_KEPT_RUNS", 2)
    forgotten: list[int] = []
    forget = Converter.discard_reported

    def forget_and_count(self: Converter, *, with_log: bool = False) -> None:
        forget(self, with_log=with_log)
        forgotten.append(self.run_count)

    monkeypatch.setattr(Converter, "discard_reported", forget_and_count)
    one = job(tmp_path)
    report = followed_to_its_end(one, lambda: forgotten)
    assert min(forgotten) <= 2
    assert (report.events, set(report.inputs), set(report.outputs)) == (23, READ, WRITTEN)
    (whole,) = one.aspects("dataJobInputOutput", JOB, since=-report.proposals)
    assert whole["changeType"] == "UPSERT"


def test_queries_that_were_not_delivered_are_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events, "_MAX_KEPT_RUNS", 2)
    sink = Recording(lambda _: True)
    one = job(tmp_path, sink=sink)
    with followed(one) as running:
        running.writes(LINES[:UNTIL_ITS_END])
        wait_until(lambda: sink.calls > 2)
        one.running.stop()
        events = one.running.hand_over(Deadline.after(10.0))
    assert events is not None
    assert events._converter.run_count > 2


def test_a_huge_file_is_not_read_again_if_queries_were_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_events, "_MAX_KEPT_RUNS", 2)
    monkeypatch.setattr(job_events, "_READ_AGAIN_BYTES", 1000)
    one = job(tmp_path)
    with followed(one) as running:
        running.writes(LINES[:UNTIL_ITS_END])
        wait_until(lambda: patched_edges(one.delivered, OUTPUT_JOB, "outputDatasetEdges"))
        time.sleep(PERIOD * 3)
        running.writes(LINES[UNTIL_ITS_END:])
        ended = EndedAttempt(one.lineage, ENDED, one.running)
        report = ended.finish()
    assert report.events == 23
    ended.compare()
    (record,) = Histories(outbox_at(tmp_path / "outbox").storage).all()
    assert (set(record.inputs), set(record.outputs)) == (READ, WRITTEN), "the forgotten ones, too"
    last = one.aspects("dataJobInputOutput", OUTPUT_JOB, since=-report.proposals)
    assert {each["changeType"] for each in last} <= {"PATCH"}, "earlier deliveries stay"
    results = [event.get("result") for event in one.run_events()]
    assert {"type": "SUCCESS", "nativeResultType": "COMPLETE"} in results


# -- a destination that does not work


def test_undelivered_proposals_are_delivered_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Recording(lambda _: True)
    one = job(tmp_path, sink=sink)
    with caplog.at_level(logging.INFO), followed(one) as running:
        running.writes(LINES[:UNTIL_ITS_END])
        wait_until(lambda: sink.calls > 3)
        (entry,) = outbox_at(tmp_path / "outbox").entries()
        assert entry.manifest.state == "unfinished", "the end has everything"
        sink.refuses = lambda _: False
        wait_until(lambda: sink.arrived)
        assert (
            patched_edges(
                [each.to_obj() for each in sink.arrived], OUTPUT_JOB, "outputDatasetEdges"
            )
            == WRITTEN
        )
        running.writes(LINES[UNTIL_ITS_END:])
        report = one.finish()
    assert (report.pending, report.reason) == (0, None)
    messages = [record.getMessage() for record in caplog.records]
    assert len([each for each in messages if "it is full" in each]) == 1, "logged once"
    assert (
        len(
            [
                each
                for each in messages
                if each.startswith("Lineage of the running job: 2 inputs, 1 output;")
            ]
        )
        == 1
    )


class Hanging(Recording):
    """Its first request never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self.ends = threading.Event()

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
        if not self.hangs.is_set():
            self.hangs.set()
            self.ends.wait(HANGS)
            assert deadline.expired, "nothing more may begin"
            return
        super().send(record, deadline)


@pytest.mark.slow
@pytest.mark.parametrize("ends_after", [0.2, None])
def test_the_end_waits_for_a_delivery_that_is_under_way_for_half_of_its_time(
    tmp_path: Path, ends_after: float | None
) -> None:
    """Otherwise something older could be delivered after it, and stay."""
    sink = Hanging()
    one = job(tmp_path, sink=sink)
    with followed(one) as running:
        running.writes(LINES)
        assert sink.hangs.wait(20)
        if ends_after is not None:
            threading.Timer(ends_after, sink.ends.set).start()
        report = one.finish(replace(ENDED, seconds=8.0))
        sink.ends.set()
    assert 0.1 < report.seconds < 8.0
    assert (report.events, report.pending, set(report.outputs)) == (23, 0, WRITTEN)


# -- the log of proposals


def test_a_task_imports_nothing_of_other_launchers_sinks_and_options() -> None:
    """Each module costs every task CPU."""
    program = """if True:
        import sys
        from airflow_provider_spark_datahub.hooks import datahub, storage
        from airflow_provider_spark_datahub.operators import spark_submit
        from airflow_provider_spark_datahub.task import EndedAttempt, RunningAttempt
        print(*sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    own = {
        name.partition(".")[2]
        for name in done.stdout.split()
        if name.startswith("airflow_provider_spark_datahub.")
    }
    assert "conversion.convert" in own
    of_capture = ("capture.child_spark", "capture.class_archive", "capture.connect_session")
    of_conversion = ("conversion.archive", "conversion.runs.hive_sessions", "conversion.spark_log.")
    rarely_used = ("backfill", *of_capture, *of_conversion, "delivery.sinks.", "visualization")
    assert [name for name in own if name.startswith(rarely_used)] == []

"""Records of attempts in the outbox, and when and how their events are converted."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion.run_tree import (
    AirflowSite,
    DagRun,
    TaskAttempt,
    UpstreamTask,
)
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.drain import DrainLimits
from airflow_provider_spark_datahub.delivery.outbox.entries import Entry, OutboxLimits
from airflow_provider_spark_datahub.delivery.outbox.format import EntryFormatError
from airflow_provider_spark_datahub.delivery.sinks.files import FileSink
from airflow_provider_spark_datahub.task import submitted
from airflow_provider_spark_datahub.task.options import Connections
from airflow_provider_spark_datahub.task.recovery import drain, recover_entry
from airflow_provider_spark_datahub.task.submitted import SubmittedJob, UnfinishedAttempt
from tests.delivery.outboxes import key, outbox_at, proposals_in
from tests.delivery.samples import delivered
from tests.operators.tries import CORPUS, START_MS
from tests.task.attempts import Try

EVENTS = CORPUS / "a_csv_join_agg.ndjson"
TRY = TaskAttempt(
    DagRun(AirflowSite("prod", "eu"), "shop", "run"),
    "build",
    1,
    start_ms=START_MS,
    upstream=(UpstreamTask("load"),),
)
SETTINGS = LineageSettings.from_mapping(
    {
        "tags": ["nightly"],
        "path_specs": {"s3": {"lake": {"path_spec_list": ["s3://b/*/{table}"], "env": "DEV"}}},
    }
)
# No process has this id.
GONE = 2**22 + 1


def begun(events_file: Path = EVENTS) -> UnfinishedAttempt:
    return UnfinishedAttempt.begun(TRY, SubmittedJob(SETTINGS, events_file))


def ended() -> UnfinishedAttempt:
    return begun().ended(START_MS + 60_000, "SUCCESS", spark_succeeded=True)


def entry_of(
    folder: Path, record: UnfinishedAttempt | None, limits: OutboxLimits | None = None
) -> Entry:
    redo: dict[str, Any] = record.to_obj() if record else {"x": 1}
    outbox_at(folder, limits).begin(key(), connection_id="datahub", events=str(EVENTS), redo=redo)
    (entry,) = outbox_at(folder, limits).entries()
    return entry


def results(entry: Entry) -> set[str]:
    return {
        proposal.aspect["result"]["type"]
        for proposal in proposals_in(entry)
        if proposal.aspect_name == "dataProcessInstanceRunEvent" and "result" in proposal.aspect
    }


@pytest.mark.parametrize("record", [begun(), ended()])
def test_a_record_is_the_same_after_the_outbox(tmp_path: Path, record: UnfinishedAttempt) -> None:
    assert UnfinishedAttempt.from_obj(entry_of(tmp_path, record).manifest.redo) == record


def test_an_attempt_is_over_if_it_ended_or_its_process_is_gone() -> None:
    assert not begun().is_over
    assert ended().is_over
    assert replace(begun(), process=GONE).is_over
    assert not replace(begun(), process=GONE, machine="another").is_over


def test_an_attempt_with_a_recorded_end_is_converted_with_its_result(tmp_path: Path) -> None:
    entry = recover_entry(entry_of(tmp_path, ended()), Deadline.after(600))
    assert entry is not None
    assert (entry.manifest.state, entry.manifest.spark_succeeded) == ("pending", True)
    assert results(entry) == {"SUCCESS"}
    assert any(
        proposal.aspect_name == "dataJobInputOutput" and proposal.change_type == "UPSERT"
        for proposal in proposals_in(entry)
    )


def test_an_attempt_without_a_recorded_end_is_a_failure_that_only_adds_edges(
    tmp_path: Path,
) -> None:
    entry = recover_entry(entry_of(tmp_path, replace(begun(), process=GONE)), Deadline.after(600))
    assert entry is not None
    assert results(entry) == {"FAILURE"}
    spark_edges = [
        proposal
        for proposal in proposals_in(entry)
        if proposal.aspect_name == "dataJobInputOutput" and "spark" in proposal.entity_urn
    ]
    assert {proposal.change_type for proposal in spark_edges} == {"PATCH"}
    moments = {
        proposal.aspect["timestampMillis"]
        for proposal in proposals_in(entry)
        if "RunEvent" in proposal.aspect_name
    }
    assert round(EVENTS.stat().st_mtime * 1000) in moments


def test_a_running_attempt_is_left_alone(tmp_path: Path) -> None:
    entry = entry_of(tmp_path, begun())
    assert recover_entry(entry, Deadline.after(600)) is None
    assert recover_entry(entry, Deadline.after(600), over=True) is not None


def test_while_its_spark_runs_an_attempt_stays_unfinished_and_later_ones_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end, which comes late, is not the state of the task run: the later attempt has ended
    before.
    """
    orphans = [1]
    monkeypatch.setattr(submitted, "running_submits", lambda *_: orphans)
    outbox, sink = outbox_at(tmp_path), FileSink(tmp_path / "lineage")
    events = [tmp_path / "1.ndjson", tmp_path / "2.ndjson"]
    for file in events:
        file.write_bytes(EVENTS.read_bytes())
    killed, later = (
        replace(begun(events[0]), process=GONE),
        replace(ended(), events_file=str(events[1])),
    )
    assert not killed.is_over
    outbox.begin(key(), connection_id="datahub", events=str(events[0]), redo=killed.to_obj())
    outbox.begin(
        key(try_number=2), connection_id="datahub", events=str(events[1]), redo=later.to_obj()
    )
    connections = Connections(lambda _: (sink, None), lambda *_: outbox, lambda _: "SUCCESS")

    drained = drain(outbox, connections, DrainLimits()).run()
    assert (drained.settled, drained.waiting, drained.problems) == (1, 1, {})
    (left,) = outbox.entries()
    assert (left.name.try_number, left.manifest.state) == (1, "unfinished")

    orphans.clear()
    monkeypatch.setattr(SubmittedJob, "last_written", time.time() + 3600)
    before_s = time.time()
    assert drain(outbox, connections, DrainLimits()).run().settled == 1
    assert outbox.names() == []
    ends = [
        aspect["timestampMillis"]
        for one in delivered(tmp_path / "lineage")
        if one["entityUrn"] == TRY.urn
        and (aspect := one["aspect"]["json"]).get("status") == "COMPLETE"
    ]
    assert len(ends) == 2
    assert ends[1] < before_s * 1000


@pytest.mark.parametrize("event_log", [None, "/logs/of/all"])
def test_only_an_event_log_of_the_jobs_own_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event_log: str | None
) -> None:
    """Else the folder in which a scheduler works, or the logs of all applications, would be walked
    for each entry.
    """
    walked = list[Path]()

    def rglob(folder: Path, _: str) -> list[Path]:
        walked.append(folder)
        return []

    monkeypatch.setattr(Path, "rglob", rglob)
    record = replace(ended(), event_log=event_log, own_event_log=False)
    assert recover_entry(entry_of(tmp_path, record), Deadline.after(600), patient=True) is not None
    assert walked == []


def test_without_time_to_read_the_events_the_entry_stays(tmp_path: Path) -> None:
    assert recover_entry(entry_of(tmp_path, ended()), Deadline.after(0)) is None


def test_events_on_another_machine_are_left_to_it_up_to_the_maximum_age(tmp_path: Path) -> None:
    elsewhere = replace(ended(), machine="another", events_file=str(tmp_path / "not-here"))
    assert recover_entry(entry_of(tmp_path / "a", elsewhere), Deadline.after(600)) is None
    shared = replace(elsewhere, events_file=str(EVENTS))
    assert recover_entry(entry_of(tmp_path / "b", shared), Deadline.after(600)) is not None
    entry = recover_entry(
        entry_of(tmp_path / "c", elsewhere, OutboxLimits(max_age=-1.0)), Deadline.after(600)
    )
    assert entry is not None
    assert results(entry) == {"SUCCESS"}


def test_an_entry_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EntryFormatError, match="holds no record of an attempt"):
        recover_entry(entry_of(tmp_path, None), Deadline.after(600))


def test_a_late_reconnection_has_time_for_the_outbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Try(tmp_path).job_writes("a_csv_join_agg")
    late = Try(tmp_path, 2)
    late.inject()
    late.lineage.delivery._outbox.deadline = Deadline.after(0)
    left: list[float] = []
    update = Entry.update

    def watched(entry: Entry, **fields: Any) -> Entry:
        assert entry.outbox.deadline is not None
        left.append(entry.outbox.deadline.remaining())
        return update(entry, **fields)

    monkeypatch.setattr(Entry, "update", watched)
    late.lineage.reconnect_to(1)
    assert left[0] > 1

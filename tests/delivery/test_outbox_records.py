"""What an outbox knows about attempts: pending, quarantined and delivered proposals."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery import Delivery, Rejection
from airflow_provider_spark_datahub.delivery.outbox import (
    AttemptRecord,
    EntryFilter,
    LocalStorage,
    Manifest,
    OutboxLimits,
    OutboxRecords,
)
from tests.cases import cases
from tests.delivery.outboxes import key, outbox_at, proposals_in, put


def shown(record: AttemptRecord) -> tuple[str, str, int, int]:
    return record.key.task_id, record.state, record.count, len(record.proposals)


def test_each_state_of_an_attempt_is_a_record_with_its_proposals(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    entry = put(outbox, key(1), 3)
    first, second, third = proposals_in(entry)
    left = entry.settle(Delivery(1, (Rejection(second, "no such aspect"),), (third,), ""), [first, second, third])
    assert left is not None
    records = OutboxRecords(outbox)
    states = {record.state: record for record in records.of([key(7)])}
    assert {state: record.proposals for state, record in states.items()} == {
        "delivered": (first,),
        "quarantined": (second,),
        "pending": (third,),
    }
    assert states["quarantined"].reasons == ("no such aspect",)
    assert left.settle(Delivery(1), [third]) is None
    delivered = [record for record in records.of([key(1)]) if record.state == "delivered"]
    assert [proposal for record in delivered for proposal in record.proposals] == [first, third]


def test_other_runs_and_tasks_are_left_out_and_the_newest_come_first(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    for number in range(12):
        entry = put(outbox, key(task_id=f"task{number}"), 1)
        entry.settle(Delivery(1), proposals_in(entry))
    outbox.begin(key(task_id="killed"), connection_id="datahub", events="/tmp/e", redo={})
    put(outbox, key(run_id="other"), 1)
    records = OutboxRecords(outbox)
    few, many = [key(task_id="task3")], [key(task_id=f"task{number}") for number in range(12)]
    assert [shown(record) for record in records.of(few)] == [("task3", "delivered", 1, 1)]
    assert sorted(record.key.task_id for record in records.of(many)) == sorted(each.task_id for each in many)
    newest = records.newest(2)
    assert [(record.key.run_id, record.state) for record in newest] == [
        ("other", "pending"),
        (key().run_id, "unfinished"),
    ]
    assert records.newest(5, {"no such DAG"}) == []
    assert {record.state for record in records.newest(50, undelivered=True)} == {"pending", "unfinished"}


def test_unreadable_records_are_left_out_and_old_ones_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = outbox_at(tmp_path, OutboxLimits(receipts=60))
    entry = put(outbox, key(), 1)
    entry.settle(Delivery(1), proposals_in(entry))
    (kept,) = outbox.storage.stored("delivered")
    whole = outbox.storage.read(kept)
    for damaged in (whole[:-9], b"", b"x" * 40, whole[:-4] + b"\xff\xff\xff\xff"):
        (tmp_path / kept).write_bytes(damaged)
        assert OutboxRecords(outbox).of([key()]) == []
    later = entry.name.created_ms + 61_000
    monkeypatch.setattr(LocalStorage, "now_ms", lambda _: later)
    outbox.expire_receipts(key().task)
    assert outbox.storage.stored("delivered") == {}


# -- selections of entries


MANIFEST = Manifest(key(), "datahub", 0)


@cases("outbox_records")
def test_a_filter_selects_entries(selection: dict[str, list[str]], meant: bool) -> None:
    chosen = EntryFilter(**{name: tuple(ids) for name, ids in selection.items()})
    assert chosen(MANIFEST) is meant
    assert bool(chosen) is bool(selection)

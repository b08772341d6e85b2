"""What an outbox keeps beside its entries: receipts, the quarantine, and what pages show of
attempts.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from airflow_provider_spark_datahub.delivery import Delivery, Rejection
from airflow_provider_spark_datahub.delivery.outbox import (
    AttemptRecord,
    Drain,
    DrainLimits,
    Entry,
    EntryFilter,
    LocalStorage,
    Manifest,
    Outbox,
    OutboxLimits,
    OutboxRecords,
)
from airflow_provider_spark_datahub.delivery.outbox.drain import _MOST_INSTANCES
from airflow_provider_spark_datahub.delivery.outbox.format import seal
from tests.cases import cases
from tests.delivery.outboxes import (
    MemoryStorage,
    Recording,
    files,
    key,
    outbox_at,
    proposals_in,
    put,
    receipts_in,
)
from tests.delivery.samples import upsert, upserts


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return outbox_at(tmp_path)


def delivered(
    outbox: Outbox, try_number: int = 1, task_id: str = "build", run_id: str = "run"
) -> Entry:
    entry = put(outbox, key(try_number, task_id, run_id=run_id), 2)
    entry.settle(Delivery(2), entry.items())
    return entry


def test_receipts_name_aspects_that_later_attempts_and_runs_replaced(outbox: Outbox) -> None:
    first, second = delivered(outbox, 1), delivered(outbox, 2)
    upserts = set(receipts_in(outbox)[0].upserts)
    assert len(upserts) == 2
    assert outbox.receipts.find(first.name, first.manifest)[1] == upserts
    assert outbox.receipts.find(second.name, second.manifest)[1] == set()
    later = delivered(outbox, 1, run_id="another run")
    assert outbox.receipts.find(second.name, second.manifest)[1] == upserts
    assert outbox.receipts.find(later.name, later.manifest)[1] == set()


def test_receipts_expire(outbox: Outbox, tmp_path: Path) -> None:
    delivered(outbox)
    delivered(outbox, task_id="load")
    assert outbox.expire_receipts() == 0
    old = outbox_at(tmp_path, OutboxLimits(receipts=-1.0))
    assert old.expire_receipts(key(task_id="load").task) == 1
    assert len(files(tmp_path)) == 1
    assert old.expire_receipts() == 1
    assert files(tmp_path) == []


def test_a_receipt_stays_while_an_older_entry_of_its_task_is_pending_or_quarantined(
    tmp_path: Path,
) -> None:
    outbox = outbox_at(tmp_path, OutboxLimits(receipts=-1.0))
    older = put(outbox, key(task_id="build", run_id="older"))
    delivered(outbox, run_id="newer")
    delivered(outbox, task_id="load")
    assert outbox.expire_receipts() == 1
    older.quarantine("no")
    assert outbox.expire_receipts() == 0
    outbox.requeue(*outbox.quarantined()).discard()
    assert outbox.expire_receipts() == 1


def test_the_oldest_copies_and_receipts_go_if_all_are_too_large(tmp_path: Path) -> None:
    # Those stay that keep an older entry from replacing something newer.
    outbox = outbox_at(tmp_path)
    delivered(outbox, run_id="before")
    waiting = put(outbox, key(2, "build", run_id="waits"), 1)
    after = delivered(outbox, run_id="after")
    delivered(outbox, task_id="load")
    copies = len(outbox.storage.names("delivered"))
    Outbox(outbox.storage, OutboxLimits(max_bytes=2 * outbox.receipts.size() - 2)).expire_receipts()
    assert len(outbox.storage.names("delivered")) == copies - 1
    assert len(receipts_in(outbox)) == 3
    Outbox(outbox.storage, OutboxLimits(max_bytes=0)).expire_receipts()
    assert outbox.storage.names("delivered") == []
    assert [manifest.key.run_id for manifest in receipts_in(outbox)] == ["after"]
    waiting.discard()
    Outbox(outbox.storage, OutboxLimits(max_bytes=0)).expire_receipts()
    assert receipts_in(outbox) == []
    assert outbox.receipts.find(after.name, after.manifest) == (None, set())


@pytest.mark.slow
def test_each_receipt_of_a_mapped_task_is_read_once_by_a_drain() -> None:
    # Hundreds of indexes of one task were kept, and those of a later run are delivered already.

    class Counting(MemoryStorage):
        counts: ClassVar[Counter[str]] = Counter()

        def stored(self, folder: str) -> dict[str, int]:
            self.counts[f"list {folder.partition('/')[0]}"] += 1
            return super().stored(folder)

        def read(self, name: str, *, most: int = 2**26) -> bytes:
            self.counts[f"read {name.partition('/')[0]}"] += 1
            return super().read(name, most=most)

    outbox, size = Outbox(Counting()), 150
    runs = {
        run: [
            put(
                outbox,
                key(map_index=index, run_id=run),
                [upsert("job", run), upsert(f"{run}{index}")],
            )
            for index in range(size)
        ]
        for run in ("first", "second")
    }
    sink, limits = Recording(), DrainLimits(batch_seconds=3_600.0)
    Drain(outbox, lambda _: (sink, None), limits).run([entry.name for entry in runs["second"]])
    Counting.counts.clear()
    drained = Drain(outbox, lambda _: (sink, None), limits).run()
    assert (drained.settled, drained.delivered, drained.superseded) == (size, size, size)
    assert Counting.counts["read receipts"] == size
    assert Counting.counts["list receipts"] <= size / _MOST_INSTANCES + 4
    assert Counting.counts["list leases"] <= 2 * (size / _MOST_INSTANCES + 2)


# -- the quarantine, and the way back


def reject(outbox: Outbox, try_number: int = 1) -> None:
    """Write an entry of two proposals, deliver one, and reject the other."""
    entry = put(outbox, key(try_number), [upsert("good"), upsert("bad", f"of try {try_number}")])
    good, bad = entry.items()
    entry.settle(Delivery(1, (Rejection(bad, "no such field"),)), [good, bad])


def test_quarantined_items_have_their_reasons_and_a_requeued_entry_is_delivered(
    outbox: Outbox, tmp_path: Path
) -> None:
    reject(outbox)
    put(outbox, key(2)).quarantine("too old")
    held, old = sorted(outbox.quarantined(), key=lambda lost: lost.manifest.key.try_number)
    assert (held.reasons, [item.aspect["name"] for _, item in held.rejected]) == (
        ["no such field"],
        ["of try 1"],
    )
    assert (old.reasons, [item for _, item in old.rejected]) == (["too old"], upserts(3))
    outbox.storage.remove(old.name)
    entry = outbox.requeue(held)
    assert list(outbox.quarantined()) == []
    assert list(outbox.entries()) == [entry]
    assert (entry.manifest.state, entry.manifest.pending, entry.manifest.spark_succeeded) == (
        "pending",
        1,
        True,
    )
    assert entry.name.created_ms == held.manifest.created_ms
    sink = Recording()
    assert Drain(outbox, lambda _: (sink, None)).run().settled == 1
    assert sink.names == ["of try 1"]
    assert files(tmp_path) == files(tmp_path / "receipts")


@pytest.mark.parametrize("content", [b"", b"{}\n", b'[]\n{"reason": 1}\n', b"\xff"])
def test_damaged_objects_are_set_aside(
    outbox: Outbox, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reject(outbox)
    reject(outbox, 2)
    path, _ = files(tmp_path / "quarantined")
    path.write_bytes(content)
    assert [held.manifest.key.try_number for held in outbox.quarantined()] == [2]
    assert f"{path} is corrupt" in caplog.text
    aside, reason = files(tmp_path / "corrupt")
    assert (aside.read_bytes(), reason.name) == (content, f"{path.stem}.reason.txt")


@pytest.mark.parametrize(
    "line", [b'{"reason": 1, "proposal": {}}', b"[]", b'{"reason": "x", "proposal": {}}']
)
def test_a_line_without_reason_or_proposal_is_damaged(
    outbox: Outbox, tmp_path: Path, line: bytes
) -> None:
    reject(outbox)
    (path,) = files(tmp_path / "quarantined")
    (held,) = outbox.quarantined()
    path.write_bytes(seal(held.manifest, [line, b"\n"]) + line + b"\n")
    assert list(outbox.quarantined()) == []
    assert "one of its lines" in files(tmp_path / "corrupt")[1].read_text()


def test_the_quarantine_of_another_version_is_left_alone(outbox: Outbox, tmp_path: Path) -> None:
    reject(outbox)
    (path,) = files(tmp_path / "quarantined")
    path.write_bytes(b'{"format": "spark-datahub-outbox", "version": 2, "key": {}}\n')
    assert list(outbox.quarantined()) == []
    assert files(tmp_path / "quarantined") == [path]


# -- what an outbox knows about attempts


def shown(record: AttemptRecord) -> tuple[str, str, int, int]:
    return record.key.task_id, record.state, record.count, len(record.proposals)


def test_each_state_of_an_attempt_is_a_record_with_its_proposals(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    entry = put(outbox, key(1), 3)
    first, second, third = proposals_in(entry)
    left = entry.settle(
        Delivery(1, (Rejection(second, "no such aspect"),), (third,), ""), [first, second, third]
    )
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
    assert sorted(record.key.task_id for record in records.of(many)) == sorted(
        each.task_id for each in many
    )
    newest = records.newest(2)
    assert [(record.key.run_id, record.state) for record in newest] == [
        ("other", "pending"),
        (key().run_id, "unfinished"),
    ]
    assert records.newest(5, {"no such DAG"}) == []
    assert {record.state for record in records.newest(50, undelivered=True)} == {
        "pending",
        "unfinished",
    }


def test_unreadable_records_are_left_out_and_old_ones_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


MANIFEST = Manifest(key(), "datahub", 0)


@cases("outbox_records")
def test_a_filter_selects_entries(selection: dict[str, list[str]], meant: bool) -> None:
    chosen = EntryFilter(**{name: tuple(ids) for name, ids in selection.items()})
    assert chosen(MANIFEST) is meant
    assert bool(chosen) is bool(selection)

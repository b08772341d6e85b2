"""Receipts: kept for a while, and longer if an older entry is pending."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

from airflow_provider_spark_datahub.delivery import Delivery
from airflow_provider_spark_datahub.delivery.outbox import Drain, DrainLimits, Entry, Outbox, OutboxLimits
from airflow_provider_spark_datahub.delivery.outbox.drain import _MOST_INSTANCES
from tests.delivery.outboxes import MemoryStorage, Recording, files, key, outbox_at, put, receipts_in
from tests.delivery.samples import upsert


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return outbox_at(tmp_path)


def delivered(outbox: Outbox, try_number: int = 1, task_id: str = "build", run_id: str = "run") -> Entry:
    entry = put(outbox, key(try_number, task_id, run_id=run_id), 2)
    entry.settle(Delivery(2, stored=False), entry.items())
    return entry


def test_a_receipt_is_small_and_names_the_delivered_aspects(outbox: Outbox, tmp_path: Path) -> None:
    entry = delivered(outbox)
    (path,) = files(tmp_path)
    assert path.stat().st_size < 1000
    receipt, newer = outbox.receipts.find(entry.name, entry.manifest)
    assert receipt is not None
    assert (receipt.delivered, receipt.stored, newer) == (2, False, set())
    assert receipt.delivered_ms is not None
    assert receipt.delivered_ms >= receipt.created_ms


def test_receipts_name_aspects_that_later_attempts_and_runs_replaced(outbox: Outbox) -> None:
    first, second = delivered(outbox, 1), delivered(outbox, 2)
    upserts = set(receipts_in(outbox)[0].upserts)
    assert len(upserts) == 2
    assert outbox.receipts.find(first.name, first.manifest)[1] == upserts
    assert outbox.receipts.find(second.name, second.manifest)[1] == set()
    later = delivered(outbox, 1, run_id="another run")
    assert outbox.receipts.find(second.name, second.manifest)[1] == upserts
    assert outbox.receipts.find(later.name, later.manifest)[1] == set()


@pytest.mark.parametrize("content", [b"", b"[]\n", b"\x00\xff"])
def test_a_receipt_that_cannot_be_read_is_ignored(outbox: Outbox, tmp_path: Path, content: bytes) -> None:
    entry = delivered(outbox)
    files(tmp_path)[0].write_bytes(content)
    assert outbox.receipts.find(entry.name, entry.manifest) == (None, set())


def test_receipts_expire(outbox: Outbox, tmp_path: Path) -> None:
    delivered(outbox)
    delivered(outbox, task_id="load")
    assert outbox.expire_receipts() == 0
    old = outbox_at(tmp_path, OutboxLimits(receipts=-1.0))
    assert old.expire_receipts(key(task_id="load").task) == 1
    assert len(files(tmp_path)) == 1
    assert old.expire_receipts() == 1
    assert files(tmp_path) == []


def test_a_receipt_stays_while_an_older_entry_of_its_task_is_pending_or_quarantined(tmp_path: Path) -> None:
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
            put(outbox, key(map_index=index, run_id=run), [upsert("job", run), upsert(f"{run}{index}")])
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

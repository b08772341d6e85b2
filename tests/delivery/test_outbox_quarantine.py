"""The quarantine, and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery import Delivery, Rejection
from airflow_provider_spark_datahub.delivery.outbox import Drain, Outbox
from tests.delivery.outboxes import Recording, files, key, outbox_at, put
from tests.delivery.samples import upsert, upserts


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return outbox_at(tmp_path)


def reject(outbox: Outbox, try_number: int = 1) -> None:
    """Write an entry of two proposals, deliver one, and reject the other."""
    entry = put(outbox, key(try_number), [upsert("good"), upsert("bad", f"of try {try_number}")])
    good, bad = entry.items()
    entry.settle(Delivery(1, (Rejection(bad, "no such field"),)), [good, bad])


def test_quarantined_items_have_their_reasons(outbox: Outbox) -> None:
    reject(outbox)
    put(outbox, key(2)).quarantine("too old")
    by_try = {lost.manifest.key.try_number: lost for lost in outbox.quarantined()}
    assert (
        by_try[1].reasons,
        [item.aspect["name"] for _, item in by_try[1].rejected],
    ) == (["no such field"], ["of try 1"])
    assert (by_try[2].reasons, [item for _, item in by_try[2].rejected]) == (["too old"], upserts(3))


def test_a_requeued_entry_is_pending_and_delivered(outbox: Outbox, tmp_path: Path) -> None:
    reject(outbox)
    (held,) = outbox.quarantined()
    entry = outbox.requeue(held)
    assert list(outbox.quarantined()) == []
    assert list(outbox.entries()) == [entry]
    assert (entry.manifest.state, entry.manifest.pending, entry.manifest.spark_succeeded) == ("pending", 1, True)
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


@pytest.mark.parametrize("line", [b'{"reason": 1, "proposal": {}}', b"[]", b'{"reason": "x", "proposal": {}}'])
def test_a_line_without_reason_or_proposal_is_damaged(outbox: Outbox, tmp_path: Path, line: bytes) -> None:
    reject(outbox)
    (path,) = files(tmp_path / "quarantined")
    (held,) = outbox.quarantined()
    path.write_bytes(held.manifest.to_line([line, b"\n"]) + line + b"\n")
    assert list(outbox.quarantined()) == []
    assert "one of its lines" in files(tmp_path / "corrupt")[1].read_text()


def test_the_quarantine_of_another_version_is_left_alone(outbox: Outbox, tmp_path: Path) -> None:
    reject(outbox)
    (path,) = files(tmp_path / "quarantined")
    path.write_bytes(b'{"format": "spark-datahub-outbox", "version": 2, "key": {}}\n')
    assert list(outbox.quarantined()) == []
    assert files(tmp_path / "quarantined") == [path]

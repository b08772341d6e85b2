"""The quarantine, and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery.outbox.drain import Drain
from airflow_provider_spark_datahub.delivery.outbox.entries import Outbox, OutboxLimits, quarantined, requeue
from airflow_provider_spark_datahub.delivery.sink import Delivery, Rejection
from tests.delivery.outboxes import Recording, files, key, outbox_at, put
from tests.delivery.samples import upsert, upserts


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return outbox_at(tmp_path)


def reject(outbox: Outbox, try_number: int = 1) -> None:
    """An entry of two proposals: one is delivered, one is rejected."""
    entry = put(outbox, key(try_number), [upsert("good"), upsert("bad", f"of try {try_number}")])
    good, bad = entry.proposals()
    entry.settle(Delivery(1, (Rejection(bad, "no such field"),)), [good, bad])


def test_what_is_quarantined_is_told_with_its_reasons(outbox: Outbox) -> None:
    reject(outbox)
    put(outbox, key(2)).quarantine("too old")
    by_try = {one.manifest.key.try_number: one for one in quarantined(outbox)}
    assert (by_try[1].reasons, [one.aspect["name"] for _, one in by_try[1].held]) == (["no such field"], ["of try 1"])
    assert (by_try[2].reasons, [one for _, one in by_try[2].held]) == (["too old"], upserts(3))


def test_requeued_it_is_pending_and_delivered(outbox: Outbox, tmp_path: Path) -> None:
    reject(outbox)
    (held,) = quarantined(outbox)
    entry = requeue(outbox, held)
    assert list(quarantined(outbox)) == []
    assert list(outbox.entries()) == [entry]
    assert (entry.manifest.state, entry.manifest.pending, entry.manifest.spark_succeeded) == ("pending", 1, True)
    assert entry.name.created_ms == held.manifest.created_ms
    sink = Recording()
    assert Drain(outbox, lambda _: (sink, None)).run().settled == 1
    assert sink.names == ["of try 1"]
    assert files(tmp_path) == files(tmp_path / "receipts")


def test_requeued_it_overwrites_nothing_that_was_delivered_since(outbox: Outbox) -> None:
    reject(outbox, 1)
    sink = Recording()
    put(outbox, key(2), [upsert("bad", "of try 2")])
    Drain(outbox, lambda _: (sink, None)).run()
    requeue(outbox, *quarantined(outbox))
    assert Drain(outbox, lambda _: (sink, None)).run().settled == 1
    assert sink.names == ["of try 2"]


def test_a_full_outbox_lets_out_what_it_has_counted(outbox: Outbox, tmp_path: Path) -> None:
    reject(outbox)
    requeue(outbox_at(tmp_path, OutboxLimits(max_bytes=1)), *quarantined(outbox))
    assert len(outbox.names()) == 1


def test_raw_events_go_with_it_and_come_back_with_its_last_part(outbox: Outbox, tmp_path: Path) -> None:
    entry = put(outbox, proposals=[upsert("a"), upsert("b"), upsert("c")]).keep_events([b"raw"])
    a, b, c = entry.proposals()
    rest = entry.settle(Delivery(1, (Rejection(a, "no"),), (c,), "later"), [a, b, c])
    assert rest is not None
    assert (tmp_path / entry.name.events).exists()
    rest.settle(Delivery(0, (Rejection(c, "neither"),)), [c])
    assert (tmp_path / entry.name.held_events).read_bytes() == b"raw"
    first, second = quarantined(outbox)
    assert requeue(outbox, first).manifest.events is None
    back = requeue(outbox, second)
    assert back.manifest.events == back.name.events
    assert (tmp_path / back.name.events).read_bytes() == b"raw"
    assert not (tmp_path / "quarantined").exists()


@pytest.mark.parametrize("content", [b"", b"{}\n", b'[]\n{"reason": 1}\n', b"\xff"])
def test_what_cannot_be_read_stays(
    outbox: Outbox, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reject(outbox)
    (path,) = files(tmp_path / "quarantined")
    path.write_bytes(content)
    assert list(quarantined(outbox)) == []
    assert f"{path} in the quarantine cannot be read" in caplog.text
    assert path.read_bytes() == content


@pytest.mark.parametrize("line", [b'{"reason": 1, "proposal": {}}', b"[]", b'{"reason": "x", "proposal": {}}'])
def test_a_line_without_reason_or_proposal(
    outbox: Outbox, tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reject(outbox)
    (path,) = files(tmp_path / "quarantined")
    path.write_bytes(path.read_bytes() + line + b"\n")
    assert list(quarantined(outbox)) == []
    assert "cannot be read" in caplog.text

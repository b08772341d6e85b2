"""Draining an outbox: order, connections, limits, other drainers, and what stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Deadline, Delivery, OutageNotes, Sink
from airflow_provider_spark_datahub.delivery.outbox import (
    Drain,
    DrainLimits,
    Entry,
    Lease,
    LocalStorage,
    Outbox,
    OutboxLimits,
)
from airflow_provider_spark_datahub.delivery.outbox.drain import _DrainResult
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord
from tests.delivery.outboxes import Recording, files, key, outbox_at, put, receipts_in
from tests.delivery.samples import patch, upsert


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return outbox_at(tmp_path)


def put_named(outbox: Outbox, task: str, try_number: int = 1, connection: str = "datahub") -> Entry:
    return put(outbox, key(try_number, task), [upsert(f"{task}{try_number}")], connection)


def drain(
    outbox: Outbox, sink: Sink | None, problem: str | None = None, **options: Any
) -> _DrainResult:
    return Drain(outbox, lambda _: (sink, problem), **{"sleep": lambda _: None, **options}).run()


def test_what_it_delivers_ends_the_outage_for_tasks(outbox: Outbox, tmp_path: Path) -> None:
    put_named(outbox, "build")
    notes, of_task = OutageNotes(tmp_path / ".outages"), ("datahub", Recording().describe())
    notes.record(*of_task, Delivery(0, problem="It is not available.", outage=True))
    drain(outbox, Recording(lambda _: True))
    assert notes.refusal(*of_task)
    drain(outbox, Recording())
    assert notes.refusal(*of_task) is None


def named(name: str) -> Callable[[Proposal], bool]:
    return lambda proposal: proposal.aspect["name"] == name


# -- order


def test_tasks_are_delivered_by_age(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(1_000, 9_000))
    monkeypatch.setattr(LocalStorage, "now_ms", lambda _: next(moments))
    tasks = [f"task{number}-" for number in (5, 1, 4, 2, 3)]
    sink = Recording()
    for task in tasks:
        put_named(outbox, task)
    drain(outbox, sink)
    assert sink.names == [f"{task}1" for task in tasks]


def test_aspects_of_a_later_attempt_are_not_overwritten(outbox: Outbox) -> None:
    # The older attempt's entry comes late: its worker was cut off when the newer one delivered.
    event = Proposal(
        "dataProcessInstance",
        "urn:li:dataProcessInstance:x",
        "dataProcessInstanceRunEvent",
        {"name": ""},
    )
    shared, own, edge = upsert("job", "old"), upsert("try1"), patch("job")
    sink = Recording()
    put(outbox, key(2), [upsert("job", "new"), event])
    drain(outbox, sink)
    put(outbox, key(1), [shared, event, own, edge])
    drained = drain(outbox, sink)
    assert sink.arrived[2:] == [event, own, edge]
    assert (drained.settled, drained.delivered, outbox.names()) == (1, 3, [])
    first, second = sorted(receipts_in(outbox), key=lambda receipt: receipt.key.try_number)
    assert (first.delivered, first.superseded, second.superseded) == (3, 1, 0)


def test_connections_are_independent(outbox: Outbox) -> None:
    sinks = {"one": Recording(), "two": Recording(named("old"))}
    put(outbox, key(1), [upsert("job", "old")], "two")
    put(outbox, key(2), [upsert("job", "new")], "one")
    drained = Drain(outbox, lambda connection: (sinks[connection], None)).run()
    assert (drained.settled, drained.waiting, sinks["one"].names) == (1, 1, ["new"])
    sinks["two"].refuses = lambda _: False
    Drain(outbox, lambda connection: (sinks[connection], None)).run()
    assert sinks["two"].names == ["old"]


# -- connections


def test_each_connection_is_opened_once(outbox: Outbox) -> None:
    sinks, opened = {"a": Recording(), "b": Recording()}, []
    for task, connection in (("build", "a"), ("load", "b"), ("test", "a")):
        put_named(outbox, task, 1, connection)

    def open_sink(connection: str) -> tuple[Sink | None, str | None]:
        opened.append(connection)
        return sinks[connection], None

    Drain(outbox, open_sink).run()
    assert sorted(opened) == ["a", "b"]
    assert (sinks["a"].names, sinks["b"].names) == (["build1", "test1"], ["load1"])


def test_without_a_sink_everything_stays_and_the_reason_is_reported_once(outbox: Outbox) -> None:
    put_named(outbox, "build")
    put_named(outbox, "load")
    drained = drain(outbox, None, "no such connection")
    assert (drained.settled, drained.waiting, list(drained.problems)) == (
        0,
        2,
        ["no such connection"],
    )
    assert len(outbox.names()) == 2


def test_a_server_that_is_down_is_not_asked_for_every_entry(outbox: Outbox) -> None:
    for number in range(20):
        put_named(outbox, f"task{number}")
    sink = Recording(lambda _: True)
    drained = drain(outbox, sink)
    assert (sink.calls, drained.waiting) == (3, 20)
    assert list(drained.problems) == ["it is full"]


# -- limits


def test_a_drain_stops_at_its_limit_of_time(outbox: Outbox) -> None:
    put_named(outbox, "build")
    drained = drain(outbox, Recording(), limits=DrainLimits(seconds=0.0))
    assert (drained.settled, drained.waiting, len(outbox.names())) == (0, 1, 1)


def test_only_wanted_entries_and_older_attempts_before_them(outbox: Outbox) -> None:
    put_named(outbox, "build", 1)
    put_named(outbox, "build", 2)
    put_named(outbox, "load", 1)
    sink = Recording()
    drained = drain(outbox, sink, wanted=lambda manifest: manifest.key.try_number == 2)
    assert (sink.names, drained.settled, drained.waiting) == (["build1", "build2"], 2, 0)
    assert len(outbox.names()) == 1


def test_progress_counts_every_entry(outbox: Outbox) -> None:
    for number in range(4):
        put_named(outbox, "build", number)
    put_named(outbox, "load")
    done: list[int] = []
    drain(outbox, Recording(named("load1")), progress=done.append)
    assert sum(done) == 5


def test_an_entry_that_is_too_old_gets_one_more_chance(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, OutboxLimits(max_age=-1.0))
    put_named(outbox, "good")
    put_named(outbox, "bad", 1)
    put_named(outbox, "bad", 2)
    sink = Recording(named("bad1"))
    drained = drain(outbox, sink)
    assert (sink.names, drained.waiting, outbox.names()) == (["good1", "bad2"], 0, [])
    (quarantined,) = files(tmp_path / "quarantined")
    assert " days; the last delivery failed: it is full" in quarantined.read_text()


# -- beside other drainers


def test_entries_of_another_drainer_are_left_to_it(outbox: Outbox) -> None:
    build, load = put_named(outbox, "build"), put_named(outbox, "load")
    sink = Recording()
    lease = Lease.take(outbox.storage, build.name.group)
    assert lease is not None
    with lease:
        drained = drain(outbox, sink)
    assert (sink.names, drained.settled, drained.elsewhere, drained.waiting) == (["load1"], 1, 1, 0)
    assert "1 held by other drainers" in drained.sentence
    assert outbox.names() == [build.name]
    assert load.name not in outbox.names()


def test_a_drain_returns_to_entries_that_another_drainer_held(outbox: Outbox) -> None:
    build = put_named(outbox, "build")
    lease = Lease.take(outbox.storage, build.name.group)
    assert lease is not None
    held, sink = [lease], Recording()

    def sleep(_: float) -> None:
        if held:
            held.pop().__exit__(None, None, None)

    drained = drain(outbox, sink, sleep=sleep)
    assert (sink.names, drained.settled, drained.elsewhere) == (["build1"], 1, 0)


def test_an_entry_with_a_receipt_is_not_delivered_again(outbox: Outbox) -> None:
    # Its drainer died between the receipt and the removal.
    entry = put(outbox)
    content = Path(str(entry)).read_bytes()
    sink = Recording()
    drain(outbox, sink)
    outbox.storage.write(entry.name.path, [content])
    assert drain(outbox, sink).settled == 1
    assert (len(sink.arrived), outbox.names()) == (3, [])


# -- what goes wrong


def test_receipts_are_on_the_disk_before_the_entries_are_removed(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many entries are synced at the same time. A crash before leaves them beside their receipts.
    for number in range(5):
        put_named(outbox, f"build{number}", number)
    steps: list[str] = []
    storage = outbox.storage
    sync, remove = storage.sync, storage.remove

    def spy_sync(names: Sequence[str]) -> None:
        steps.append(f"sync {len(names)}")
        sync(names)

    def spy_remove(name: str) -> None:
        steps.append(name.partition("/")[0])
        remove(name)

    with monkeypatch.context() as patched:
        patched.setattr(storage, "sync", spy_sync)
        patched.setattr(storage, "remove", spy_remove)
        assert drain(outbox, Recording()).settled == 5
    assert steps == ["sync 5", *["pending"] * 5, "leases"]

    def fail(_: object) -> None:
        raise OSError(5, "Input/output error")

    entries, sink = (
        [put_named(outbox, f"build{number}", number + 1) for number in range(5)],
        Recording(),
    )
    with monkeypatch.context() as patched:
        patched.setattr(storage, "sync", fail)
        drained = drain(outbox, sink)
    assert "Cannot sync the receipts of 5 entries" in next(iter(drained.problems))
    assert {*outbox.names()} == {entry.name for entry in entries}
    assert (drain(outbox, sink).problems, len(sink.arrived), outbox.names()) == ({}, 5, [])


# -- unfinished entries


def test_an_unfinished_entry_and_those_behind_it_stay_until_it_is_finished(outbox: Outbox) -> None:
    outbox.begin(key(1), connection_id="datahub", events=None, redo={})
    put(outbox, key(2), [upsert("second")])
    sink = Recording()
    assert drain(outbox, sink).waiting == 2
    assert drain(outbox, sink, finish=lambda *_: None).waiting == 2
    assert sink.names == []
    followed_by_another = []

    def finish(entry: Entry, followed: bool) -> Entry:
        followed_by_another.append(followed)
        return entry.finish([upsert("first")], spark_succeeded=False)

    drained = drain(outbox, sink, finish=finish)
    assert (sink.names, drained.settled, drained.waiting, followed_by_another) == (
        ["first", "second"],
        2,
        0,
        [True],
    )


def test_a_disk_that_refuses_leases_leaves_everything_pending(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        put_named(outbox, f"task{number}")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Lease, "take", fail)
    drained = drain(outbox, Recording())
    assert (drained.settled, drained.waiting, len(outbox.names())) == (0, 3, 3)
    assert "No space left on device" in next(iter(drained.problems))


@pytest.mark.parametrize("max_age", [1000.0, 0.0])
def test_a_conversion_that_outlasts_the_lease_is_delivered_by_the_same_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_age: float
) -> None:
    monkeypatch.setattr(Lease, "SECONDS", 0.4)
    outbox, sink = outbox_at(tmp_path), Recording()
    outbox.limits = OutboxLimits(max_age=max_age)
    outbox.begin(key(), connection_id="datahub", events=None, redo={})

    def finish(entry: Entry, _followed: bool) -> Entry:
        time.sleep(0.5)
        return entry.finish([upsert("a")], spark_succeeded=True)

    limits = DrainLimits(entry_seconds=0.2)
    drained = Drain(outbox, lambda _: (sink, None), limits, finish=finish).run()
    assert sink.names == ["a"]
    assert (drained.settled, drained.waiting, drained.problems) == (1, 0, {})
    assert not list(outbox.quarantined())


@pytest.mark.parametrize("change", ["gone", "changed", "a FIFO"])
def test_an_entry_that_changes_after_it_was_listed_does_not_hold_back_later_ones(
    tmp_path: Path, change: str
) -> None:
    outbox = outbox_at(tmp_path)
    _, second, _ = [put(outbox, key(number), [upsert(f"t{number}")]) for number in (1, 2, 3)]
    path = Path(outbox.storage.describe(second.name.path))

    class Changing(Recording):
        def send(self, record: DeliveryRecord, deadline: Deadline) -> None:
            if not self.arrived:
                if change == "changed":
                    second.update(delivered=1, collected=2)
                else:
                    path.unlink()
                if change == "a FIFO":
                    os.mkfifo(path)
            super().send(record, deadline)

    sink = Changing()
    drained = Drain(outbox, lambda _: (sink, None)).run()
    assert sink.names == (["t1", "t2", "t3"] if change == "changed" else ["t1", "t3"])
    assert drained.waiting == 0
    assert list(outbox.entries()) == []

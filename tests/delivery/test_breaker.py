from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery import Delivery, OutageNotes, Rejection
from airflow_provider_spark_datahub.delivery.failure import Backoff, CircuitBreaker
from tests.delivery.samples import upserts

ONE, TWO = upserts(2)
DOWN = Delivery(0, pending=(ONE,), problem="it is down")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def breaker(clock: Clock) -> CircuitBreaker:
    # Without jitter: waits of 10, 20, 40, 40 ...
    return CircuitBreaker(2, Backoff(first=10.0, longest=40.0, jitter=lambda: 1.0), clock)


def test_the_breaker_opens_after_failures_in_a_row() -> None:
    tested = breaker(Clock())
    tested.record(DOWN)
    assert tested.refusal() is None
    tested.record(DOWN)
    assert tested.refusal() == "2 deliveries in a row failed, the next attempt is due in 10 s: it is down"


def test_any_delivered_item_keeps_the_breaker_closed() -> None:
    for good in (
        Delivery(1),
        Delivery(0),
        Delivery(0, rejected=(Rejection(ONE, "no"),)),
        Delivery(1, pending=(TWO,), problem="it is full"),
    ):
        tested = breaker(Clock())
        tested.record(DOWN)
        tested.record(good)
        tested.record(DOWN)
        assert tested.refusal() is None


def test_each_wait_lets_one_delivery_through_and_waits_grow() -> None:
    clock = Clock()
    tested = breaker(clock)
    tested.record(DOWN)
    for wait in (10, 20, 40, 40):
        tested.record(DOWN)
        clock.now += wait - 1
        assert str(tested.refusal()).endswith("is due in 1 s: it is down")
        clock.now += 1
        assert tested.refusal() is None
        assert tested.refusal() is not None  # only one


def test_a_successful_delivery_closes_the_breaker() -> None:
    clock = Clock()
    tested = breaker(clock)
    tested.record(DOWN)
    tested.record(DOWN)
    clock.now += 10
    assert tested.refusal() is None
    tested.record(Delivery(1))
    assert tested.refusal() is None
    tested.record(DOWN)
    assert tested.refusal() is None


def test_each_connection_has_one_breaker() -> None:
    assert CircuitBreaker.for_connection("a test's connection") is CircuitBreaker.for_connection("a test's connection")
    assert CircuitBreaker.for_connection("a test's connection") is not CircuitBreaker.for_connection("another")


# -- notes for the other tasks of a host

OUT = Delivery(0, pending=(ONE,), problem="DataHub is not available (Connection refused).", outage=True)
SERVER = ("datahub", "DataHub at http://gms:8080")


def test_an_outage_is_known_to_the_other_tasks_for_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    ours, others = OutageNotes(tmp_path / "notes", clock), OutageNotes(tmp_path / "notes", clock)
    assert others.refusal(*SERVER) is None
    ours.record(*SERVER, OUT)
    clock.now += 20
    assert others.refusal(*SERVER) == (
        "DataHub is not available (Connection refused); no other task of this host asks it again for 40 s"
    )
    assert others.refusal("another", SERVER[1]) is None
    assert others.refusal(SERVER[0], "DataHub at http://another:8080") is None
    clock.now += 40
    assert others.refusal(*SERVER) is None  # the first one asks
    assert ours.refusal(*SERVER) is not None  # the next waits for what it finds
    others.record(*SERVER, DOWN)  # it answers, e.g. that the token is wrong
    assert ours.refusal(*SERVER) is None
    assert list((tmp_path / "notes").iterdir()) == []


def test_only_the_owner_can_read_a_note(tmp_path: Path) -> None:
    notes = OutageNotes(tmp_path / "notes", Clock())
    umask = os.umask(0)
    try:
        notes.record(*SERVER, OUT)
    finally:
        os.umask(umask)
    (note,) = (tmp_path / "notes").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (note.parent, note)] == [0o700, 0o600]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\xfe", b'{"since": 990, "until": 1030, "problem": "\xee"}',
        b"[]", b"{}", b"[" * 100_000, b"x" * 10_000_000,
        b'{"since": "1", "until": 1030, "problem": ""}',
        b'{"since": 990, "until": 1e400, "problem": ""}',
        b'{"since": 990, "until": 1061, "problem": ""}',  # longer than a minute
        b'{"since": 1001, "until": 1030, "problem": ""}',  # from a clock that is ahead
        b'{"since": 100, "until": 130, "problem": ""}',  # old
    ],
)  # fmt: skip
def test_a_damaged_note_is_ignored(tmp_path: Path, content: bytes) -> None:
    notes = OutageNotes(tmp_path, Clock())
    notes.record(*SERVER, OUT)
    (note,) = tmp_path.iterdir()
    note.write_bytes(content)
    assert notes.refusal(*SERVER) is None
    notes.record(*SERVER, OUT)
    assert notes.refusal(*SERVER) is not None


def test_other_files_in_place_of_a_note_are_ignored(tmp_path: Path) -> None:
    notes = OutageNotes(tmp_path / "notes", Clock())
    notes.record(*SERVER, OUT)
    (note,) = (tmp_path / "notes").iterdir()
    (tmp_path / "elsewhere").write_bytes(note.read_bytes())
    note.unlink()
    os.mkfifo(note)  # opening it for reading would wait for a writer
    assert notes.refusal(*SERVER) is None
    note.unlink()
    note.symlink_to(tmp_path / "elsewhere")
    assert notes.refusal(*SERVER) is None
    note.unlink()
    note.mkdir()
    assert notes.refusal(*SERVER) is None
    notes.record(*SERVER, OUT)
    notes.record(*SERVER, DOWN)
    OutageNotes(tmp_path / "elsewhere" / "notes", Clock()).record(*SERVER, OUT)  # the folder cannot be made

"""What a failure means for the proposals and for later deliveries, and how it is worded."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery import Delivery, OutageNotes
from airflow_provider_spark_datahub.delivery.failure import (
    Backoff,
    Failure,
    FailureKind,
    LibraryError,
    call_library,
)
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, NumberedItem
from airflow_provider_spark_datahub.delivery.sinks.batches import _PoisonFilter
from tests.cases import cases
from tests.delivery.samples import upserts


@cases("failure")
def test_http_statuses_have_a_kind(statuses: list[int], kind: str, may_pass: bool) -> None:
    assert {FailureKind.from_http_status(status) for status in statuses} == {FailureKind[kind]}
    assert FailureKind[kind].may_pass is may_pass


def test_the_text_of_a_server_becomes_one_printable_line() -> None:
    failure = Failure(FailureKind.REJECTED, "no\r\n\x1b]52;c;eA==\x07 key \u202eyek").for_log(
        lambda text: text.replace("key", "***")
    )
    assert failure.text == r"no \x1b]52;c;eA==\x07 *** \u202eyek"


# -- errors of libraries


class TheirsError(Exception):
    """An error of a library, unknown to us."""


def fails(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TheirsError("no such bucket"), "TheirsError: no such bucket"),
        (TheirsError(), "TheirsError"),
    ],
)
def test_an_unknown_error_becomes_a_library_error(error: Exception, words: str) -> None:
    with pytest.raises(LibraryError) as raised:
        call_library(lambda: fails(error), OSError)
    assert str(raised.value) == words
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_errors_that_end_a_process_are_not_caught(error: BaseException) -> None:
    with pytest.raises(type(error)):
        call_library(lambda: fails(error))


# -- waits


@cases("failure")
def test_the_backoff_doubles_up_to_its_limit(attempt: int, seconds: float) -> None:
    longest = Backoff(first=0.5, longest=8.0, jitter=lambda: 1.0)
    shortest = Backoff(first=0.5, longest=8.0, jitter=lambda: 0.0)
    assert longest.delay(attempt) == seconds
    assert shortest.delay(attempt) == seconds / 2


# -- poison items and outages


FAILED = Failure(FailureKind.FAILED, "HTTP 500: boom")
AWAY = Failure(FailureKind.UNAVAILABLE, "HTTP 503: away")
REFUSED = Failure(FailureKind.REJECTED, "HTTP 400: no")


@pytest.fixture
def record() -> DeliveryRecord:
    return DeliveryRecord(upserts(10))


Answers = dict[int, list[bool | Failure]]


class Server:
    """Answers to items that are sent again, by their numbers.

    :ivar asked: numbers of these items.
    """

    def __init__(self, answers: Answers | None = None) -> None:
        self._answers = answers or {}
        self.asked: list[int] = []

    def resend(self, item: NumberedItem) -> bool | Failure:
        self.asked.append(item[0])
        return self._answers[item[0]].pop(0)


def test_so_many_failures_without_a_success_are_an_outage(record: DeliveryRecord) -> None:
    poison = _PoisonFilter(record, "it", Server().resend)
    goes_on = [poison.add(item, FAILED) for item in record.pending()[: _PoisonFilter.MOST_SUSPECTS]]
    assert goes_on == [True] * (_PoisonFilter.MOST_SUSPECTS - 1) + [False]
    assert poison.last == FAILED
    assert len(record.pending()) == 10


def test_a_later_success_rejects_what_fails_once_more(record: DeliveryRecord) -> None:
    # The server was away for the second item and is away for the third; it refuses the fourth for
    # another reason.
    server = Server({0: [FAILED], 1: [True], 2: [AWAY], 3: [REFUSED]})
    poison = _PoisonFilter(record, "it", server.resend)
    *suspects, taken = record.pending()[:5]
    for suspect in suspects:
        assert poison.add(suspect, FAILED)
    poison.judge(taken=taken)
    assert server.asked == [0, 1, 2, 3]
    delivery = record.delivery()
    assert [(rejection.item, rejection.reason) for rejection in delivery.rejected] == [
        (suspects[0][1], "it failed on it alone, not on others: HTTP 500: boom"),
        (suspects[3][1], "HTTP 400: no"),
    ]
    assert (delivery.delivered, poison.last) == (1, AWAY)


@pytest.mark.parametrize("takes", [True, AWAY])
def test_the_last_success_is_repeated(record: DeliveryRecord, takes: bool | Failure) -> None:
    server = Server({0: [takes], 1: [FAILED]})
    poison = _PoisonFilter(record, "it", server.resend)
    first, second = record.pending()[:2]
    poison.judge(taken=first)
    assert poison.add(second, FAILED) is (takes is True)
    assert server.asked == ([0, 1] if takes is True else [0])
    assert [rejection.item for rejection in record.delivery().rejected] == (
        [second[1]] if takes is True else []
    )
    assert poison.last == (None if takes is True else FAILED)


def test_a_server_that_fails_for_a_moment_rejects_nothing(record: DeliveryRecord) -> None:
    # It took an item before and takes it again afterwards; between the two it failed on all.
    server = Server({0: [True], 1: [True]})
    poison = _PoisonFilter(record, "it", server.resend)
    first, second = record.pending()[:2]
    poison.judge(taken=first)
    assert poison.add(second, FAILED)
    delivery = record.delivery()
    assert (delivery.rejected, delivery.delivered, poison.last) == ((), 1, None)


# -- notes for the other tasks of a host


(ONE,) = upserts(1)
DOWN = Delivery(0, pending=(ONE,), problem="it is down")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


OUT = Delivery(
    0, pending=(ONE,), problem="DataHub is not available (Connection refused).", outage=True
)
SERVER = ("datahub", "DataHub at http://gms:8080")


def test_an_outage_is_known_to_the_other_tasks_for_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    ours, others = OutageNotes(tmp_path / "notes", clock), OutageNotes(tmp_path / "notes", clock)
    assert others.refusal(*SERVER) is None
    ours.record(*SERVER, OUT)
    clock.now += 20
    assert others.refusal(*SERVER) == (
        "DataHub is not available (Connection refused); no other task of this host asks it again before 00:17:40 UTC"
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
    OutageNotes(tmp_path / "elsewhere" / "notes", Clock()).record(
        *SERVER, OUT
    )  # the folder cannot be made

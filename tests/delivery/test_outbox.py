from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from airflow_provider_spark_datahub.delivery import Deadline, Delivery, Rejection
from airflow_provider_spark_datahub.delivery.outbox import (
    Drain,
    EntryFormatError,
    Lease,
    LocalStorage,
    Outbox,
    OutboxError,
    OutboxLimits,
)
from airflow_provider_spark_datahub.delivery.outbox.format import seal
from tests.cases import cases, tables
from tests.delivery.outboxes import (
    TASK,
    Recording,
    files,
    key,
    outbox_at,
    put,
    receipts_in,
)
from tests.delivery.samples import patch, upsert, upserts


def test_an_entry_is_written_and_read_again(tmp_path: Path) -> None:
    proposals = [upsert("a"), patch("a"), upsert("b", title="half a pair \ud800\u2028\x85\n")]
    before = put(outbox_at(tmp_path / "outbox"), proposals=proposals)
    (entry,) = outbox_at(tmp_path / "outbox").entries(key().instance)
    assert (entry.name, entry.manifest) == (before.name, before.manifest)
    assert entry.items() == tuple(proposals)


def test_an_entry_is_json_lines_with_its_manifest_first(tmp_path: Path) -> None:
    entry = put(outbox_at(tmp_path), key(2, map_index=4))
    with Path(str(entry)).open() as file:
        manifest = json.loads(file.readline())
        assert [json.loads(line) for line in file] == [proposal.to_obj() for proposal in upserts(3)]
    assert Path(str(entry)).parent.parent == tmp_path / "pending"
    assert manifest.pop("created_by").startswith("airflow-provider-spark-datahub ")
    assert manifest.pop("created_ms") == entry.name.created_ms
    lines = Path(str(entry)).read_bytes().splitlines(keepends=True)
    body = b"".join(lines[1:])
    assert manifest.pop("body") == {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    head, _, _ = lines[0].partition(b',"sha256":"' + manifest["sha256"].encode())
    assert manifest.pop("sha256") == hashlib.sha256(head).hexdigest()
    assert manifest == tables("outbox")["manifest"]


def test_entries_are_listed_by_attempt_and_age(tmp_path: Path) -> None:
    names = [put(outbox_at(tmp_path), key(number)).name for number in (10, 2, 1, 2, 11)]
    assert outbox_at(tmp_path).names(key().instance) == [
        names[2],
        names[1],
        names[3],
        names[0],
        names[4],
    ]


@pytest.mark.parametrize(
    ("task_id", "map_index"),
    [
        ("../../../escape", -1),
        ("a/b", -1),
        ("a-b", -1),
        ("..", -1),
        ("", 0),
        ("ünïcödé 任务", 3),
        ("x" * 250, -1),
        ("nul\x00byte \ud800", -1),
    ],
)
def test_any_ids_give_safe_names(tmp_path: Path, task_id: str, map_index: int) -> None:
    outbox = outbox_at(tmp_path / "deep" / "outbox")
    others = [
        put(outbox, key(task_id="a b")),
        put(outbox, key(task_id=task_id, map_index=map_index + 1)),
    ]
    entry = put(outbox, key(task_id=task_id, map_index=map_index), connection="../c \ud800")
    assert max(len(name) for name in Path(str(entry)).parts) <= 255
    assert list(outbox.entries(key(task_id=task_id, map_index=map_index).instance)) == [entry]
    assert files(tmp_path) == sorted(Path(str(entry)) for entry in [entry, *others])
    assert all(path.parent.parent == tmp_path / "deep/outbox/pending" for path in files(tmp_path))


# -- settling


def test_a_delivered_entry_leaves_a_small_receipt(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    entry = put(outbox, proposals=[*upserts(2), patch("a")])
    assert entry.settle(Delivery(delivered=3, stored=True), entry.items()) is None
    assert list(outbox.entries()) == []
    assert files(tmp_path) == files(tmp_path / "receipts")
    assert not (tmp_path / "pending").exists()
    (receipt,) = receipts_in(outbox)
    assert (receipt.key, receipt.connection_id, receipt.state) == (key(), "datahub", "delivered")
    assert (receipt.collected, receipt.delivered, receipt.rejected, receipt.stored) == (
        3,
        3,
        0,
        True,
    )
    assert len(receipt.upserts) == 2  # a patch replaces nothing
    assert receipt.delivered_ms is not None
    assert receipt.delivered_ms >= receipt.created_ms
    (path,) = files(tmp_path)
    assert path.stat().st_size < 1000


def test_pending_stays_and_rejected_goes_to_the_quarantine(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    entry = put(outbox, proposals=4)
    first, second, third, _ = sent = entry.items()
    rest = entry.settle(
        Delivery(1, (Rejection(second, "no such field: größe"),), (first, third), "later"), sent
    )
    assert rest is not None
    assert list(outbox.entries()) == [rest]
    assert rest.items() == (first, third)
    manifest = rest.manifest
    assert (manifest.collected, manifest.pending, manifest.delivered, manifest.rejected) == (
        4,
        2,
        1,
        1,
    )
    (quarantined,) = files(tmp_path / "quarantined")
    head, line = quarantined.read_text(encoding="utf-8").splitlines()
    assert json.loads(head)["key"]["task_id"] == TASK
    assert json.loads(line) == {"reason": "no such field: größe", "proposal": second.to_obj()}

    rest.settle(Delivery(1, (Rejection(third, "nor this"),)), rest.items())
    (receipt,) = receipts_in(outbox)
    assert (receipt.delivered, receipt.rejected, len(receipt.upserts)) == (2, 2, 2)
    assert len(files(tmp_path / "quarantined")) == 2


def test_an_entry_that_stays_says_why_and_the_same_reason_again_writes_nothing(
    tmp_path: Path,
) -> None:
    outbox = outbox_at(tmp_path)
    entry = put(outbox)
    path, pending = Path(str(entry)), entry.items()
    for problem, is_written in (
        ("not available", True),
        ("not available", False),
        ("no such connection", True),
    ):
        before = path.stat().st_ino
        left = entry.settle(Delivery(0, pending=pending, problem=problem), pending)
        assert left is not None
        assert (left.manifest.problem, left.items()) == (problem, pending)
        assert (path.stat().st_ino != before) is is_written
        (entry,) = outbox.entries()
    assert entry.settle(Delivery(3), pending) is None


def test_after_the_deadline_an_entry_that_stays_is_not_written_again(tmp_path: Path) -> None:
    """To write what a huge job left pending takes longer than the time that a task may add."""
    outbox = outbox_at(tmp_path)
    entry = put(outbox)
    content, pending = Path(str(entry)).read_bytes(), entry.items()
    outbox.deadline = Deadline.after(0)
    assert entry.settle(Delivery(0, pending=pending, problem="no time was left"), pending) == entry
    assert Path(str(entry)).read_bytes() == content


@pytest.mark.parametrize(("delivered", "sent", "superseded"), [(2, 3, 0), (2, 2, 0), (3, 3, 1)])
def test_a_delivery_that_forgets_a_proposal_settles_nothing(
    tmp_path: Path, delivered: int, sent: int, superseded: int
) -> None:
    entry = put(outbox_at(tmp_path))
    with pytest.raises(ValueError, match="cannot settle"):
        entry.settle(Delivery(delivered), entry.items()[:sent], superseded)
    assert len(entry.items()) == 3


# -- the quota


def test_a_full_outbox_refuses_new_entries_and_keeps_pending_ones(tmp_path: Path) -> None:
    size = Path(str(put(outbox_at(tmp_path)))).stat().st_size
    outbox = outbox_at(tmp_path, OutboxLimits(max_bytes=2 * size))
    put(outbox, key(2))
    with pytest.raises(
        OutboxError, match=rf"{tmp_path} is full: it holds {2 * size} bytes, .*outbox_max_bytes"
    ):
        put(outbox, key(3))
    assert [entry.manifest.key.try_number for entry in outbox.entries()] == [1, 2]
    next(outbox.entries()).discard()
    put(outbox_at(tmp_path, outbox.limits), key(3))


def test_the_quarantine_counts_and_receipts_do_not(tmp_path: Path) -> None:
    first, second = put(outbox_at(tmp_path)), put(outbox_at(tmp_path), key(2))
    size = Path(str(first)).stat().st_size
    outbox = outbox_at(tmp_path, OutboxLimits(max_bytes=size + 100))
    first.quarantine("no")
    second.settle(Delivery(3), second.items())
    with pytest.raises(OutboxError, match="is full"):
        put(outbox, key(3))
    for path in files(tmp_path / "quarantined"):
        path.unlink()
    put(outbox_at(tmp_path, outbox.limits), key(3))


def test_a_full_outbox_takes_no_finished_entry(tmp_path: Path) -> None:
    begun, _ = outbox_at(tmp_path).begin(key(), connection_id="c", events=None, redo={})
    full = replace(begun, outbox=outbox_at(tmp_path, OutboxLimits(max_bytes=1)))
    with pytest.raises(OutboxError, match="is full"):
        full.finish(upserts(1), spark_succeeded=True)
    assert list(outbox_at(tmp_path).entries()) == [begun]


class Counting(LocalStorage):
    """Storage that remembers which folders were listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed: list[str] = []

    def _list(self, folder: str) -> Any:
        self.listed.append(folder)
        return super()._list(folder)


def test_a_process_measures_the_outbox_once_a_minute(tmp_path: Path) -> None:
    storage = Counting(tmp_path)
    outbox = Outbox(storage)
    put(outbox_at(tmp_path), key(task_id="other"))
    begun, _ = outbox.begin(key(), connection_id="datahub", events=None, redo={})
    assert {"pending", "quarantined", "corrupt"} <= {*storage.listed}
    storage.listed.clear()
    entry = begun.finish(upserts(3), spark_succeeded=True)
    entry.settle(Delivery(3), entry.items())
    outbox.expire_receipts(key().task)
    assert {*storage.listed} == {f"receipts/{key().task}"}


def test_an_outbox_that_cannot_be_listed_takes_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a store with a hundred thousand entries, whose listing takes longer than a task may wait.
    outbox = outbox_at(tmp_path, OutboxLimits(max_bytes=2_000))

    def hang(_: str) -> dict[str, int]:
        raise TimeoutError(errno.ETIMEDOUT, "no answer within 4 s")

    monkeypatch.setattr(outbox.storage, "stored", hang)
    put(outbox, proposals=1)
    with pytest.raises(OutboxError, match="is full"):
        put(outbox, proposals=20)


def test_a_nearly_full_disk_takes_leases_and_receipts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What drains need stays free; copies of delivered proposals and old receipts give way.
    outbox, free = outbox_at(tmp_path), {"beside copies": 2**30}
    begun, _ = outbox.begin(key(), connection_id="datahub", events=None, redo={})
    for number in range(4):
        outbox.storage.write(f"delivered/task-{9 - number}/{number}-try.jsonl.gz", [bytes(12_288)])

    def disk(_: object) -> SimpleNamespace:
        copies = sum(outbox.storage.stored("delivered").values())
        return SimpleNamespace(f_bavail=free["beside copies"] - copies, f_blocks=2**40, f_frsize=1)

    monkeypatch.setattr(os, "statvfs", disk)
    free["beside copies"] = 2**20 + 50_000
    put(outbox_at(tmp_path), key(2))
    assert outbox.storage.names("delivered") == []
    free["beside copies"] = 2**20
    with pytest.raises(OutboxError, match="is nearly full: 1048576 bytes are left"):
        put(outbox_at(tmp_path), key(3))
    converted = begun.finish(upserts(3), spark_succeeded=True)
    free["beside copies"] = 2**18
    with pytest.raises(OutboxError, match="drains need 262144 of them"):
        replace(begun, outbox=outbox_at(tmp_path)).finish(upserts(3), spark_succeeded=True)
    lease = Lease.take(outbox.storage, begun.name.group)
    assert lease is not None
    with lease:
        assert converted.settle(Delivery(3), converted.items()) is None
    assert outbox.storage.names("delivered") == []


# -- what cannot be read


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[:0], "has no end"),
        (lambda content: content[:100], "has no end"),
        (lambda content: content[:-1], "bytes follow its first line, which announces"),
        (
            lambda content: content[: content.rstrip().rfind(b"\n") + 1],
            "bytes follow its first line",
        ),
        (lambda content: b"\x00" * len(content), "has no end"),
        (lambda content: b"\x00" * 99 + content, "not valid JSON"),
        (lambda content: b"\xff\xfe" + content, "not valid JSON"),
        (lambda _: b"[" * 100_000, "has no end"),
        (lambda content: b"[" * 100_000 + content, "not valid JSON"),
        (lambda content: b"[]\n" + content, "not a manifest"),
        (lambda content: content.replace(b'"dag_id"', b'"dag"', 1), "does not match its checksum"),
        (
            lambda content: content.replace(b'"version":3', b'"version":2', 1),
            "does not match its checksum",
        ),
        (
            lambda content: content.replace(b'"entityUrn"', b'"entityUrm"', 1),
            "do not match their checksum",
        ),
    ],
)
def test_a_corrupt_entry_is_set_aside_with_the_reason(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    outbox, sink = outbox_at(tmp_path), Recording()
    good, bad = put(outbox, key(2)), put(outbox, key(1))
    path = Path(str(bad))
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(EntryFormatError, match=reason):
        bad.items()
    drained = Drain(outbox, lambda _: (sink, None)).run([bad.name, good.name])
    assert len(sink.arrived) == 3
    assert (drained.settled, drained.waiting) == (1, 0)
    aside, why = files(tmp_path / "corrupt")
    assert aside.read_bytes() == damaged
    assert reason in why.read_text()
    assert not path.exists()


@cases("outbox")
def test_a_manifest_with_a_wrong_field_is_set_aside(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    outbox = outbox_at(tmp_path)
    entry = put(outbox, proposals=[])
    fields = structs.asdict(entry.manifest) | changes
    content = seal({name: value for name, value in fields.items() if value != "(absent)"})
    Path(str(entry)).write_bytes(content)
    assert Drain(outbox, lambda _: (Recording(), None)).run([entry.name]).settled == 0
    (text,) = [path.read_text() for path in files(tmp_path / "corrupt") if path.suffix == ".txt"]
    assert reason in text
    assert outbox.names() == []


def test_the_fields_of_a_later_release_are_kept(tmp_path: Path) -> None:
    """After a rollback of a release, the entries are still good."""
    outbox, sink = outbox_at(tmp_path), Recording()
    entry = put(outbox, proposals=2)
    manifest, *lines = Path(str(entry)).read_bytes().splitlines(keepends=True)
    fields = {
        name: value
        for name, value in json.loads(manifest).items()
        if name not in ("body", "sha256")
    }
    line = seal({**fields, "more": [1]}, lines)
    Path(str(entry)).write_bytes(line + b"".join(lines))
    (read,) = outbox.entries()
    read.update(awaits_retry=True)
    (manifest, *_) = Path(str(entry)).read_bytes().splitlines()
    assert json.loads(manifest)["more"] == [1]
    assert Drain(outbox, lambda _: (sink, None)).run().settled == 1
    assert len(sink.arrived) == 2


def test_a_proposal_with_a_wrong_part_cannot_be_read(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    entry = put(outbox, proposals=1)
    wrong = {
        "entityType": [1],
        "entityUrn": [1],
        "changeType": [1],
        "aspectName": [1],
        "aspect": [1],
    }
    for part, value in (*wrong.items(), ("changeType", "DELETE")):
        line = json.dumps({**upserts(1)[0].to_obj(), part: value}).encode() + b"\n"
        Path(str(entry)).write_bytes(seal(entry.manifest, [line]) + line)
        with pytest.raises(
            EntryFormatError, match=f"is not a proposal: .*{part}|has the change type 'DELETE'"
        ):
            entry.items()


def test_an_entry_that_its_task_replaced_meanwhile_is_not_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The task wrote a whole entry between the reading of the damaged one and its move.
    outbox = outbox_at(tmp_path)
    entry = put(outbox)
    whole = Path(str(entry)).read_bytes()
    first_line = outbox.storage.first_line

    def read_damaged(name: str) -> tuple[bytes, int]:
        return (b"", 0) if name == entry.name.path else first_line(name)

    monkeypatch.setattr(outbox.storage, "first_line", read_damaged)
    assert list(outbox.entries()) == []
    assert [(path, path.read_bytes()) for path in files(tmp_path)] == [(Path(str(entry)), whole)]


@pytest.mark.parametrize("version", [2, 4])
def test_an_entry_of_another_version_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            "airflow_provider_spark_datahub.delivery.outbox.format._FORMAT_VERSION", version
        )
        path = Path(str(put(outbox_at(tmp_path))))
    if version == 2:  # without checksums
        path.write_bytes(b'{"format": "spark-datahub-outbox", "version": 2, "key": {}}\n')
    assert list(outbox_at(tmp_path).entries()) == []
    assert path.exists()
    assert f"version {version} of the format, not 3" in caplog.text


def test_an_outbox_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OutboxError, match=rf"Cannot write to the outbox {tmp_path}/file: Not a directory"
    ):
        put(outbox_at(tmp_path / "file"))


def test_an_entry_that_cannot_be_read_or_moved_is_logged_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = outbox_at(tmp_path)
    unreadable, bad, good = (put(outbox, key(number)) for number in (1, 2, 3))
    Path(str(unreadable)).unlink()
    Path(str(unreadable)).symlink_to(tmp_path)
    Path(str(bad)).write_bytes(b"")
    (tmp_path / "corrupt").write_text("in the way")
    assert list(outbox.entries()) == [good]
    assert (
        f"{unreadable} is corrupt ({unreadable} is not a regular file (lrwxrwxrwx)) and cannot be moved"
        in caplog.text
    )
    assert f"{bad} is corrupt" in caplog.text

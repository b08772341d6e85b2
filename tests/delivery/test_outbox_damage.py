"""An outbox with damaged files: nothing crashes, nothing is delivered altered, and the undamaged
entries go on.
"""

from __future__ import annotations

import json
import os
import random
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.delivery import Delivery, Rejection
from airflow_provider_spark_datahub.delivery.outbox import (
    Drain,
    EdgeRecord,
    EdgeRecords,
    Entry,
    Folder,
    Lease,
    LocalStorage,
    Outbox,
    OutboxLimits,
    OutboxRecords,
)
from tests.delivery.outboxes import MemoryStorage, Recording, key, outbox_at, put
from tests.delivery.samples import patch, upsert

FLIPS = 2_000


def text_of(item: Proposal) -> str:
    return json.dumps(item.to_obj(), sort_keys=True)


@dataclass
class Sample:
    """An outbox with files of every kind.

    :param kinds: for each kind of file, the names of one that is damaged and of one that stays
        whole.
    :param promised: for the name of each file, what has to arrive as long as it is whole.
    """

    objects: dict[str, bytes]
    kinds: dict[str, tuple[str, str]]
    promised: dict[str, list[str]]


def sample() -> Sample:
    storage = MemoryStorage()
    outbox = Outbox(storage)
    kinds: dict[str, list[str]] = {}
    promised: dict[str, list[str]] = {}

    def remember(kind: str, name: str, items: Sequence[Proposal] = ()) -> None:
        kinds.setdefault(kind, []).append(name)
        promised[name] = [text_of(item) for item in items]

    for twin in ("victim", "whole"):
        items = [
            upsert(f"{twin}-a", "größe"),
            patch(f"{twin}-a"),
            upsert(f"{twin}-b", "half \ud800 pair"),
        ]
        remember("entry", put(outbox, key(task_id=f"{twin}-entry"), items).name.path, items)
        redo = {"name": f"{twin}-redo", "number": 1.5}
        begun, _ = outbox.begin(
            key(task_id=f"{twin}-redo"), connection_id="datahub", events="/x", redo=redo
        )
        remember("unfinished", begun.name.path, [upsert(f"{twin}-redo", "1.5")])
        parts = [upsert(f"{twin}-good"), upsert(f"{twin}-bad")]
        partly = put(outbox, key(task_id=f"{twin}-parts"), parts)
        before = {*storage.objects}
        rest = partly.settle(Delivery(0, (Rejection(parts[1], "no"),), (parts[0],), "later"), parts)
        assert rest is not None
        (quarantined,) = {*storage.objects} - before
        remember("quarantine", quarantined, parts[1:])
        remember("rest", rest.name.path, parts[:1])
        done = put(outbox, key(2, task_id=f"{twin}-done"), [upsert(f"{twin}-new")])
        before = {*storage.objects}
        done.settle(Delivery(1, stored=True), done.items())
        (receipt,) = {
            name for name in {*storage.objects} - before if not name.startswith("delivered/")
        }
        remember("receipt", receipt)
        lease = Lease.take(storage, (f"{twin}-nobody", "00000000"))
        assert lease is not None
        remember("lease", lease.name)
    return Sample(
        storage.objects, {kind: (one, two) for kind, (one, two) in kinds.items()}, promised
    )


def finish(entry: Entry, _: bool) -> Entry:
    redo = entry.manifest.redo
    assert redo is not None
    return entry.finish([upsert(redo["name"], str(redo["number"]))], spark_succeeded=True)


def deliver_everything(outbox: Outbox) -> list[str]:
    """Read, requeue and drain everything, as `pending`, `requeue` and `emit` do."""
    sink = Recording()
    assert all(entry.manifest for entry in outbox.entries())
    for quarantined in list(outbox.quarantined()):
        outbox.requeue(quarantined)
    Drain(outbox, lambda _: (sink, None), finish=finish, sleep=lambda _: None).run()
    return [text_of(item) for item in sink.arrived]


def flipped(content: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(content)
    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


NOT_FILES: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "a folder": Path.mkdir,
}


@pytest.mark.slow
def test_flipped_bits_stop_no_drain_and_are_never_delivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # No single bit of any file stops a drain, or reaches DataHub; the file with the bit is set
    # aside.
    caplog.set_level("CRITICAL")
    whole, chance = sample(), random.Random(20260101)
    every = sorted(text for texts in whole.promised.values() for text in texts)
    victims = [victim for victim, _ in whole.kinds.values()]
    assert sorted(deliver_everything(Outbox(MemoryStorage(dict(whole.objects))))) == every
    rounds = -(-FLIPS // len(victims))
    for _ in range(rounds):
        storage = MemoryStorage(dict(whole.objects))
        for victim in victims:
            storage.objects[victim] = flipped(storage.objects[victim], chance)
        arrived = deliver_everything(Outbox(storage))
        assert {*arrived} <= {*every}, "delivered altered"
        must = [
            text for name, texts in whole.promised.items() if name not in victims for text in texts
        ]
        assert not {*must} - {*arrived}, "an undamaged entry was not delivered"
        set_aside = [
            name
            for name in storage.objects
            if name.startswith("corrupt/") and name.endswith(".jsonl")
        ]
        assert len(set_aside) == sum(bool(whole.promised[victim]) for victim in victims)
        assert not [name for name in storage.objects if name.startswith("pending/")]


@pytest.mark.slow
def test_flipped_bits_beside_the_entries(caplog: pytest.LogCaptureFixture) -> None:
    # Edges, parts of receipts, the copies that pages show: read as they were, or not at all.
    caplog.set_level("CRITICAL")
    storage, chance = MemoryStorage(), random.Random(20260102)
    edges = EdgeRecord(
        key(), "datahub", 1_000, 1_000, {"urn:li:dataJob:x": ("/inputDatasetEdges/a",)}
    )
    EdgeRecords(storage).write(edges, max_age=1e9)
    outbox = Outbox(storage)
    older, newer = [upsert("job", "1"), upsert("own", "1")], [upsert("job", "2")]
    put(outbox, key(run_id="older"), older)
    newest = put(outbox, key(run_id="newer"), [*newer, upsert("late")])
    newest.settle(Delivery(1, (), (upsert("late"),), "later"), newest.items())
    kinds = ("edges/", ".part.json", "delivered/")
    victims = [name for name in storage.objects if any(kind in name for kind in kinds)]
    assert len(victims) == len(kinds)
    for victim in victims * 60:
        damaged = MemoryStorage(dict(storage.objects))
        damaged.objects[victim] = flipped(storage.objects[victim], chance)
        records = OutboxRecords(Outbox(damaged)).of([key(run_id="newer")])
        shown = {text_of(item) for record in records for item in record.proposals}
        assert {text_of(upsert("late"))} <= shown <= {*map(text_of, (*newer, upsert("late")))}
        assert EdgeRecords(damaged).of_task(edges.key.dag_id, edges.key.task_id, "datahub") in (
            [],
            [edges],
        )
        arrived = deliver_everything(Outbox(damaged))
        assert (
            {*map(text_of, (older[1], upsert("late")))}
            <= {*arrived}
            <= {*map(text_of, (*older, upsert("late")))}
        )


@pytest.mark.slow
def test_names_that_are_not_regular_files_are_never_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Opening a FIFO would block for ever. Nothing of the kind is opened, wherever it is in an
    # outbox.
    caplog.set_level("CRITICAL")
    whole = sample()
    for number, make in enumerate(NOT_FILES.values()):
        root = tmp_path / str(number)
        for name, content in whole.objects.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        for victim, _ in whole.kinds.values():
            (root / victim).unlink()
            make(root / victim)
        arrived = deliver_everything(Outbox(LocalStorage(root)))
        victims = {victim for victim, _ in whole.kinds.values()}
        assert sorted(arrived) == sorted(
            text for name, texts in whole.promised.items() if name not in victims for text in texts
        )


@pytest.mark.slow
@pytest.mark.parametrize("keeps_content", [False, True])
def test_files_larger_than_the_memory_are_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keeps_content: bool
) -> None:
    # One in the place of each kind of file costs only itself, whether or not its first line ends.
    whole = sample()
    for name, content in whole.objects.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    victims = {victim for victim, _ in whole.kinds.values()}
    for victim in victims:
        if not keeps_content:
            (tmp_path / victim).write_bytes(b"")
        os.truncate(tmp_path / victim, 2**40)
    outbox = Outbox(LocalStorage(tmp_path))
    shown = {record.key.task_id for record in OutboxRecords(outbox).newest(None)}
    assert shown >= {"whole-entry", "whole-parts", "whole-done"}
    arrived = deliver_everything(outbox)
    assert sorted(arrived) == sorted(
        text for name, texts in whole.promised.items() if name not in victims for text in texts
    )
    assert outbox.receipts._read_receipt(whole.kinds["receipt"][0]) is None
    warnings = "\n".join(record.getMessage() for record in caplog.records)
    assert (
        "bytes follow its first line" in warnings
        if keeps_content
        else "its first line has no end" in warnings
    )
    assert f"has {2**40} bytes, and at most {2**26} are read" in warnings


def test_a_large_entry_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is larger than the limit for any other file, and the outbox's limit has been lowered since.
    entry = put(Outbox(LocalStorage(tmp_path)), proposals=50)
    entry.quarantine("no")
    put(Outbox(LocalStorage(tmp_path)), proposals=50)
    monkeypatch.setattr(LocalStorage, "read", partialmethod(_read_little, LocalStorage.read))
    outbox, sink = Outbox(LocalStorage(tmp_path), OutboxLimits(max_bytes=1)), Recording()
    for quarantined in list(outbox.quarantined()):
        outbox.requeue(quarantined)
    assert Drain(outbox, lambda _: (sink, None)).run().settled == 2
    assert len(sink.arrived) == 100


def _read_little(
    storage: LocalStorage, read: Callable[..., bytes], name: str, *, most: int = 2_000
) -> bytes:
    return read(storage, name, most=most)


def test_foreign_folders_hide_no_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither endless depth, nor names that are not text, nor a folder that cannot be listed hides
    # the entries.
    outbox = Outbox(LocalStorage(tmp_path))
    entry = put(outbox)
    Path(os.fsdecode(os.fsencode(tmp_path / "pending") + b"/\xff\xfe" + b"/d" * 300)).mkdir(
        parents=True
    )
    (tmp_path / "pending/locked").mkdir()
    (tmp_path / entry.name.path.replace("try-00001", "try-" + "9" * 200)).write_bytes(b"")
    (
        tmp_path / entry.name.path.replace("try-00001", "try-\u0661\u0661\u0661\u0661\u0661")
    ).write_bytes(b"")
    scandir = os.scandir

    def refuse(path: str | Path) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert list(outbox.entries()) == [entry]


@pytest.mark.parametrize("kind", ["file", "fifo", "loop"])
@pytest.mark.parametrize(
    "folder", [Folder.PENDING, Folder.RECEIPTS, Folder.DELIVERED, Folder.QUARANTINED]
)
def test_something_else_in_place_of_a_folder_stops_no_drain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, folder: Folder, kind: str
) -> None:
    outbox, sink = outbox_at(tmp_path), Recording()
    if folder != Folder.PENDING:
        put(outbox)
    place = tmp_path / folder
    match kind:
        case "file":
            place.touch()
        case "fifo":
            os.mkfifo(place)
        case _:
            place.symlink_to(place)
    drained = Drain(outbox, lambda _: (sink, None)).run()
    assert len(sink.arrived) == (0 if folder == Folder.PENDING else 3)
    assert drained.settled == (folder in (Folder.DELIVERED, Folder.QUARANTINED))
    assert f"{place} is not a folder" in caplog.text or "Could not keep" in caplog.text

"""The storage of an outbox: in a folder, on fsspec's memory file system, and on one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import Deadline, deadline
from airflow_provider_spark_datahub.delivery.outbox import (
    Drain,
    LocalStorage,
    ObjectStorage,
    Outbox,
    OutboxError,
    storage as outbox_storage,
)
from airflow_provider_spark_datahub.delivery.outbox.storage import OutboxStorage
from airflow_provider_spark_datahub.foundation.files import TooLargeFileError
from tests.delivery.outboxes import files, put
from tests.patience import HANGS, at_once, hanging_disk, not_outlasting


@pytest.fixture
def store(request: pytest.FixtureRequest) -> ObjectStorage:
    root = f"/{request.node.name}"
    memory: Any = import_module("fsspec.implementations.memory")  # has no types
    return ObjectStorage(memory.MemoryFileSystem(), root, f"memory:/{root}")


@pytest.fixture(params=["folder", "store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> OutboxStorage:
    if request.param == "folder":
        return LocalStorage(tmp_path / "root")
    found: OutboxStorage = request.getfixturevalue("store")
    return found


def test_written_objects_are_listed_and_read(storage: OutboxStorage) -> None:
    storage.write("b/2", [b"t", b"wo"])
    storage.write("b/1/x", [b"one"])
    storage.write("bc/3", [])
    assert storage.stored("b") == {"b/1/x": 3, "b/2": 3}
    assert storage.names("b") == ["b/1/x", "b/2"]
    assert storage.stored("missing") == {}
    storage.write("b/1/x", [b"replaced"])
    assert storage.read("b/1/x") == b"replaced"
    assert storage.describe("b/2") == f"{storage.describe()}/b/2"


def test_several_objects_and_parts_of_one_are_read_at_once(store: ObjectStorage) -> None:
    store.write("b/2", [b"two"])
    assert store.read_range("b/2", 1, 99) == b"wo"
    found, missing = store.read_all(["b/2", "b/3"])
    assert found == b"two"
    assert isinstance(missing, FileNotFoundError)


def test_missing_objects_raise_file_not_found(storage: OutboxStorage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("a/b")
    with pytest.raises(FileNotFoundError):
        storage.move("a/b", "c")
    storage.remove("a/b")


def test_objects_are_moved(storage: OutboxStorage) -> None:
    storage.write("a/1", [b"x"])
    storage.move("a/1", "b/1")
    assert (storage.read("b/1"), storage.stored("a")) == (b"x", {})


# -- in a folder


def test_drafts_are_not_listed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.write("a/1", [b""])
    (tmp_path / "a/.0123.draft").write_text("half")
    assert storage.stored("a") == {"a/1": 0}


def test_what_killed_writers_left_is_removed_by_the_next_drain(tmp_path: Path) -> None:
    """A draft of a living writer stays, and counts for the limit; of another machine, until it is
    an hour old.
    """
    outbox = Outbox(LocalStorage(tmp_path))
    program = (
        "import os, sys; from pathlib import Path\n"
        "from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage\n"
        "def chunks():\n"
        "    yield bytes(3_000_000); print(flush=True); sys.stdin.read(); os.kill(os.getpid(), 9)\n"
        "LocalStorage(Path(sys.argv[1])).write('pending/a/1', chunks())"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        (draft,) = tmp_path.glob("pending/a/.*.draft")
        assert outbox.measure() == draft.stat().st_size > 0
        writer.communicate()
    others = tmp_path / "pending/b/.0123456789abcdef.0123456789ab-1-1.draft"
    others.parent.mkdir(0o700)
    others.write_bytes(b"half")
    administrators = tmp_path / "pending/shared"
    for folder, mode in ((tmp_path / "pending/empty", 0o700), (administrators, 0o2775)):
        folder.mkdir()
        folder.chmod(mode)
    Drain(outbox, lambda _: (None, None)).run()
    assert sorted(path.name for path in tmp_path.glob("pending/*")) == ["b", "empty", "shared"]
    for path in (others, tmp_path / "pending/empty", administrators):
        os.utime(path, (1, 1))
    Drain(outbox, lambda _: (None, None)).run()
    assert list(tmp_path.glob("pending/*")) == [administrators]
    administrators.rmdir()
    (tmp_path / "pending").rmdir()
    os.utime(tmp_path, (1, 1))
    outbox.storage.remove_drafts()
    assert tmp_path.is_dir(), "the outbox itself"


def test_moving_and_removing_leave_no_empty_folders(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.write("a/b/1", [b"x"])
    storage.move("a/b/1", "c/d/2")
    assert (storage.read("c/d/2"), files(tmp_path)) == (b"x", [tmp_path / "c/d/2"])
    assert not (tmp_path / "a").exists()
    storage.remove("c/d/2")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_others_remove_is_made_again(tmp_path: Path) -> None:
    storage, failed = LocalStorage(tmp_path), []

    def work(number: int) -> None:
        try:
            for _ in range(50):
                storage.write(f"a/b/{number}", [b"x"])
                storage.stored("a")
                storage.remove(f"a/b/{number}")
        except OSError as error:
            failed.append(error)

    at_once([partial(work, number) for number in range(4)])
    assert failed == []


def hold(patched: pytest.MonkeyPatch, *names: str) -> threading.Event:
    """Make steps of the disk wait for an event."""
    goes_on = threading.Event()

    def held(step: Callable[..., object]) -> Callable[..., object]:
        def wait(*arguments: object) -> object:
            assert goes_on.wait(HANGS)
            return step(*arguments)

        return wait

    for name in names:
        patched.setattr(os, name, held(getattr(os, name)))
    return goes_on


def noted(patched: pytest.MonkeyPatch, *names: str) -> threading.Event:
    """Return an event that one of these steps of the disk sets at its end."""
    ended = threading.Event()

    def note(step: Callable[[str], None], path: str) -> None:
        try:
            step(path)
        finally:
            ended.set()

    for name in names:
        patched.setattr(os, name, partial(note, getattr(os, name)))
    return ended


def test_a_disk_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What it writes later does not replace something newer.
    storage = LocalStorage(tmp_path)
    (tmp_path / "records").mkdir()
    storage.deadline = Deadline.after(0.2)
    with monkeypatch.context() as patched:
        goes_on, ended = hold(patched, "fsync"), noted(patched, "unlink")
        with not_outlasting(0.2), pytest.raises(TimeoutError, match=r"no answer within 0\.5 s"):
            storage.write("records/x", [b"older"])
        storage.deadline = None
        storage.write("records/x", [b"newer"], sync=False)
        goes_on.set()
        assert ended.wait(HANGS)
    assert storage.read("records/x") == b"newer"
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["x"]


@pytest.mark.slow
def test_a_disk_that_hangs_amid_a_removal_or_a_rename_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    calls: list[Callable[[], None]] = [
        lambda: storage.remove("leases/1"),
        lambda: storage.move("leases/1", "leases/2"),
    ]
    storage.write("leases/1", [b"x"])
    with monkeypatch.context() as patched:
        goes_on = hold(patched, "unlink", "replace")
        for call in calls:
            storage.deadline = Deadline.after(0.2)
            with not_outlasting(0.2), pytest.raises(TimeoutError, match=r"no answer within 0\.5 s"):
                call()
        goes_on.set()


def test_a_rename_that_was_left_behind_removes_nothing_that_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Probably how a soak lost two attempts: a process gave up a record, and took it again while the
    # disk hung.
    storage = LocalStorage(tmp_path)
    storage.write("records/mine", [b"x"])
    with monkeypatch.context() as patched:
        goes_on = hold(patched, "fsync")
        storage.deadline = Deadline.after(0.2)
        with not_outlasting(0.2), pytest.raises(TimeoutError):
            storage.move("records/mine", "records/nobody")
        (tmp_path / "records/nobody").replace(tmp_path / "records/mine")
        ended = noted(patched, "unlink", "rmdir")
        goes_on.set()
        assert ended.wait(HANGS)
        storage.deadline = None
        assert storage.read("records/mine") == b"x"


@pytest.mark.slow
def test_no_step_waits_for_a_disk_that_hangs(tmp_path: Path) -> None:
    # And many steps wait no longer than one, until it is back or somebody has a new deadline.
    storage = LocalStorage(tmp_path)
    storage.write("pending/1", [b"first\nsecond"])
    steps: dict[str, Callable[[], object]] = {
        "stored": lambda: storage.stored("pending"),
        "names": lambda: storage.names("pending"),
        "read": lambda: storage.read("pending/1"),
        "first_line": lambda: storage.first_line("pending/1"),
        "write": lambda: storage.write("pending/1", [b"first\nsecond"]),
        "sync": lambda: storage.sync(["pending/1"]),
    }
    for name, step in steps.items():
        expected, storage.deadline = step(), Deadline.after(0.2)
        with hanging_disk(tmp_path) as asked:
            for _ in range(int(2 * HANGS)):  # half a second each
                with pytest.raises(TimeoutError, match=r"no answer within 0\.5 s"):
                    step()
        assert len(asked) == 1, name
        deadline = Deadline.after(HANGS)
        while storage.deadline is not None:
            try:
                assert step() == expected
                storage.deadline = None
            except TimeoutError:  # the step that was left behind has not ended
                assert not deadline.expired, name


# -- in an object store


def test_a_large_object_is_not_read(store: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its size is that of the latest listing; the size of later writes is unknown.
    monkeypatch.setattr(outbox_storage, "_MOST_BYTES", 8)
    store.write("a/1", [b"first line\n", b"second"])
    store.write("a/2", [b"one\n", b"second"])
    store.stored("a")
    with pytest.raises(TooLargeFileError, match="a/1 has 17 bytes, and at most 16 are read"):
        store.read("a/1", most=16)
    assert store.read("a/1", most=17) == b"first line\nsecond"
    assert (store.first_line("a/1"), store.first_line("a/2")) == ((b"first li", 17), (b"one\n", 10))
    store.write("a/1", [b"new"])
    assert store.read("a/1", most=16) == b"new"


def failing(act: Callable[[], Any]) -> Any:
    """Return a file system whose calls do what the test says."""
    calls = ("find", "cat", "cat_file", "pipe_file", "rm_file", "modified")
    return SimpleNamespace(
        invalidate_cache=lambda _: None, **dict.fromkeys(calls, lambda *_, **__: act())
    )


class ClientError(Exception):
    """A client's own error."""


def test_client_errors_become_os_errors() -> None:
    def fail() -> None:
        raise ClientError("no such bucket")

    outbox = Outbox(ObjectStorage(failing(fail), "bucket/outbox", "s3://bucket/outbox"))
    with pytest.raises(
        OutboxError, match=r"the outbox s3://bucket/outbox: .*ClientError: no such bucket"
    ):
        put(outbox)


@pytest.mark.slow
def test_a_task_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "_REQUEST_SECONDS", 0.1)
    storage = ObjectStorage(failing(lambda: time.sleep(1)), "bucket", "s3://bucket")
    with pytest.raises(TimeoutError, match=r"s3://bucket/x: no answer within 0\.1 s"):
        storage.read("x")


@pytest.mark.slow
def test_a_step_takes_at_most_half_of_the_remaining_time() -> None:
    storage = ObjectStorage(failing(lambda: time.sleep(3)), "bucket", "s3://bucket")
    storage.deadline = Deadline(1.2, lambda: 0.0)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.6 s"):
        storage.write("x", [b""])


def test_a_client_that_does_not_know_when_an_object_was_written() -> None:
    def fail() -> None:
        raise NotImplementedError

    assert ObjectStorage(failing(fail), "bucket", "s3://bucket").modified_ms("x") is None

"""The storage of an outbox in an object store: on fsspec's memory file system, and on one that fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import Deadline, deadline
from airflow_provider_spark_datahub.delivery.outbox import (
    Lease,
    ObjectStorage,
    Outbox,
    OutboxError,
    storage as outbox_storage,
)
from airflow_provider_spark_datahub.delivery.outbox.entries import OutboxUsage
from airflow_provider_spark_datahub.files import TooLargeFileError
from tests.delivery.outboxes import put
from tests.patience import PATIENCE


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> ObjectStorage:
    root = f"/{request.node.name}"
    memory: Any = import_module("fsspec.implementations.memory")  # has no types
    return ObjectStorage(memory.MemoryFileSystem(), root, f"memory:/{root}")


def test_written_objects_are_listed_and_read(storage: ObjectStorage) -> None:
    storage.write("b/2", [b"t", b"wo"])
    storage.write("b/1/x", [b"one"])
    storage.write("bc/3", [])
    assert storage.stored("b") == {"b/1/x": 3, "b/2": 3}
    assert storage.stored("missing") == {}
    storage.write("b/1/x", [b"replaced"])
    assert storage.read("b/1/x") == b"replaced"
    assert storage.describe("b/2") == f"{storage.describe()}/b/2"
    assert storage.read_range("b/2", 1, 99) == b"wo"
    several = storage.read_all(["b/2", "b/3", "b/1/x"])
    assert [several[0], several[2]] == [b"two", b"replaced"]
    assert isinstance(several[1], FileNotFoundError)


def test_a_large_object_is_not_read(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its size is that of the latest listing; the size of later writes is unknown.
    monkeypatch.setattr(outbox_storage, "_MOST_BYTES", 8)
    storage.write("a/1", [b"first line\n", b"second"])
    storage.write("a/2", [b"one\n", b"second"])
    storage.stored("a")
    with pytest.raises(TooLargeFileError, match="a/1 has 17 bytes, and at most 16 are read"):
        storage.read("a/1", most=16)
    assert storage.read("a/1", most=17) == b"first line\nsecond"
    assert (storage.first_line("a/1"), storage.first_line("a/2")) == ((b"first li", 17), (b"one\n", 10))
    storage.write("a/1", [b"new"])
    assert storage.read("a/1", most=16) == b"new"


def test_missing_objects_raise_file_not_found(storage: ObjectStorage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("a/b")
    with pytest.raises(FileNotFoundError):
        storage.move("a/b", "c")
    storage.remove("a/b")


def test_objects_are_moved(storage: ObjectStorage) -> None:
    storage.write("a/1", [b"x"])
    storage.move("a/1", "b/1")
    assert (storage.read("b/1"), storage.stored("a")) == (b"x", {})


def failing(act: Callable[[], Any]) -> Any:
    """Return a file system whose calls do what the test says."""
    calls = ("find", "cat", "cat_file", "pipe_file", "rm_file", "modified")
    return SimpleNamespace(invalidate_cache=lambda _: None, **dict.fromkeys(calls, lambda *_, **__: act()))


class ClientError(Exception):
    """A client's own error."""


def test_client_errors_become_os_errors() -> None:
    def fail() -> None:
        raise ClientError("no such bucket")

    outbox = Outbox(ObjectStorage(failing(fail), "bucket/outbox", "s3://bucket/outbox"))
    with pytest.raises(OutboxError, match=r"the outbox s3://bucket/outbox: .*ClientError: no such bucket"):
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
    storage.deadline = Deadline.after(1.2, clock=lambda: 0.0)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.6 s"):
        storage.write("x", [b""])


def test_the_clock_is_that_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of this host and the store, the store is right; S3 says it in whole seconds, in answers and in listings.
    memory: Any = import_module("fsspec.implementations.memory")
    files, now = memory.MemoryFileSystem(), time.time
    moments = dict[str, datetime]()

    class Store(type(files)):  # type: ignore[misc]
        def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
            super().pipe_file(path, value, **options)
            moments[path] = datetime.fromtimestamp(int(now()), UTC)

        def modified(self, path: str) -> datetime:
            return moments[path]

        def find(self, path: str, **options: Any) -> dict[str, Any]:
            found = super().find(path, **options)
            return {name: {"size": info["size"], "LastModified": moments[name]} for name, info in found.items()}

    for ahead in (7_200.0, -7_200.0, 0.0):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: now() + ahead)
        storage = ObjectStorage(Store(), f"/clock{ahead}", "memory://clock")
        knew_time = storage.knows_time
        entry = put(Outbox(storage))
        assert (knew_time, storage.knows_time) == (False, True)
        assert abs(entry.name.created_ms - now() * 1000) < 1000 * PATIENCE
        lease = Lease.take(storage, entry.name.group)
        assert lease is not None
        monkeypatch.setattr(time, "time", now)
        assert Lease.take(ObjectStorage(Store(), f"/clock{ahead}", "memory://clock"), entry.name.group) is None
        lease.release()


def test_a_slow_store_is_no_store_whose_clock_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else this host would order its runs by the wrong time, and ignore receipts as from the future.
    memory: Any = import_module("fsspec.implementations.memory")
    clock, written = [time.time()], [0.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])

    class Slow(memory.MemoryFileSystem):  # type: ignore[misc]
        def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
            super().pipe_file(path, value, **options)
            written[0] = clock[0] + 0.5
            clock[0] += 5.0

        def modified(self, path: str) -> datetime:  # noqa: ARG002 (as in the class)
            return datetime.fromtimestamp(written[0], UTC)

    storage = ObjectStorage(Slow(), "/slow", "memory://slow")
    OutboxUsage(storage).observe_time()
    assert (storage.knows_time, storage.now_ms()) == (True, round(clock[0] * 1000))


def test_without_the_stores_clock_the_hosts_is_used() -> None:
    def fail() -> None:
        raise NotImplementedError

    storage = ObjectStorage(failing(fail), "bucket", "s3://bucket")
    storage.observe_time("x", time.time())
    assert (storage.knows_time, storage.modified_ms("x")) == (True, None)

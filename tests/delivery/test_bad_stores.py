"""An outbox in an object store that lists late, or refuses every few requests for their number."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, cast

import pytest

from airflow_provider_spark_datahub.delivery.outbox import Drain, ObjectStorage, Outbox, OutboxError
from tests.delivery.outboxes import Recording, key, put
from tests.delivery.samples import upsert
from tests.patience import at_once

ENTRIES, DRAINERS = 20, 3


class BadStore:
    """Objects in memory.

    :param late: seconds for which a listing lacks new objects, and shows removed ones.
    :param throttled: part of the requests that are refused.
    """

    def __init__(self, late: float, throttled: float) -> None:
        memory: Any = import_module("fsspec.implementations.memory")  # has no types
        self._fs, self.late, self.throttled = memory.MemoryFileSystem(), late, throttled
        self._written: dict[str, float] = {}
        self._removed: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._random, self._lock = random.Random(1), threading.Lock()
        self.calls: Counter[str] = Counter()

    def invalidate_cache(self, _: str) -> None:
        return None

    def find(self, path: str, *, detail: bool) -> Mapping[str, Mapping[str, Any]]:
        with self._lock:
            self._count("find")
            since = time.monotonic() - self.late
            listed = {
                name: info
                for name, info in self._fs.find(path, detail=detail).items()
                if self._written[name] <= since
            }
            gone = {
                name: info
                for name, (at, info) in self._removed.items()
                if at > since and name.startswith(path)
            }
            return {**gone, **listed}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        with self._lock:
            self._count("get")
            content: bytes = self._fs.cat_file(path, start=start, end=end)
            return content

    def pipe_file(self, path: str, value: bytes) -> None:
        with self._lock:
            self._count("put")
            self._fs.pipe_file(path, value)
            self._written[path] = time.monotonic()
            self._removed.pop(path, None)

    def rm_file(self, path: str) -> None:
        with self._lock:
            self._count("delete")
            info = self._fs.info(path)
            self._fs.rm_file(path)
            self._removed[path] = time.monotonic(), info

    def _count(self, call: str) -> None:
        self.calls[call] += 1
        if self._random.random() < self.throttled:
            self.calls["refused"] += 1
            raise OSError("SlowDown: Please reduce your request rate.")


@pytest.mark.slow
@pytest.mark.parametrize(("late", "throttled"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (0.3, 0.1)])
def test_a_store_that_lists_late_or_throttles_loses_nothing(late: float, throttled: float) -> None:
    """Drainers find each other's leases in listings: if these are late, each of them may deliver an
    entry.
    """
    store, sink, kept = BadStore(late, throttled), Recording(), []

    def opened() -> Outbox:
        return Outbox(ObjectStorage(cast("Any", store), f"/bad-{late}-{throttled}", "bad://store"))

    def drain() -> None:
        for _ in range(20):
            with suppress(OSError):
                Drain(opened(), lambda _: (sink, None)).run()
            time.sleep(0.05)

    for number in range(ENTRIES):
        with suppress(OutboxError):
            put(opened(), key(task_id=f"task{number}"), [upsert(str(number))])
            kept.append(str(number))
    at_once([drain] * DRAINERS)
    store.late = store.throttled = 0.0
    drain()
    assert opened().names() == []
    delivered = Counter(sink.names)
    assert len(kept) >= ENTRIES / 4
    assert set(kept) <= set(delivered)
    # Each drainer may deliver an entry if listings are late, and again if the store refused to
    # settle it.
    again = sum(delivered.values()) - len(delivered)
    assert again <= store.calls["refused"] + ((DRAINERS - 1) * len(delivered) if late else 0)

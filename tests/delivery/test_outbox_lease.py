"""Leases: never two holders, and none that outlives its holder for long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.format import seal, unseal
from airflow_provider_spark_datahub.delivery.outbox.lease import Lease
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
from tests.delivery.outboxes import files

GROUP = ("shop.build-0123", "89abcdef")


def taken(storage: LocalStorage, seconds: float = 60.0) -> Lease:
    lease = Lease.take(storage, GROUP, seconds)
    assert lease is not None
    return lease


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with taken(storage):
        assert Lease.take(storage, GROUP) is None
        assert Lease.take(storage, ("shop.load-4567", "89abcdef")) is not None
    assert taken(storage).until.remaining() > 50


def test_nothing_is_left_of_a_lease(tmp_path: Path) -> None:
    with taken(LocalStorage(tmp_path)):
        assert len(files(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []


def test_of_two_simultaneous_takers_at_most_one_holds_it(tmp_path: Path) -> None:
    """Each writes when the other has already looked: both must see the other then."""

    class Meeting(LocalStorage):
        barrier = threading.Barrier(2, timeout=20)

        def stored(self, folder: str) -> dict[str, int]:
            listed = super().stored(folder)
            if not listed:
                self.barrier.wait()
            return listed

    found: list[Lease | None] = []
    threads = [threading.Thread(target=lambda: found.append(Lease.take(Meeting(tmp_path), GROUP))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 2
    assert sum(lease is not None for lease in found) <= 1


def test_many_threads_never_hold_it_together(tmp_path: Path) -> None:
    storage, inside, together, turns = LocalStorage(tmp_path), [0], [0], [0]

    def work() -> None:
        for _ in range(5):
            lease = Lease.wait_for(storage, GROUP, Deadline.after(60), sleep=lambda _: time.sleep(0.001))
            assert lease is not None
            with lease:
                inside[0] += 1
                together[0] = max(together[0], inside[0])
                turns[0] += 1
                time.sleep(0.001)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (together, turns) == ([1], [30])


def test_it_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    lease = taken(storage, 60.0)
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    with taken(storage):
        assert not [path for path in files(tmp_path) if path.name in lease.name]


def test_its_holder_stops_before_others_may_begin(tmp_path: Path) -> None:
    lease = taken(LocalStorage(tmp_path), 0.05)
    assert lease.until.remaining() <= 0.05
    time.sleep(0.06)
    assert (lease.until.expired, lease.renew()) == (True, False)


def test_renewing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    lease = taken(storage, 0.4)
    assert lease.renew()
    assert lease.until.remaining() < 0.4  # more than half was left
    time.sleep(0.25)
    assert lease.renew()
    time.sleep(0.25)
    assert Lease.take(storage, GROUP) is None


def test_of_a_process_that_died_on_this_machine_it_is_not_respected(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.delivery.test_outbox_lease import *;"
        "assert Lease.take(LocalStorage(Path(sys.argv[1])), GROUP)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)
    assert len(files(tmp_path)) == 1
    taken(LocalStorage(tmp_path))
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("machine", ["another host", ""])
def test_leases_of_other_machines_are_respected(tmp_path: Path, machine: str) -> None:
    storage = LocalStorage(tmp_path)
    taken(storage)
    (path,) = files(tmp_path)
    holder, _ = unseal(path.read_bytes())
    path.write_bytes(seal({**holder, "machine": machine, "process": 2**22 + 1}))
    assert Lease.take(storage, GROUP) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"machine": 1, "process": 1, "expires_ms": "soon"}', b"\xff"])
def test_objects_that_are_not_leases_block_nobody(tmp_path: Path, content: bytes) -> None:
    storage = LocalStorage(tmp_path)
    storage.write(f"leases/{'.'.join(GROUP)}.x.json", [content])
    taken(storage)


def test_waiting_ends_with_the_deadline(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with taken(storage):
        assert Lease.wait_for(storage, GROUP, Deadline.after(0.2)) is None

"""Leases: never two holders, and none that outlives its holder for long."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.delivery import Deadline
from airflow_provider_spark_datahub.delivery.outbox import (
    Lease,
    LocalStorage,
    is_gone,
    lease as lease_module,
    machine,
    process_start,
)
from airflow_provider_spark_datahub.delivery.outbox.format import seal, unseal
from tests.delivery.outboxes import files
from tests.patience import HANGS, PATIENCE, at_once

GROUP = ("shop.build-0123", "89abcdef")


def taken(storage: LocalStorage, seconds: float = 60.0) -> Lease:
    lease = Lease.take(storage, GROUP, seconds=seconds)
    assert lease is not None
    return lease


def test_a_lease_has_one_holder_at_a_time(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with taken(storage):
        assert Lease.take(storage, GROUP) is None
        assert Lease.take(storage, ("shop.load-4567", "89abcdef")) is not None
    assert taken(storage).until.remaining() > 50


def test_exactly_one_of_simultaneous_takers_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each looks when all have written. If all gave way, drainers of a slow store would meet again
    # and again, and none would deliver anything.
    monkeypatch.setattr(lease_module, "_LOOKS", 3_000)
    all_together = threading.Barrier(3, timeout=PATIENCE)

    class Meeting(LocalStorage):
        listings = 0

        def names(self, folder: str) -> list[str]:
            self.listings += 1
            if self.listings == 2:
                all_together.wait()
            listed = super().names(folder)
            if self.listings == 1:  # before the write
                all_together.wait()
            return listed

    found: list[Lease | None] = []
    at_once([lambda: found.append(Lease.take(Meeting(tmp_path), GROUP))] * 3)
    assert len(found) == 3
    assert sum(lease is not None for lease in found) == 1


def test_a_lease_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)
    lease = taken(storage, 60.0)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    with taken(storage):
        assert not [path for path in files(tmp_path) if path.name in lease.name]


@pytest.mark.slow
def test_a_lease_can_be_renewed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    lease = taken(storage, 0.4)
    assert lease.renew()
    assert lease.until.remaining() < 0.4  # more than half was left
    time.sleep(0.25)
    assert lease.renew()
    time.sleep(0.25)
    assert Lease.take(storage, GROUP) is None


@pytest.mark.slow
def test_the_lease_of_a_dead_process_on_this_machine_is_ignored(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.delivery.test_outbox_lease import *;"
        "assert Lease.take(LocalStorage(Path(sys.argv[1])), GROUP)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)
    assert len(files(tmp_path)) == 1
    taken(LocalStorage(tmp_path))
    assert len(files(tmp_path)) == 1


def test_leases_of_other_machines_are_respected(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    taken(storage)
    (path,) = files(tmp_path)
    holder, _ = unseal(path.read_bytes(), dict)
    path.write_bytes(seal({**holder, "owner": f"{'0' * 12}-{2**22 + 1}-0"}))
    assert Lease.take(storage, GROUP) is None


def test_a_lease_is_respected_for_an_hour_at_most(tmp_path: Path) -> None:
    # Whatever it says: its clock was wrong, or it was made up.
    storage = LocalStorage(tmp_path)
    year_ms = 31_536_000_000
    now_ms = time.time_ns() // 10**6
    holder = {"owner": f"{'0' * 12}-1-0", "groups": [GROUP], "run": "", "delivers": True}
    name = f"leases/{'.'.join(GROUP)}.0.json"
    for expires_ms in (now_ms + year_ms, now_ms + 3_700_000, now_ms - 1, 10**300):
        storage.write(name, [seal({**holder, "expires_ms": expires_ms})])
        taken(storage).release()
    for expires in (b"1e999", b"Infinity", b'"soon"', b"null"):
        text = (
            seal({**holder, "expires_ms": 4_711})
            .rpartition(b',"sha256"')[0]
            .replace(b"4711", expires)
        )
        storage.write(
            name, [text + b',"sha256":"' + hashlib.sha256(text).hexdigest().encode() + b'"}\n']
        )
        taken(storage).release()
    assert files(tmp_path) == []


def test_an_error_while_it_is_taken_leaves_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither if the lease can be removed, nor if that fails, too.
    storage = LocalStorage(tmp_path)
    names = storage.names

    def fail(_: object) -> Any:
        raise OSError(5, "Input/output error")

    for removable in (True, False):
        with monkeypatch.context() as patched:
            listings = iter((names, fail))
            patched.setattr(
                storage, "names", lambda folder, listings=listings: next(listings)(folder)
            )
            if not removable:
                patched.setattr(storage, "remove", fail)
            with pytest.raises(OSError, match="Input/output error"):
                Lease.take(storage, GROUP)
        assert len(files(tmp_path)) == (0 if removable else 1)
        taken(storage).release()
    assert files(tmp_path) == []


def test_one_lease_for_many_groups_leaves_out_what_others_hold(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    groups = [(f"shop.{task}-0123", "89abcdef") for task in ("build", "load", "test")]
    held = Lease.take(storage, groups[1])
    assert held is not None
    several = Lease.take(storage, *groups)
    assert several is not None
    assert several.groups == {groups[0], groups[2]}
    assert [Lease.take(storage, group) is None for group in groups] == [True] * 3
    assert Lease.take(storage, *groups) is None
    held.release()
    taken = Lease.take(storage, *groups)
    assert taken is not None
    assert taken.groups == {groups[1]}
    several.release()
    taken.release()
    assert files(tmp_path) == []


def test_runs_of_a_task_are_delivered_in_turn_but_not_instances_of_one_run(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    one, sibling, other = ((f"shop.build-{digit * 20}", "89abcdef") for digit in "012")
    lease = Lease.take(storage, one, run="first")
    beside = Lease.take(storage, sibling, run="first")
    assert lease is not None
    assert beside is not None
    beside.release()
    assert Lease.take(storage, other, run="second") is None
    later = Lease.take(storage, other, run="second", delivers=False)
    assert later is not None
    assert not later.take_turn(Deadline.after(0))
    lease.release()
    assert later.take_turn(Deadline.after(0))
    assert Lease.take(storage, one, run="first") is None
    assert Lease.take(storage, (other[0], "another connection")) is not None


# -- processes


def test_a_process_is_gone_if_it_ended_or_another_one_has_its_number() -> None:
    process, started = subprocess.Popen(["/bin/true"]), process_start(os.getpid())
    process.wait(HANGS)
    assert is_gone(machine(), process.pid)
    assert machine().startswith(socket.gethostname())
    assert started is not None
    assert is_gone(machine(), os.getpid(), started - 1)
    assert not is_gone(machine(), os.getpid(), started)
    assert process_start(2**22 + 1) is None
    for on, number in (
        (machine(), os.getpid()),
        ("another host", 2**22 + 1),
        ("", 1),
        (machine(), 10**30),
    ):
        assert not is_gone(on, number), (on, number)


def test_hosts_and_containers_that_share_name_and_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first namespace has the same number on every host: the boot and the container keep them
    # apart.
    here = machine()
    try:
        other_boot, container = tmp_path / "boot_id", tmp_path / "mountinfo"
        other_boot.write_text("8c1ec4f2-31c4-4b50-9f6c-5b3f3c0a0000\n")
        container.write_text(
            f"700 1 8:1 /var/lib/docker/containers/{'a1' * 32}/hostname /etc/hostname rw - ext4 x rw\n"
        )
        for name, path in (("_BOOT_ID", other_boot), ("_MOUNTS", container)):
            with monkeypatch.context() as patched:
                patched.setattr(
                    f"airflow_provider_spark_datahub.delivery.outbox.processes.{name}", path
                )
                machine.cache_clear()
                assert machine() != here
                assert not is_gone(here, 2**22 + 1)
                assert is_gone(machine(), 2**22 + 1)
    finally:
        machine.cache_clear()
    assert machine() == here


_IN_A_NAMESPACE = """
import os, sys, time
from pathlib import Path
from airflow_provider_spark_datahub.delivery.outbox.lease import Lease
from airflow_provider_spark_datahub.delivery.outbox.processes import is_gone, machine, process_start
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
lease = Lease.take(LocalStorage(Path(sys.argv[1])), ("shop.build-0123", "89abcdef"))
known = sys.argv[2:] and is_gone(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
print(lease is not None, bool(known), os.getpid(), process_start(os.getpid()), machine(), sep="|", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_processes_of_two_namespaces_with_the_same_number_are_kept_apart(tmp_path: Path) -> None:
    # As in two containers of one host: to each of them, the other's process is one of its own
    # numbers.
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    probe = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no namespace of process ids can be made here: {probe.stderr.strip()}")

    def start(*known: str) -> tuple[subprocess.Popen[str], list[str]]:
        code = [sys.executable, "-c", _IN_A_NAMESPACE, str(tmp_path), *known]
        process = subprocess.Popen(
            [*command, *code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        return process, process.stdout.readline().strip().split("|")

    first, (took, _, number, started, name) = start()
    second, (took_too, gone, other_number, _, other_name) = start(name, number, started)
    try:
        assert (took, took_too, gone) == ("True", "False", "False")
        assert number == other_number == "1"
        assert name != other_name
        assert Lease.take(LocalStorage(tmp_path), ("shop.build-0123", "89abcdef")) is None
    finally:
        for process in (first, second):
            process.communicate("")

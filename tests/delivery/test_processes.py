from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery.outbox import Lease, LocalStorage, is_gone, machine, process_start
from tests.patience import HANGS


def test_this_process_runs() -> None:
    assert not is_gone(machine(), os.getpid())
    assert machine().startswith(socket.gethostname())


def test_a_process_that_ended_is_gone() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait(HANGS)
    assert is_gone(machine(), process.pid)


@pytest.mark.parametrize(("on", "process"), [("another host", 2**22 + 1), ("", 1), (machine(), 10**30)])
def test_an_unknown_process_is_not_gone(on: str, process: int) -> None:
    assert not is_gone(on, process)


def test_another_process_with_the_same_number_is_another_one() -> None:
    started = process_start(os.getpid())
    assert started is not None
    assert not is_gone(machine(), os.getpid(), started)
    assert is_gone(machine(), os.getpid(), started - 1)
    assert process_start(2**22 + 1) is None


def test_hosts_and_containers_that_share_name_and_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first namespace has the same number on every host: the boot and the container keep them apart.
    here = machine()
    try:
        other_boot, container = tmp_path / "boot_id", tmp_path / "mountinfo"
        other_boot.write_text("8c1ec4f2-31c4-4b50-9f6c-5b3f3c0a0000\n")
        container.write_text(
            f"700 1 8:1 /var/lib/docker/containers/{'a1' * 32}/hostname /etc/hostname rw - ext4 x rw\n"
        )
        for name, path in (("_BOOT_ID", other_boot), ("_MOUNTS", container)):
            with monkeypatch.context() as patched:
                patched.setattr(f"airflow_provider_spark_datahub.delivery.outbox.lease.{name}", path)
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
from airflow_provider_spark_datahub.delivery.outbox.lease import Lease, is_gone, machine, process_start
from airflow_provider_spark_datahub.delivery.outbox.storage import LocalStorage
lease = Lease.take(LocalStorage(Path(sys.argv[1])), ("shop.build-0123", "89abcdef"))
known = sys.argv[2:] and is_gone(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
print(lease is not None, bool(known), os.getpid(), process_start(os.getpid()), machine(), sep="|", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_processes_of_two_namespaces_with_the_same_number_are_kept_apart(tmp_path: Path) -> None:
    # As in two containers of one host: to each of them, the other's process is one of its own numbers.
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    probe = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no namespace of process ids can be made here: {probe.stderr.strip()}")

    def start(*known: str) -> tuple[subprocess.Popen[str], list[str]]:
        code = [sys.executable, "-c", _IN_A_NAMESPACE, str(tmp_path), *known]
        process = subprocess.Popen([*command, *code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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

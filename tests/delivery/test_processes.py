from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery.outbox.lease import is_gone, machine, process_start


def test_this_process_runs() -> None:
    assert not is_gone(machine(), os.getpid())
    assert machine().startswith(socket.gethostname())


def test_a_process_that_ended_is_gone() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
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
    """The first namespace has the same number on every host: the boot and the container keep them apart."""
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

from __future__ import annotations

import os
import socket
import subprocess

import pytest

from airflow_provider_spark_datahub.delivery.outbox.lease import is_gone, machine


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

"""Threads beside the scheduler that call one step after the other."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from airflow_provider_spark_datahub.plugins.dag_run_listener import _WorkThread


def working() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "work"]


def test_steps_are_called_in_order_and_the_thread_ends() -> None:
    thread, done = _WorkThread("work", daemon=True), list[int]()
    for number in range(500):
        assert thread.submit(partial(done.append, number))
    assert thread.wait(30)
    assert done == list(range(500))
    assert working() == []


def test_a_later_step_starts_a_new_thread() -> None:
    thread, done = _WorkThread("work", daemon=True, backlog=1), list[int]()
    for number in range(3):
        assert thread.submit(partial(done.append, number))
        assert thread.wait(30)
    assert done == [0, 1, 2]


def test_one_step_at_a_time_and_a_limited_backlog() -> None:
    thread, done = _WorkThread("work", daemon=True, backlog=1), list[str]()
    begun, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert goes_on.wait(30)
        done.append("first")

    assert thread.submit(hang)
    assert begun.wait(30)
    assert thread.submit(partial(done.append, "second"))
    assert not thread.submit(partial(done.append, "third"))
    assert len(working()) == 1
    assert not thread.wait(0.05)
    goes_on.set()
    assert thread.wait(30)
    assert done == ["first", "second"]


def test_a_process_that_ends_and_starts_no_thread_calls_the_step_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Mock(side_effect=RuntimeError("can't create new thread at interpreter shutdown"))
    monkeypatch.setattr(threading.Thread, "start", refusal)
    called: list[int] = []
    thread = _WorkThread("work", daemon=True)
    assert thread.submit(lambda: called.append(1))
    assert called == [1]
    assert thread.wait(0)


def test_waiting_for_nothing_takes_no_time() -> None:
    assert _WorkThread("work", daemon=True).wait(0)


FORK_AND_END = """
import os, sys, threading
from airflow_provider_spark_datahub.plugins.dag_run_listener import _WorkThread
def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()
thread, begun = _WorkThread('w', daemon=True), threading.Event()
thread.submit(lambda: (begun.set(), threading.Event().wait()))
begun.wait(60)
thread.submit(lambda: say('of the parent'))
if os.fork() == 0:
    thread.submit(lambda: say('forked, '))
    thread.wait(30)
    os._exit(0)
os.wait()
_WorkThread('w', daemon=False).submit(lambda: (threading.Event().wait(0.2), say('ended')))
"""


@pytest.mark.slow
def test_a_process_waits_for_its_steps_and_a_forked_one_has_none() -> None:
    """A fork has a thread and work of its own; the end waits for a thread unless it is a daemon, which hangs here."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", FORK_AND_END]
    said = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, timeout=120).stdout
    assert said == "forked, ended"

"""The threads that work beside the scheduler."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.plugins.dag_run_listener import WorkThread


def working() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "work"]


def test_everything_is_done_in_order_and_then_there_is_no_thread() -> None:
    thread, done = WorkThread("work", daemon=True), list[int]()
    for number in range(500):
        assert thread.give(partial(done.append, number))
    assert thread.wait(30)
    assert done == list(range(500))
    assert working() == []


def test_what_comes_later_has_a_thread_again() -> None:
    thread, done = WorkThread("work", daemon=True, backlog=1), list[int]()
    for number in range(3):
        assert thread.give(partial(done.append, number))
        assert thread.wait(30)
    assert done == [0, 1, 2]


def test_one_at_a_time_and_no_more_than_the_backlog_waits() -> None:
    thread, done = WorkThread("work", daemon=True, backlog=1), list[str]()
    begun, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert goes_on.wait(30)
        done.append("first")

    assert thread.give(hang)
    assert begun.wait(30)
    assert thread.give(partial(done.append, "second"))
    assert not thread.give(partial(done.append, "third"))
    assert len(working()) == 1
    assert not thread.wait(0.05)
    goes_on.set()
    assert thread.wait(30)
    assert done == ["first", "second"]


def test_to_wait_for_nothing_takes_no_time() -> None:
    assert WorkThread("work", daemon=True).wait(0)


IN_A_PROCESS = """
import os, sys, threading
from airflow_provider_spark_datahub.plugins.dag_run_listener import WorkThread
def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(
            "WorkThread('w', daemon=False).give(lambda: (threading.Event().wait(0.2), say('done')))",
            "done",
            id="the end of a process waits for a thread that is no daemon",
        ),
        pytest.param(
            "WorkThread('w', daemon=True).give(threading.Event().wait)",
            "",
            id="and not for a daemon",
        ),
        pytest.param(
            """
thread, begun = WorkThread('w', daemon=True), threading.Event()
thread.give(lambda: (begun.set(), threading.Event().wait()))
begun.wait()
thread.give(lambda: say('of the parent'))
if os.fork() == 0:
    thread.give(lambda: say('done in the child'))
    thread.wait(30)
    os._exit(0)
os.wait()
""",
            "done in the child",
            id="a forked process has a thread and work of its own",
        ),
    ],
)
def test_of_processes(script: str, said: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", IN_A_PROCESS + script]
    assert subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, timeout=60).stdout == said

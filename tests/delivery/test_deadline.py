"""Deadlines, and calls that are left behind at them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

from airflow_provider_spark_datahub.delivery import Deadline, step_in_time
from tests.patience import HANGS, not_outlasting


def test_a_deadline_counts_down_to_zero() -> None:
    now = [100.0]
    deadline = Deadline(now[0] + 30, lambda: now[0])
    assert (deadline.remaining(), deadline.expired) == (30.0, False)
    now[0] = 129.5
    assert (deadline.remaining(), deadline.expired) == (0.5, False)
    now[0] = 130.0
    assert (deadline.remaining(), deadline.expired) == (0.0, True)
    now[0] = 500.0
    assert deadline.remaining() == 0.0


# -- calls


@pytest.mark.slow
def test_a_call_is_left_behind_at_the_deadline() -> None:
    release = threading.Event()
    deadline = Deadline.after(0.2)
    with not_outlasting(0.2):
        assert not deadline.run(lambda: assert_released(release))
    assert deadline.expired
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "lineage-delivery"]
    assert thread.daemon
    release.set()


def assert_released(release: threading.Event) -> None:
    assert release.wait(HANGS)


@pytest.mark.parametrize("error", [ValueError("bug"), TimeoutError("of a socket"), SystemExit(3)])
def test_the_error_of_a_call_is_raised(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        Deadline.after(10).run(fail)
    assert caught.value is error


@pytest.mark.parametrize("is_ending", [True, False])
def test_a_call_without_a_thread_is_run_only_by_a_process_that_ends(
    monkeypatch: pytest.MonkeyPatch, is_ending: bool
) -> None:
    # A process that may go on must not hang in a call.

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    calls: list[str] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    if is_ending:
        monkeypatch.setattr(threading, "main_thread", threading.Thread)
        assert Deadline.after(10).run(lambda: calls.append("done"))
        assert calls == ["done"]
    else:
        with pytest.raises(RuntimeError):
            Deadline.after(10).run(lambda: calls.append("done"))
        assert calls == []


@pytest.mark.parametrize(
    "wait",
    [
        lambda: Deadline.after(HANGS).run(lambda: time.sleep(0.5)),
        lambda: step_in_time("/disk", None, lambda: time.sleep(0.5)),
    ],
    ids=["a call", "a step"],
)
def test_what_a_handler_of_a_signal_raises_reaches_the_caller(wait: Callable[[], object]) -> None:
    class OverError(TimeoutError):
        pass

    def handler(*_: object) -> None:
        # A handler may take a step itself.
        assert step_in_time("/other", None, lambda: 1) == 1
        raise OverError("the task is over")

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(OverError):
            wait()
    finally:
        signal.signal(signal.SIGALRM, before)

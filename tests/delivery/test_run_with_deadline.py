from __future__ import annotations

import threading

import pytest

from airflow_provider_spark_datahub.delivery.deadline import Deadline, run_with_deadline
from tests.patience import HANGS, not_outlasting


def test_waits_for_a_call_that_ends_in_time() -> None:
    calls: list[str] = []
    assert run_with_deadline(Deadline.after(10), lambda: calls.append("done"))
    assert calls == ["done"]


def test_leaves_a_call_behind_at_the_deadline() -> None:
    release = threading.Event()
    deadline = Deadline.after(0.2)
    with not_outlasting(0.2):
        assert not run_with_deadline(deadline, lambda: assert_released(release))
    assert deadline.expired
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "lineage-delivery"]
    assert thread.daemon
    release.set()


def assert_released(release: threading.Event) -> None:
    assert release.wait(HANGS)


def test_begins_nothing_after_the_deadline() -> None:
    calls: list[str] = []
    assert not run_with_deadline(Deadline.after(0), lambda: calls.append("begun"))
    assert calls == []


@pytest.mark.parametrize("error", [ValueError("bug"), TimeoutError("of a socket"), SystemExit(3)])
def test_raises_the_calls_error(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        run_with_deadline(Deadline.after(10), fail)
    assert caught.value is error

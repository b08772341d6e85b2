"""Pipes, sockets, devices and links in place of files that a job writes: nothing waits for them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import EventLog, LogFollower, Outcome, checked_text, unused_path
from airflow_provider_spark_datahub.capture.event_lines import FileFollower
from tests.operators.tries import FakeSpark, operator_with_lineage, report_of

# A hang is the failure that these tests are about.
pytestmark = pytest.mark.timeout(60)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def link_to(target: Path) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


PLANTED: dict[str, Callable[[Path], None]] = {
    "is not a regular file (p": os.mkfifo,
    "is not a regular file (s": bind,
    "is not a regular file (l": link_to(Path("/dev/zero")),
    "is not a regular file (d": Path.mkdir,
}


@pytest.mark.parametrize("reason", PLANTED)
def test_a_special_file_in_place_of_events_is_reported_and_does_not_block(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    path = Path("local-1")
    PLANTED[reason](path)
    follower = FileFollower(path, checked_text)
    assert list(follower.new(lambda: False)) == []
    assert list(follower.rest(lambda: False)) == []
    assert follower.report.outcome is Outcome.UNREADABLE
    assert follower.report.detail.startswith(f"{path} {reason}")

    log = EventLog(Path())
    assert list(log) == []
    assert [reason in problem for problem in log.problems] == [True]
    assert list(LogFollower(Path()).new(None, lambda: False)) == []


def test_a_path_with_a_dangling_link_is_used(tmp_path: Path) -> None:
    """The listener would write to whatever the link names."""
    path = tmp_path / "try1.ndjson"
    path.symlink_to(tmp_path / "nowhere")
    assert unused_path(path) == tmp_path / "try1-2.ndjson"


def test_an_event_file_that_is_a_fifo_is_reported(spark: FakeSpark) -> None:
    spark.writes_nothing()
    spark.plants("mkfifo")
    report = report_of(operator_with_lineage(spark))
    assert report["reason"].startswith("the event file cannot be read (")
    assert "is not a regular file (p" in report["reason"]
    # It stays for people to look at.
    assert stat.S_ISFIFO(Path(report["events_file"]).lstat().st_mode)

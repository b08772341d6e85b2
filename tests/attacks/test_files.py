"""Pipes and links in place of files that a job writes: nothing waits for them.

Which kinds of files are opened is in ``tests/foundation/test_files.py``.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import EventLog, LogFollower, unused_path
from tests.operators.tries import FakeSpark, operator_with_lineage, report_of

# A hang is the failure that these tests are about.
pytestmark = pytest.mark.timeout(60)


def test_a_fifo_in_place_of_an_event_log_is_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "local-1")
    log = EventLog(tmp_path)
    assert list(log) == []
    assert ["is not a regular file (p" in problem for problem in log.problems] == [True]
    assert list(LogFollower(tmp_path).new(None, lambda: False)) == []


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

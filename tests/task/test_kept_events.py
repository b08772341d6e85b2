"""Raw events in the outbox."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.task.job_events import packed_events
from tests.operators.tries import CORPUS


def never() -> bool:
    return False


@pytest.mark.parametrize("name", ["a_csv_join_agg", "b_multi_sql_hive", "f_delta"])
def test_events_without_secrets_are_kept_as_they_are(name: str) -> None:
    path = CORPUS / f"{name}.ndjson"
    content = packed_events(path, Deadline.after(60.0))
    assert content is not None
    assert [json.loads(line) for line in gzip.decompress(content).splitlines()] == [
        json.loads(line) for line in path.read_bytes().splitlines()
    ]


def test_bad_lines_are_left_out_of_kept_events(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_bytes(b'no json\n{"a": 1}\n{"torn": ')
    content = packed_events(path, Deadline.after(60.0))
    assert content is not None
    assert gzip.decompress(content) == b'{"a": 1}\n'


@pytest.mark.parametrize("content", [None, b"", b"no json\n"])
def test_no_raw_events_are_kept_without_events(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "events.ndjson"
    if content is not None:
        path.write_bytes(content)
    assert packed_events(path, Deadline.after(60.0)) is None


def test_no_raw_events_are_kept_without_time() -> None:
    assert packed_events(CORPUS / "a_csv_join_agg.ndjson", Deadline.after(0.0)) is None

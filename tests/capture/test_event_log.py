from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zstandard

from airflow_provider_spark_datahub.capture import EventLog, LogObjects, ObjectStore
from tests.cases import cases

RECORDED = Path(__file__).parents[1] / "data" / "event_logs"
STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"
START = {
    "Event": "SparkListenerApplicationStart",
    "App Name": "shop",
    "App ID": "app-1",
    "Timestamp": 1,
    "User": "me",
}
END = {"Event": "SparkListenerApplicationEnd", "Timestamp": 2}
TASK = {"Event": "SparkListenerTaskEnd", "Stage ID": 1, "Task Info": {"Task ID": 7}}
TERMINATED = {
    "Event": f"{STREAMING}QueryTerminatedEvent",
    "id": "i",
    "runId": "r",
    "exception": None,
}


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)


LINES = {
    "START": lines(START),
    "END": lines(END),
    "TASK": lines(TASK),
    "TERMINATED": lines(TERMINATED),
    "TORN": lines(END)[:-9],
    "CRC": b"crc\0\0\0\2",
}


def zstd_frames(content: bytes) -> bytes:
    """Compress as Spark does: a new frame after each flush."""
    compressor = zstandard.ZstdCompressor()
    return b"".join(compressor.compress(line) for line in content.splitlines(keepends=True))


def names(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["Event"].rpartition(".")[2].removeprefix("SparkListener") for event in events]


@cases("capture")
def test_logs_of_real_applications_are_read_to_their_end(
    version: str, progresses: int, executions: int, tmp_path: Path
) -> None:
    recorded = (RECORDED / f"streaming-{version}.ndjson").read_bytes()
    (tmp_path / "local-1795257256797").write_bytes(recorded)

    log = EventLog(tmp_path)
    found = names(log)

    # The job starts seven queries.
    assert found.count("StreamingQueryListener$QueryStartedEvent") == 7
    assert found.count("StreamingQueryListener$QueryTerminatedEvent") == 7
    assert found.count("StreamingQueryListener$QueryProgressEvent") == progresses
    assert found.count("SQLExecutionStart") == found.count("SQLExecutionEnd") == executions
    assert (*found[:3], found[-1]) == (
        "LogStart",
        "EnvironmentUpdate",
        "ApplicationStart",
        "ApplicationEnd",
    )
    assert log.complete
    assert (log.logs, log.events) == (["local-1795257256797"], len(found))


@cases("capture")
def test_an_event_of_a_log_keeps_what_lineage_needs(
    tmp_path: Path, event: dict[str, Any], kept: dict[str, Any] | None
) -> None:
    (tmp_path / "app-1").write_bytes(lines(START, event, END))
    assert list(EventLog(tmp_path)) == [START, *([kept] if kept else []), END]


def test_a_long_description_is_cut_and_a_plan_is_not(tmp_path: Path) -> None:
    execution = {
        "Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart",
        "description": "d" * 20_000,
        "physicalPlanDescription": "p" * 20_000,
    }
    (tmp_path / "app-1").write_bytes(lines(START, execution, END))
    _, kept, _ = EventLog(tmp_path)
    assert kept == {**execution, "description": "d" * 16_384}


@cases("capture")
def test_the_logs_of_a_folder_are_found_and_read(
    tmp_path: Path,
    files: dict[str, list[str] | None],
    ids: list[str] | None,
    events: list[str],
    logs: list[str],
    problems: list[str],
) -> None:
    for name, content in files.items():
        path = tmp_path / name
        (path if content is None else path.parent).mkdir(exist_ok=True)
        if content is not None:
            text = b"".join(LINES[line] for line in content if line != "CUT")
            text = zstd_frames(text) if name.endswith(".zstd") else text
            path.write_bytes(text[:-5] if "CUT" in content else text)

    log = EventLog(tmp_path, application_ids=ids)

    assert [event["Event"] for event in log] == [
        json.loads(LINES[name])["Event"] for name in events
    ]
    assert log.logs == logs
    assert log.complete == bool(logs and not problems)
    for problem, said in zip(problems, log.problems, strict=True):
        assert problem in said


def test_zstd_without_its_library_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "app-1.zstd").write_bytes(zstd_frames(lines(START, END)))

    log = EventLog(tmp_path)

    assert list(log) == []
    assert "zstandard" in log.problems[0]


def test_hostile_lines_are_skipped_and_the_others_are_read(tmp_path: Path) -> None:
    hostile = [
        b"not json\n",
        b'{"Event":"SparkListenerApplicationEnd","Timestamp":NaN}\n',
        b'{"Event":"SparkListenerApplicationEnd","Timestamp":' + b"[" * 100_000 + b"\n",
        b'{"Event":["a"]}\n',
        b'[{"Event":"SparkListenerApplicationEnd"}]\n',
        b'{"Event":"SparkListenerApplicationEnd","App ID":"' + b"x" * 4000 + b'"}\n',
        b'{"Event":"SparkListenerTaskEnd","x":"' + b"x" * 4_000_000 + b'"}\n',
        b"\xff\xfe\n",
    ]
    (tmp_path / "app-1").write_bytes(lines(START) + b"".join(hostile) + lines(END))

    log = EventLog(tmp_path, max_event_bytes=3000)

    assert names(log) == ["ApplicationStart", "ApplicationEnd"]
    (problem,) = log.problems
    assert problem.startswith(
        "6 lines of the Spark event log of app-1 skipped, the first in line 2"
    )


def test_the_deadline_ends_the_reading(tmp_path: Path) -> None:
    (tmp_path / "app-1").write_bytes(lines(START, *[TASK] * 10, END))
    (tmp_path / "app-2").write_bytes(lines(START, END))
    asked = iter(range(1000))

    log = EventLog(tmp_path, deadline=lambda: next(asked) >= 5)

    assert names(log) == ["ApplicationStart"]
    assert log.logs == ["app-1"]
    assert not log.complete


def test_a_log_that_is_removed_while_it_is_read_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = LINES["START"] + LINES["END"]
    length = len(LINES["START"])
    monkeypatch.setattr("airflow_provider_spark_datahub.capture.event_log._RANGE_BYTES", length)

    def read_range(name: str, start: int, end: int) -> bytes:
        if start:
            raise FileNotFoundError(name)
        return content[:end]

    stored = {"logs/app-1": len(content)}
    store = cast("ObjectStore", SimpleNamespace(
        stored=lambda folder: {} if "eventlog" in folder else stored, read_range=read_range
    ))  # fmt: skip
    log = EventLog(LogObjects("s3://bucket/logs", lambda _: store))
    assert names(log) == ["ApplicationStart"]
    assert not log.complete
    assert "was not read to its end" in log.problems[0]


def test_a_folder_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "missing")
    assert list(log) == []
    assert not log.complete
    assert len(log.problems) == 1


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    with (tmp_path / "app-1").open("wb") as log:
        log.write(lines(START))
        for _ in range(20):
            log.write(b'{"Event":"SparkListenerTaskEnd","x":"' + b"x" * 3_000_000 + b'"}\n')
        log.write(b'{"Event":"SparkListenerTaskEnd","x":"' + b"x" * 50_000_000 + b'"}\n')
        log.write(lines(END))
    tracemalloc.start()
    try:
        assert len(list(EventLog(tmp_path))) == 2
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000, "of 110 MB, never a whole line of a task"

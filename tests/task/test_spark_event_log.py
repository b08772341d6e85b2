"""Spark's own event log of a try: prepared, read, and removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture.event_log import ATTEMPT_PROPERTY
from airflow_provider_spark_datahub.capture.injection import event_log_folder
from airflow_provider_spark_datahub.capture.spark_submit import Submission
from airflow_provider_spark_datahub.conversion.convert import Conversion, Converter
from airflow_provider_spark_datahub.conversion.runs.coalesce import Ending
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.task import spark_event_log
from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog

RECORDED = Path(__file__).parents[1] / "data" / "event_logs"
OPENLINEAGE = RECORDED / "streaming-4.3.0.openlineage.ndjson"
APPLICATION = "local-1795257256797"
PAID = "urn:li:dataset:(urn:li:dataPlatform:file,/lake/out/s/paid,PROD)"


def log_in(folder: Path) -> None:
    """Put the recorded log where Spark would have written it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(RECORDED / "streaming-4.3.0.ndjson", folder / APPLICATION)


def convert(log: SparkEventLog, *, expired: bool = False) -> tuple[Conversion, bool]:
    converter = Converter(LineageSettings())
    for line in OPENLINEAGE.read_bytes().splitlines():
        converter.add(line)
    complete = log.read(converter, lambda: expired)
    return converter.finish(Ending(succeeded=True), log_complete=complete), complete


def test_a_log_of_our_own_gives_a_query_its_sink_and_is_removed(tmp_path: Path) -> None:
    events_file, log = tmp_path / "try1.ndjson", SparkEventLog()
    submission = log.inject(Submission(), events_file, local_driver=True)
    folder = event_log_folder(events_file)
    assert submission.effective("spark.eventLog.dir") == folder.as_uri()
    assert folder.is_dir(), "without its folder, the job would not start"
    log_in(folder)
    conversion, complete = convert(log)
    assert (PAID in conversion.outputs, complete, log.problems) == (True, True, [])
    log.remove()
    assert not folder.exists()


def test_without_a_log_the_sink_is_unknown() -> None:
    conversion, complete = convert(SparkEventLog())
    assert (PAID in conversion.outputs, complete) == (False, True)


def test_the_users_own_log_is_read_and_kept(tmp_path: Path) -> None:
    users = tmp_path / "history"
    log_in(users)
    (users / "local-1").write_text("another application's\n")
    wanted = Submission(
        properties={"spark.eventLog.enabled": "true", "spark.eventLog.dir": users.as_uri()}
    )
    log = SparkEventLog()
    injected = log.inject(wanted, tmp_path / "try1.ndjson", local_driver=True)
    raised = {"spark.sql.debug.maxToStringFields", "spark.sql.maxMetadataStringLength"}
    assert injected.properties.keys() - wanted.properties.keys() == {ATTEMPT_PROPERTY, *raised}
    conversion, complete = convert(log)
    log.remove()
    assert (PAID in conversion.outputs, complete, log.problems) == (True, True, [])
    assert len(list(users.iterdir())) == 2


@pytest.mark.parametrize(
    ("properties", "local_driver", "reason"),
    [
        ({"spark.eventLog.enabled": "false"}, True, "spark.eventLog.enabled=false"),
        ({}, False, "another machine"),
    ],
)
def test_without_an_event_log_the_reason_is_reported(
    tmp_path: Path, properties: dict[str, str], local_driver: bool, reason: str
) -> None:
    log, submission = SparkEventLog(), Submission(properties=properties)
    assert log.inject(submission, tmp_path / "try1.ndjson", local_driver=local_driver) == submission
    assert reason in log.missing
    assert convert(log)[1]


def test_a_log_that_spark_never_wrote_leaves_the_listener_alone(tmp_path: Path) -> None:
    log = SparkEventLog()
    log.inject(Submission(), tmp_path / "try1.ndjson", local_driver=True)
    assert convert(log)[1]
    assert "Spark wrote none" in log.missing
    without_events = Converter(LineageSettings())
    assert not log.read(without_events, lambda: False)


def test_a_folder_that_cannot_be_made_costs_only_the_log(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log, submission = SparkEventLog(), Submission()
    assert (
        log.inject(submission, tmp_path / "file" / "try1.ndjson", local_driver=True) == submission
    )
    assert "Not a directory" in log.missing


def test_a_log_that_there_is_no_time_to_read_is_incomplete(tmp_path: Path) -> None:
    events_file, log = tmp_path / "try1.ndjson", SparkEventLog()
    log.inject(Submission(), events_file, local_driver=True)
    log_in(event_log_folder(events_file))
    _, complete = convert(log, expired=True)
    assert not complete
    assert log.problems


@pytest.mark.parametrize(("followed", "compress"), [(False, "true"), (True, "false")])
def test_a_log_of_our_own_is_compressed_unless_it_is_followed(
    tmp_path: Path, followed: bool, compress: str
) -> None:
    submission = SparkEventLog().inject(
        Submission(), tmp_path / "try1.ndjson", local_driver=True, followed=followed
    )
    assert submission.effective("spark.eventLog.compress") == compress
    assert submission.effective("spark.eventLog.compression.codec") == (
        None if followed else "zstd"
    )


def test_without_a_reader_of_zstd_a_log_of_our_own_is_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_event_log, "find_spec", lambda _: None)
    submission = SparkEventLog().inject(Submission(), tmp_path / "try1.ndjson", local_driver=True)
    assert submission.effective("spark.eventLog.compress") == "false"


@pytest.mark.parametrize(("limit", "value"), [("_MOST_BYTES", 1), ("_LEAST_LEFT_BYTES", 2**80)])
def test_a_log_that_grows_too_large_is_given_up_for_the_listener_alone(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events_file, log = tmp_path / "try1.ndjson", SparkEventLog()
    log.inject(Submission(), events_file, local_driver=True)
    folder = event_log_folder(events_file)
    log_in(folder)
    log.bound()
    assert (folder / APPLICATION).stat().st_size > 0, "it is small, and the disk has room"
    monkeypatch.setattr(spark_event_log, limit, value)
    log.bound()
    log_in(folder)
    log.bound()
    assert (folder / APPLICATION).stat().st_blocks == 0
    conversion, complete = convert(log)
    assert (PAID in conversion.outputs, complete, log.problems) == (False, True, [])
    assert log.missing.startswith("given up at ")


def test_the_users_own_log_is_never_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_event_log, "_MOST_BYTES", 1)
    log_in(tmp_path)
    SparkEventLog(str(tmp_path), is_own=False).bound()
    assert (tmp_path / APPLICATION).stat().st_size > 0

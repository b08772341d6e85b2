from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import Submission, inject_event_log
from tests.cases import cases

FOLDER = Path("/spool/try 1.eventlog")
ENABLED = "spark.eventLog.enabled"
DIR = "spark.eventLog.dir"
FIELDS = "spark.sql.debug.maxToStringFields"
WHOLE_PLANS = {FIELDS: "2000", "spark.sql.maxMetadataStringLength": "10000"}


def test_a_job_without_an_event_log_gets_one_of_its_own() -> None:
    users = Submission({"spark.x": 1}, jars="a.jar", base_properties={DIR: "hdfs://nn/logs"})

    injection = inject_event_log(users, FOLDER, local_driver=True)

    assert (injection.folder, injection.ours, injection.reason) == (FOLDER, True, "")
    properties = dict(injection.submission.properties)
    left_out = str(properties.pop("spark.eventLog.excludedPatterns")).split(",")
    assert properties == {
        "spark.x": 1,
        ENABLED: "true",
        DIR: "file:///spool/try%201.eventlog",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.logBlockUpdates.enabled": "false",
        "spark.eventLog.logStageExecutorMetrics": "false",
        **WHOLE_PLANS,
    }
    assert "SparkListenerTaskEnd" in left_out
    assert not [name for name in left_out if "SQLExecution" in name or "Application" in name or "Environment" in name]
    assert injection.submission.jars == "a.jar"
    assert users.properties == {"spark.x": 1}
    assert inject_event_log(injection.submission, FOLDER, local_driver=True) == injection


@cases("capture")
@pytest.mark.parametrize("in_defaults", [False, True])
def test_the_users_event_log_is_kept_and_read(place: str | None, folder: str, in_defaults: bool) -> None:
    conf = {ENABLED: "TRUE"} | ({DIR: place} if place else {})
    users = Submission(base_properties=conf) if in_defaults else Submission(conf)

    injection = inject_event_log(users, FOLDER, local_driver=True)

    assert injection.submission.properties == {**users.properties, **WHOLE_PLANS}
    assert (injection.folder, injection.ours, injection.reason) == (Path(folder), False, "")
    assert inject_event_log(injection.submission, FOLDER, local_driver=True).submission is injection.submission


def test_how_much_a_plan_names_is_the_jobs_own_choice() -> None:
    users = Submission({FIELDS: 30}, base_properties={"spark.sql.maxMetadataStringLength": "200"})
    assert inject_event_log(users, FOLDER, local_driver=True).submission.properties[FIELDS] == 30
    assert (
        "spark.sql.maxMetadataStringLength"
        not in inject_event_log(users, FOLDER, local_driver=True).submission.properties
    )


@cases("capture")
def test_an_event_log_that_cannot_be_read_here_is_left_alone(
    conf: dict[str, object], local_driver: bool, reason: str
) -> None:
    users = Submission(conf)

    injection = inject_event_log(users, FOLDER, local_driver=local_driver)

    assert injection.submission is users
    assert (injection.folder, injection.ours) == (None, False)
    assert reason in injection.reason

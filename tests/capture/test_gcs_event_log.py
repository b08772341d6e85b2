"""Spark's own event log in GCS: Google's connector writes it on a server, and Airflow's object storage reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import EventLog, Submission
from airflow_provider_spark_datahub.capture.event_log import LogObjects
from airflow_provider_spark_datahub.hooks.storage import open_store
from tests.capture.test_real_spark import environment, submit
from tests.servers.gcs import Gcs

JOB = """
import os, signal, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.range(10).write.parquet(sys.argv[1])
jvm = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getName()
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
os.kill(int(jvm.partition("@")[0]), signal.SIGKILL)
"""


@pytest.mark.spark
def test_the_log_of_a_killed_driver_is_read_from_gcs(gcs: Gcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE", json.dumps(gcs.connection()))
    gcs.make_bucket("spark-logs")
    store = open_store("gs://google@spark-logs")
    store.write("attempt/any", [b"without any object in it, the folder does not exist"])
    (tmp_path / "job.py").write_text(JOB)
    log = {"enabled": "true", "dir": "gs://spark-logs/attempt", "compress": "true", "rolling.enabled": "true"}
    properties = gcs.spark_properties() | {f"spark.eventLog.{name}": value for name, value in log.items()}
    with pytest.raises(AssertionError):
        submit(Submission(properties=properties), environment(tmp_path), tmp_path / "job.py", tmp_path / "out")
    events = list(EventLog(LogObjects("gs://google@spark-logs/attempt", open_store)))
    assert any(str(tmp_path / "out") in str(event) for event in events)

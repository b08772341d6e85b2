"""What only a real Spark can prove about the event log that is injected: its streaming queries are read from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture.event_log import EventLog
from airflow_provider_spark_datahub.capture.injection import inject_event_log
from tests.capture.test_real_spark import environment, events_of, injected, submit

pytestmark = pytest.mark.spark

STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"
STREAMING_JOB = """
import sys
from pyspark.sql import SparkSession
source, sink = sys.argv[1:]
spark = SparkSession.builder.appName("stream").getOrCreate()
spark.range(100).write.json(source)
stream = spark.readStream.schema("id long").json(source)
writer = stream.writeStream.queryName("copy").option("checkpointLocation", sink + "-checkpoint")
writer.trigger(availableNow=True).format("parquet").start(sink).awaitTermination()
"""


def test_streaming_query_is_logged_with_its_source_and_sink(tmp_path: Path) -> None:
    events_file, folder = tmp_path / "try1.ndjson", tmp_path / "try1.eventlog"
    source, sink = tmp_path / "in", tmp_path / "out of it"
    application = tmp_path / "streaming_job.py"
    application.write_text(STREAMING_JOB)
    env = environment(tmp_path)
    injection = inject_event_log(injected({}, env, events_file), folder, local_driver=True)
    folder.mkdir()

    submit(injection.submission, env, application, source, sink)

    log = EventLog(folder)
    logged = {event["Event"]: event for event in log}
    assert log.complete
    progress = logged[f"{STREAMING}QueryProgressEvent"]["progress"]
    assert [source_["description"] for source_ in progress["sources"]] == [f"FileStreamSource[file:{source}]"]
    assert progress["sink"]["description"] in (f"FileSink[file:{sink}]", f"FileSink[{sink}]")
    assert logged[f"{STREAMING}QueryTerminatedEvent"]["runId"] == progress["runId"]
    assert logged["SparkListenerEnvironmentUpdate"]["Hadoop Properties"] == {"fs.defaultFS": "file:///"}
    assert {"SparkListenerApplicationStart", "SparkListenerApplicationEnd"} < logged.keys()
    # OpenLineage's runs of the query's micro-batches have its run as the group of their jobs.
    details = [event["run"]["facets"].get("spark_jobDetails", {}) for event in events_of(events_file)]
    assert progress["runId"] in {detail.get("jobGroup") for detail in details}

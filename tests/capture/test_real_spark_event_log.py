"""What only a real Spark can prove about an injected event log, and about jars and Java options of
the user.
"""

from __future__ import annotations

import json
import threading
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from airflow_provider_spark_datahub.capture import (
    EventLog,
    Submission,
    event_log_folder,
    inject_event_log,
)
from airflow_provider_spark_datahub.task import spark_event_log
from airflow_provider_spark_datahub.task.spark_event_log import SparkEventLog
from tests.capture.test_real_spark import environment, events_of, injected, submit
from tests.patience import join

pytestmark = pytest.mark.spark

STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"
JOB = """
import json, sys
from pyspark.sql import SparkSession
source, sink, seen_file = sys.argv[1:]
spark = SparkSession.builder.appName("stream").getOrCreate()
jvm = spark.sparkContext._jvm
loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
seen = {
    "resource": loader.getResource("of-the-users-jar.txt") is not None,
    "option": jvm.java.lang.System.getProperty("of.the.user"),
}
open(seen_file, "w").write(json.dumps(seen))
spark.range(100).write.json(source)
stream = spark.readStream.schema("id long").json(source)
writer = stream.writeStream.queryName("copy").option("checkpointLocation", sink + "-checkpoint")
writer.trigger(availableNow=True).format("parquet").start(sink).awaitTermination()
"""


MANY_TASKS = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.range(0, 2000, 1, 1000).selectExpr("sum(id) AS sum").write.json(sys.argv[1])
"""


@dataclass(frozen=True)
class Done:
    """A job that ran a streaming query, with a jar and Java options of the user's own."""

    events_file: Path
    log_folder: Path
    source: Path
    sink: Path
    seen: Path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("job")
    done = Done(
        folder / "try1.ndjson",
        folder / "log",
        folder / "in",
        folder / "out of it",
        folder / "seen.json",
    )
    with zipfile.ZipFile(folder / "users.jar", "w") as jar:
        jar.writestr("of-the-users-jar.txt", "")
    application = folder / "job.py"
    application.write_text(JOB)
    env = environment(folder)
    users = {
        "spark.jars": str(folder / "users.jar"),
        "spark.driver.extraJavaOptions": "-Dof.the.user=1",
    }
    injection = inject_event_log(
        injected(users, env, done.events_file), done.log_folder, local_driver=True
    )
    done.log_folder.mkdir()
    submit(injection.submission, env, application, done.source, done.sink, done.seen)
    return done


def test_a_job_with_an_event_log_keeps_the_users_jars_and_java_options(done: Done) -> None:
    assert json.loads(done.seen.read_text()) == {"resource": True, "option": "1"}
    events = events_of(done.events_file)
    assert (events[0]["eventType"], events[-1]["eventType"]) == ("START", "COMPLETE")


def test_a_running_job_does_not_notice_that_its_log_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_event_log, "_MOST_BYTES", 300_000)
    (application := tmp_path / "job.py").write_text(MANY_TASKS)
    event_log, env = SparkEventLog(), environment(tmp_path)
    submission = event_log.inject(
        Submission(), tmp_path / "try1.ndjson", local_driver=True, followed=True
    )
    with_tasks = {**submission.properties, "spark.eventLog.excludedPatterns": "none"}
    folder, ended = event_log_folder(tmp_path / "try1.ndjson"), threading.Event()
    sizes: list[int] = []

    def watch() -> None:
        while not ended.wait(0.2):
            sizes.extend(path.stat().st_size for path in folder.rglob("local-*"))
            event_log.bound()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        submit(replace(submission, properties=with_tasks), env, application, tmp_path / "out")
    finally:
        ended.set()
        join(watcher)
    assert max(sizes) > 1_000_000, "Spark went on writing where it was"
    assert sum(path.stat().st_blocks for path in folder.rglob("*")) * 512 < 1_000_000
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_streaming_query_is_logged_with_its_source_and_sink(done: Done) -> None:
    log = EventLog(done.log_folder)
    logged = {event["Event"]: event for event in log}
    assert log.complete
    progress = logged[f"{STREAMING}QueryProgressEvent"]["progress"]
    assert [source_["description"] for source_ in progress["sources"]] == [
        f"FileStreamSource[file:{done.source}]"
    ]
    assert progress["sink"]["description"] in (
        f"FileSink[file:{done.sink}]",
        f"FileSink[{done.sink}]",
    )
    assert logged[f"{STREAMING}QueryTerminatedEvent"]["runId"] == progress["runId"]
    assert logged["SparkListenerEnvironmentUpdate"]["Hadoop Properties"] == {
        "fs.defaultFS": "file:///"
    }
    assert {"SparkListenerApplicationStart", "SparkListenerApplicationEnd"} < logged.keys()
    # OpenLineage's runs of the query's micro-batches have its run as the group of their jobs.
    details = [
        event["run"]["facets"].get("spark_jobDetails", {}) for event in events_of(done.events_file)
    ]
    assert progress["runId"] in {detail.get("jobGroup") for detail in details}

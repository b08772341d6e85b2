"""Events that come back through an S3 server, from the injection to their removal."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from airflow_provider_spark_datahub.capture import SparkSubmit
from airflow_provider_spark_datahub.capture.event_log import ATTEMPT_PROPERTY, EventLog, LogObjects
from airflow_provider_spark_datahub.capture.spark_submit import Submission
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.drain import Drain
from airflow_provider_spark_datahub.delivery.sinks.file import FileSink
from airflow_provider_spark_datahub.hooks.storage import open_outbox, open_store, s3_endpoint
from airflow_provider_spark_datahub.task.recovery import recover_entry, remove_delivered_events
from airflow_provider_spark_datahub.task.submitted import UnfinishedAttempt
from tests.capture.test_event_objects import RECORDED
from tests.operators.tries import connections_to
from tests.patience import HANGS
from tests.servers.s3 import S3
from tests.task.attempts import ENDED, PARENT, ROOT, Try

JOBS = Path(__file__).parents[1] / "data" / "more_jobs"
LOG = gzip.decompress((JOBS / "logs" / "udf_union-3.5.9.ndjson.gz").read_bytes())
TRUTH = json.loads((JOBS / "truth.json").read_bytes())["udf_union"]
APPLICATION = "local-1795265305932"
DATASET = "urn:li:dataset:(urn:li:dataPlatform:file,/warehouse/data/{},PROD)"


@pytest.fixture
def one(tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> Try:
    # The first request loads the client's modules, which takes long on a busy machine.
    monkeypatch.setattr("airflow_provider_spark_datahub.delivery.deadline._REQUEST_SECONDS", HANGS)
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", json.dumps(s3.connection()))
    if not (s3.folder / "spark-events").exists():
        s3.make_bucket("spark-events")
    return in_s3(tmp_path)


def in_s3(folder: Path, **options: Any) -> Try:
    connections = replace(connections_to(FileSink(folder / "lineage")), open_store=open_store, s3_endpoint=s3_endpoint)
    given = {"events_store": f"s3://events@spark-events/{folder.name}", "openlineage_jar": "provided", **options}
    return Try(folder, options=given, connections=connections)


def job_writes(one: Try, s3: S3) -> Path:
    """Write what the S3 transport wrote for a real job, as the injected properties say."""
    elsewhere = SparkSubmit(binary=None, env={}, local_driver=False)
    submission = one.lineage.inject([Submission()], elsewhere, PARENT, ROOT)[0].submission
    transport = {
        name.rpartition(".")[2]: value
        for name, value in submission.effective_properties().items()
        if name.startswith("spark.openlineage.transport.")
    }
    assert (transport["type"], transport["bucketName"], transport["endpoint"]) == ("s3", "spark-events", s3.url)
    assert not {name for name in transport if "key" in name.lower() or "secret" in name.lower()}
    store = open_store("s3://events@spark-events")
    for path in RECORDED.glob("*.json"):
        store.write(f"{transport['fileNamePrefix']}{path.name}", [path.read_bytes()])
    return s3.folder / transport["bucketName"] / transport["fileNamePrefix"]


def test_events_in_s3_are_delivered_and_removed(one: Try, s3: S3) -> None:
    folder = job_writes(one, s3)
    sibling = folder.with_name("try9-another.events") / "1.json"
    sibling.parent.mkdir()
    sibling.write_bytes(b"of another attempt")
    report = one.finish(replace(ENDED, seconds=HANGS))
    assert report.reason is None
    assert report.events == len(list(RECORDED.glob("*.json")))
    assert (report.inputs, report.outputs) == (
        [DATASET.format("in.csv"), DATASET.format("out_good")],
        [DATASET.format("out_good"), DATASET.format("out_good_2")],
    )
    assert report.is_complete
    assert not list(folder.glob("*.json"))
    assert sibling.exists()


def test_a_drain_on_another_machine_reads_the_events_of_a_killed_attempt(one: Try, s3: S3) -> None:
    folder = job_writes(one, s3)
    record = one.lineage.record
    assert isinstance(record, UnfinishedAttempt)
    location = one.lineage.options.outbox_location
    (entry,) = open_outbox(location).entries()
    entry.update(redo=replace(record, machine="gone", spark_succeeded=None).to_obj())
    drain = Drain(
        open_outbox(location),
        one.lineage.connections.open_sink,
        finish=lambda entry, _: recover_entry(entry, Deadline.after(HANGS), over=True),
        settled=remove_delivered_events,
    )
    assert drain.run().delivered
    end = next(line for line in one.delivered if line["aspectName"] == "dataProcessInstanceRunEvent")
    assert end
    assert not list(folder.glob("*.json"))


def test_the_users_event_log_in_s3_is_found_by_its_mark_or_its_name(one: Try) -> None:
    """A History Server's folder: the job's rolled, compressed log, and those of other applications."""
    history = f"{one.folder.name}/history"
    job = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"s3a://spark-events/{history}/"}
    one = in_s3(one.folder, capture="event_log", event_log_connection="events")
    elsewhere = SparkSubmit(binary=None, env={}, local_driver=False)
    submission = one.lineage.inject([Submission(properties=job)], elsewhere, PARENT, ROOT)[0].submission
    assert {name: submission.properties[name] for name in job} == job
    assert not [name for name in submission.properties if "extraListeners" in name]
    store = open_store(f"s3://events@spark-events/{history}")
    lines = LOG.splitlines(keepends=True)
    environment = json.dumps(
        {
            "Event": "SparkListenerEnvironmentUpdate",
            "Spark Properties": {ATTEMPT_PROPERTY: submission.properties[ATTEMPT_PROPERTY]},
        }
    )
    parts = (b"".join([lines[0], environment.encode(), b"\n", *lines[2:9]]), b"".join(lines[9:]))
    for index, part in enumerate(parts, 1):
        name = f"eventlog_v2_{APPLICATION}/events_{index}_{APPLICATION}.zstd"
        store.write(name, [zstandard.compress(part)])
    store.write(f"eventlog_v2_{APPLICATION}/appstatus_{APPLICATION}", [b""])
    store.write("local-1", [LOG])
    store.write("eventlog_v2_local-2/events_1_local-2", [b"not its own\n"])

    report = one.finish(replace(ENDED, seconds=HANGS))
    assert (report.reason, report.warnings) == (None, [])
    assert (set(report.inputs), set(report.outputs)) == (set(TRUTH["inputs"]), set(TRUTH["outputs"]))
    names = store.stored(f"eventlog_v2_{APPLICATION}")
    assert len(names) == 3, "the log is the user's"

    log = LogObjects(f"s3://events@spark-events/{history}", open_store)
    assert list(EventLog(log, application_ids=[APPLICATION]))
    found = EventLog(replace(log, since_ms=4_000_000_000_000))
    assert list(found) == [], "all logs were closed long before"
    assert found.logs == []

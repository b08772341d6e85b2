"""Events that come back through an S3 server, from the injection to their removal."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
import zstandard

from airflow_provider_spark_datahub.capture import InjectionError, SparkSubmit
from airflow_provider_spark_datahub.capture.event_log import ATTEMPT_PROPERTY, EventLog, LogObjects
from airflow_provider_spark_datahub.capture.spark_submit import Submission
from airflow_provider_spark_datahub.delivery.deadline import Deadline
from airflow_provider_spark_datahub.delivery.outbox.drain import Drain
from airflow_provider_spark_datahub.delivery.outbox.storage import ObjectStorage
from airflow_provider_spark_datahub.delivery.sinks.files import FileSink
from airflow_provider_spark_datahub.hooks.storage import open_outbox, open_store, s3_endpoint
from airflow_provider_spark_datahub.task.recovery import recover_entry, remove_delivered_events
from airflow_provider_spark_datahub.task.submitted import UnfinishedAttempt
from tests.capture.test_event_objects import RECORDED
from tests.delivery.connections import connect
from tests.operators.tries import CORPUS, LOG, connections_to
from tests.patience import HANGS
from tests.servers.s3 import S3
from tests.task.attempts import ENDED, FAILED, PARENT, ROOT, Try

TRUTH = json.loads((CORPUS.parents[1] / "more_jobs/truth.json").read_bytes())["udf_union"]
APPLICATION = "local-1795265305932"
DATASET = "urn:li:dataset:(urn:li:dataPlatform:file,/warehouse/data/{},PROD)"


@pytest.fixture
def one(tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> Try:
    # The first request loads the client's modules, which takes long on a busy machine.
    monkeypatch.setattr("airflow_provider_spark_datahub.delivery.deadline._REQUEST_SECONDS", HANGS)
    connect(monkeypatch, "events", **s3.connection())
    if not (s3.folder / "spark-events").exists():
        s3.make_bucket("spark-events")
    return in_s3(tmp_path)


def in_s3(folder: Path, **options: Any) -> Try:
    connections = replace(
        connections_to(FileSink(folder / "lineage")), open_store=open_store, s3_endpoint=s3_endpoint
    )
    given = {
        "events_store": f"s3://events@spark-events/{folder.name}",
        "openlineage_jar": "provided",
        **options,
    }
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
    assert (transport["type"], transport["bucketName"], transport["endpoint"]) == (
        "s3",
        "spark-events",
        s3.url,
    )
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


def deliver_killed(one: Try) -> None:
    """Deliver the lineage of an attempt that was killed on another machine."""
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


def test_a_drain_on_another_machine_reads_the_events_of_a_killed_attempt(one: Try, s3: S3) -> None:
    folder = job_writes(one, s3)
    deliver_killed(one)
    end = next(
        line for line in one.delivered if line["aspectName"] == "dataProcessInstanceRunEvent"
    )
    assert end
    assert not list(folder.glob("*.json"))


def test_the_users_event_log_in_s3_is_found_by_its_mark_or_its_name(one: Try) -> None:
    """A History Server's folder: the job's rolled, compressed log, and those of other applications."""
    history = f"{one.folder.name}/history"
    job = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"s3a://spark-events/{history}/"}
    one = in_s3(one.folder, capture="event_log", event_log_connection="events")
    elsewhere = SparkSubmit(binary=None, env={}, local_driver=False)
    submission = one.lineage.inject([Submission(properties=job)], elsewhere, PARENT, ROOT)[
        0
    ].submission
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
    assert (set(report.inputs), set(report.outputs)) == (
        set(TRUTH["inputs"]),
        set(TRUTH["outputs"]),
    )
    names = store.stored(f"eventlog_v2_{APPLICATION}")
    assert len(names) == 3, "the log is the user's"

    log = LogObjects(f"s3://events@spark-events/{history}", open_store)
    assert list(EventLog(log, application_ids=[APPLICATION]))
    found = EventLog(replace(log, since_ms=4_000_000_000_000))
    assert list(found) == [], "all logs were closed long before"
    assert found.logs == []


# -- an event log of the attempt's own, beside where the events would be

SERVICE = SparkSubmit(
    binary=None, env={}, local_driver=False, store_scheme="s3a", shares_disk=False
)
"""A service whose driver writes to S3, and has no jar of OpenLineage."""


def without_jar(folder: Path, number: int = 1, **options: Any) -> Try:
    given = {
        "capture": "auto",
        "openlineage_jar": None,
        "event_log_connection": "events",
        **options,
    }
    one = in_s3(folder, **given)
    return Try(folder, number, one.options, connections=one.connections)


def submitted(one: Try, job: Mapping[str, str] | None = None) -> dict[str, str]:
    [injection] = one.lineage.inject([Submission(properties=job or {})], SERVICE, PARENT, ROOT)
    return {name: str(value) for name, value in injection.submission.properties.items()}


def logged(properties: Mapping[str, str], *, killed: bool = False) -> Callable[[], Collection[str]]:
    """Write a log as Spark does, and return what lists it."""
    store, folder = (
        open_store("s3://events@spark-events"),
        urlsplit(properties["spark.eventLog.dir"]).path.strip("/"),
    )
    assert store.stored(folder), "Spark does not start without the folder"
    write_log(store, folder, killed=killed)
    return lambda: [name for name in store.stored(folder) if not name.endswith("/.of-an-attempt")]


def write_log(
    store: ObjectStorage, folder: str, application: str = APPLICATION, *, killed: bool = False
) -> None:
    """Write a log as Spark does, rolled and compressed; a killed driver leaves the first part."""
    name = f"{folder}/eventlog_v2_{application}/"
    lines = LOG.replace(APPLICATION.encode(), application.encode()).splitlines(keepends=True)
    for index, part in enumerate((lines[:-3], lines[-3:])[: 1 if killed else 2], 1):
        store.write(
            f"{name}events_{index}_{application}.zstd", [zstandard.compress(b"".join(part))]
        )
    store.write(f"{name}appstatus_{application}{'.inprogress' if killed else ''}", [b""])


def test_the_log_of_a_killed_driver_is_read_as_far_as_it_was_closed(one: Try) -> None:
    one = without_jar(one.folder)
    properties = submitted(one)
    rolled = [
        properties[f"spark.eventLog.{name}"] for name in ("rolling.enabled", "compression.codec")
    ]
    assert rolled == ["true", "zstd"]
    stored = logged(properties, killed=True)
    deliver_killed(one)
    edges = json.dumps(one.aspects("dataJobInputOutput"))
    (last,) = (urn for urn in TRUTH["outputs"] if urn not in edges)
    assert "/union/pivot," in last, "only the last query is in the part that was lost"
    assert not stored()


def test_a_driver_that_was_killed_before_it_closed_a_part_says_so(one: Try) -> None:
    folder = urlsplit(submitted(one := without_jar(one.folder))["spark.eventLog.dir"]).path.strip(
        "/"
    )
    name = f"{folder}/eventlog_v2_{APPLICATION}/appstatus_{APPLICATION}.inprogress"
    open_store("s3://events@spark-events").write(name, [b""])
    report = one.finish(replace(FAILED, failure="the job failed", seconds=HANGS))
    assert f"log of {APPLICATION} was not closed" in str(report.reason)


def test_a_cancelled_driver_has_time_to_close_its_log_and_keeps_its_folder(one: Try) -> None:
    """A service may start Spark there again, which needs the folder."""
    properties = submitted(one := without_jar(one.folder))
    one.lineage.driver_output.mark_killed()
    closing = threading.Timer(1, logged, [properties])
    closing.start()
    report = one.finish(replace(FAILED, failure="cancelled", seconds=HANGS))
    assert (report.reason, set(report.outputs)) == (None, set(TRUTH["outputs"]))
    folder = urlsplit(properties["spark.eventLog.dir"]).path.strip("/")
    assert list(open_store("s3://events@spark-events").stored(folder)) == [
        f"{folder}/.of-an-attempt"
    ]


def test_a_drain_on_this_machine_leaves_a_deferred_job(one: Try) -> None:
    stored = logged(submitted(one := without_jar(one.folder)))
    record = one.lineage.record
    assert isinstance(record, UnfinishedAttempt)
    one.lineage.record = replace(record, process=1 << 22, process_started=None)
    assert one.lineage.record.is_killed
    one.lineage.mark_deferred()
    (entry,) = open_outbox(one.lineage.options.outbox_location).entries()
    assert recover_entry(entry, Deadline.after(HANGS)) is None
    assert stored()


def test_a_log_that_cannot_be_read_at_the_end_stays(
    one: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = logged(submitted(one := without_jar(one.folder)))
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStorage, "read_range", Mock(side_effect=OSError("503 Slow Down")))
        report = one.finish(replace(ENDED, seconds=HANGS))
    assert "503 Slow Down" in str(report.reason)
    assert not report.is_complete
    assert stored()
    deliver_killed(one)
    assert not stored()


def test_the_place_of_a_log_is_the_users_where_the_job_has_one(one: Try) -> None:
    disabled = submitted(without_jar(one.folder), {"spark.eventLog.enabled": "false"})
    assert disabled == {"spark.eventLog.enabled": "false"}
    users = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "s3://spark-events/history"}
    assert submitted(without_jar(one.folder), users).items() >= users.items()


def test_a_service_needs_an_address_in_a_store(one: Try) -> None:
    with pytest.raises(
        InjectionError, match="set events_location to s3a://connection@bucket/folder"
    ):
        submitted(without_jar(one.folder, events_store=None))
    with pytest.raises(
        InjectionError, match="set events_location to s3a://connection@bucket/folder"
    ):
        submitted(without_jar(one.folder, events_store="gs://lake/events"))
    without_log = replace(SERVICE, store_scheme=None)
    with pytest.raises(
        InjectionError, match="and openlineage_jar, since Spark's own event log cannot be had"
    ):
        without_jar(one.folder).lineage.inject([Submission()], without_log, PARENT, ROOT)

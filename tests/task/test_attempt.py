"""Lineage steps of one attempt, on real event files, with delivery to a real file."""

from __future__ import annotations

import contextlib
import errno
import gc
import gzip
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_spark_datahub.capture.injection import ParentRun
from airflow_provider_spark_datahub.capture.spark_submit import InjectionError, Submission
from airflow_provider_spark_datahub.conversion import Proposal
from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, AttemptResult, DagRun, TaskAttempt
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.delivery.connection import ConnectionParts
from airflow_provider_spark_datahub.delivery.deadline import _LEAST_SECONDS, Deadline
from airflow_provider_spark_datahub.delivery.outbox import lease
from airflow_provider_spark_datahub.delivery.outbox.drain import Drain
from airflow_provider_spark_datahub.delivery.outbox.entries import Entry, OutboxLimits
from airflow_provider_spark_datahub.delivery.sink import DeliveryRecord, Sink
from airflow_provider_spark_datahub.delivery.sinks.file import FileSink
from airflow_provider_spark_datahub.hooks.storage import open_outbox
from airflow_provider_spark_datahub.task import delivery, recovery, submit_plan
from airflow_provider_spark_datahub.task.attempt import AttemptEnd, AttemptLineage
from airflow_provider_spark_datahub.task.job_events import JobEvents
from airflow_provider_spark_datahub.task.options import LineageOptions
from airflow_provider_spark_datahub.task.recovery import recover_entry, remove_delivered_events
from airflow_provider_spark_datahub.task.report import LineageReport
from airflow_provider_spark_datahub.task.submit_plan import SparkSubmit
from tests.capture.installations import executable, openlineage_jar, spark_at
from tests.capture.test_class_archive import Worker
from tests.conversion.builders import query, whole_application
from tests.delivery.outboxes import outbox_at
from tests.operators.tries import CORPUS, RUN_ID, START_MS, connections_to
from tests.oracles.gms import GmsStandIn
from tests.oracles.strict import canonical_violations
from tests.patience import HANGS, hanging_disk, not_outlasting, wait_until

PARENT = ParentRun("default", "shop.build", "01990000-0000-7000-8000-000000000001")
ROOT = ParentRun("default", "shop", "01990000-0000-7000-8000-000000000002")
ENDED = AttemptEnd(True, "SUCCESS", START_MS + 60_000, 30.0)
FAILED = AttemptEnd(False, "FAILURE", START_MS + 60_000, 30.0)
JOB = "urn:li:dataJob:(urn:li:dataFlow:(spark,a_csv_join_agg,analytics),a_csv_join_agg)"


@dataclass
class Try:
    """An attempt, its Spark and its sink, below one folder."""

    folder: Path
    number: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    sink: Sink | None = None
    sink_problem: str | None = None

    def __post_init__(self) -> None:
        self.sink_file = self.folder / "lineage.jsonl"
        given = {
            "connection": "datahub_file",
            "settings": LineageSettings(),
            "on_failure": "warn",
            "events_location": self.folder / "events",
            "outbox_location": str(self.folder / "outbox"),
            "timeout": 30.0,
            "openlineage_jar": str(self.folder / "openlineage-spark_2.13-1.53.0.jar"),
        }
        self.lineage = AttemptLineage(
            LineageOptions(**{**given, **self.options}),
            TaskAttempt(DagRun(AirflowSite(), "shop", RUN_ID), "build", self.number, start_ms=START_MS),
            connections_to(None if self.sink_problem else self.sink or FileSink(self.sink_file), self.sink_problem),
        )

    def spark_submit(self, **env: str) -> SparkSubmit:
        home = self.folder / "spark"
        if not home.exists():
            executable(spark_at(home) / "bin/spark-submit")
            openlineage_jar(self.folder / "openlineage-spark_2.13-1.53.0.jar")
        return SparkSubmit("spark-submit", {"PATH": "/usr/bin:/bin", "SPARK_HOME": str(home), **env}, local_driver=True)

    def inject(self, submission: Submission | None = None, **env: str) -> dict[str, str]:
        """Return the Spark properties that the job would get."""
        injection = self.lineage.inject(submission or Submission(), self.spark_submit(**env), PARENT, ROOT)
        return injection.submission.effective_properties()

    def job_writes(self, events: str | bytes) -> Path:
        """Inject, and write where the listener would."""
        path = Path(self.inject()["spark.openlineage.transport.location"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((CORPUS / f"{events}.ndjson").read_bytes() if isinstance(events, str) else events)
        return path

    @property
    def delivered(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.sink_file.read_text().splitlines()]


@pytest.fixture
def one(tmp_path: Path) -> Try:
    return Try(tmp_path)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def entries(folder: Path) -> list[Entry]:
    """Return the pending entries of the outbox."""
    return list(outbox_at(folder / "outbox").entries())


# -- a job that went well


def test_events_that_a_driver_elsewhere_left_on_its_own_disk_are_reported_as_missing(tmp_path: Path) -> None:
    one = Try(tmp_path, options={"openlineage_jar": "provided"})
    elsewhere = SparkSubmit(binary=None, env={}, local_driver=False)
    one.lineage.inject(Submission(), elsewhere, PARENT, ROOT)
    file = one.lineage.report.events_file
    assert one.lineage.finish(ENDED).reason == (
        f"there is no event file: the driver ran on another machine, and its {file} is not on this one, or the "
        "OpenLineage listener did not run there: set events_location to a folder that both share, or to an "
        "address in S3"
    )


def test_a_command_line_that_the_operating_system_just_takes_is_not_extended(tmp_path: Path) -> None:
    """Linux bounds all arguments and the environment together. Java's command line repeats parts of Spark's."""
    one, size = Try(tmp_path), 100_000
    most = min(os.sysconf("SC_ARG_MAX"), 6 * 1024 * 1024)
    users = Submission({f"spark.shop.p{number}": "x" * size for number in range(5)})

    def start(submission: Submission) -> None:
        subprocess.run(["/bin/true", *submission.arguments], env=env, check=True)

    filled = (most - 5 * size - 1_000) // size
    env = {f"V{number}": "x" * size for number in range(filled)} | {"REST": "x" * ((most - 5 * size - 1_000) % size)}
    start(users)
    with pytest.raises(OSError, match="Argument list too long"):
        start(replace(users, properties={**users.properties, **one.inject()}))
    with pytest.raises(InjectionError, match=rf"too close to the {most} that this machine takes"):
        Try(tmp_path).inject(users, **env)
    with pytest.raises(InjectionError, match=rf"too close to the {most} that this machine takes"):
        one.lineage.inject(users, replace(one.spark_submit(), argument_bytes=most), PARENT, ROOT)


def test_the_folder_of_a_job_that_has_just_begun_stays_when_another_attempt_ends(tmp_path: Path) -> None:
    """OpenLineage makes the folder once, before its first event: if it is gone then, all events of the job are lost."""
    ending, beginning = Try(tmp_path, number=1), Try(tmp_path, number=2)
    ending.job_writes("a_csv_join_agg")
    path = Path(beginning.inject()["spark.openlineage.transport.location"])
    ending.lineage.finish(ENDED)
    path.write_bytes((CORPUS / "a_csv_join_agg.ndjson").read_bytes())
    assert beginning.lineage.finish(ENDED).events == 23
    assert not list((tmp_path / "events").iterdir())


def test_everything_is_delivered_and_nothing_is_left(one: Try, tmp_path: Path) -> None:
    one.job_writes("a_csv_join_agg")
    report = one.lineage.finish(ENDED)
    prefix = "urn:li:dataset:(urn:li:dataPlatform:file,/lake"
    expected = LineageReport(
        connection="datahub_file",
        events=23,
        jobs=[JOB],
        inputs=[f"{prefix}/raw/customers.csv,PROD)", f"{prefix}/raw/orders.csv,PROD)"],
        outputs=[f"{prefix}/out/a/revenue_by_country,PROD)"],
        proposals=len(one.delivered),
        delivered=len(one.delivered),
        stored=True,
    )
    assert replace(report, seconds=0.0) == expected
    assert report.seconds > 0
    assert [canonical_violations(proposal) for proposal in one.delivered] == [[]] * report.proposals
    assert not list((tmp_path / "events").iterdir())
    assert entries(tmp_path) == []


def test_every_step_is_logged_for_debugging(one: Try, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="airflow_provider_spark_datahub"):
        path = one.job_writes("a_csv_join_agg")
        one.lineage.announce()
        one.lineage.finish(ENDED)
    expected = [
        "OpenLineage jar: ",
        f"Events go to {path}; properties added: ",
        "Entry begun, ",
        "Announced the attempt: ",
        "The job has ended: Spark succeeded, the task is SUCCESS; 30.0 s for lineage",
        "Entry updated, ",
        f"Collected 23 events, {(CORPUS / 'a_csv_join_agg.ndjson').stat().st_size} bytes, 0 unusable lines in ",
        "Converted to 1 job, 2 inputs, 1 output in ",
        "Made 27 proposals",
        "Entry finished, 27 items in ",
        f"Delivered 27 of 27 items to the file {one.sink_file} in ",
        "Entry settled, ",
        f"Removed {path}",
    ]
    messages = [record.getMessage() for record in caplog.records]
    found = [step for message in messages for step in expected if message.startswith(step)]
    assert found == expected


def test_secrets_in_the_address_of_the_jar_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    address = "https://ann:hunter2@repo.example.com/openlineage-spark_2.13-1.53.0.jar"
    one = Try(tmp_path, options={"openlineage_jar": address})
    with caplog.at_level("DEBUG", logger="airflow_provider_spark_datahub"):
        one.inject()
    assert "OpenLineage jar: https://repo.example.com/openlineage-spark" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("fails", [False, True])
def test_the_garbage_collector_runs_again_after_the_end(one: Try, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    seen: list[bool] = []

    def deliver(*_: object, **__: object) -> None:
        seen.append(gc.isenabled())
        if fails:
            raise OSError("no")

    monkeypatch.setattr(one.lineage.delivery, "deliver", deliver)
    one.job_writes("a_csv_join_agg")
    with pytest.raises(OSError, match="no") if fails else contextlib.nullcontext():
        one.lineage.finish(ENDED)
    assert (seen, gc.isenabled()) == ([False], True)


def test_the_same_events_make_the_same_bytes(tmp_path: Path) -> None:
    delivered = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        one = Try(tmp_path / name)
        one.job_writes("a_csv_join_agg")
        one.lineage.finish(ENDED)
        delivered.append(one.sink_file.read_bytes())
    assert delivered[0] == delivered[1]


def test_only_empty_folders_of_events_are_removed(one: Try, tmp_path: Path) -> None:
    path = one.job_writes("a_csv_join_agg")
    of_another_task = path.parent.parent / "other" / "try1.ndjson"
    of_another_task.parent.mkdir()
    of_another_task.touch()
    one.lineage.finish(ENDED)
    assert files_below(tmp_path / "events") == [of_another_task]
    assert not path.parent.exists()


def test_the_spark_run_hangs_below_the_task_run(one: Try) -> None:
    one.job_writes("a_csv_join_agg")
    one.lineage.finish(ENDED)
    task_run = AirflowSite().task_run_urn("shop", "build", RUN_ID)
    task_job = AirflowSite().job_urn("shop", "build")
    children = [
        proposal["entityUrn"]
        for proposal in one.delivered
        if proposal["aspectName"] == "dataProcessInstanceRelationships"
        and proposal["aspect"]["json"].get("parentInstance") == task_run
    ]
    assert len(children) == 1
    (io,) = [
        proposal["aspect"]["json"]
        for proposal in one.delivered
        if (proposal["entityUrn"], proposal["aspectName"]) == (JOB, "dataJobInputOutput")
    ]
    assert io["inputDatajobs"] == [task_job]


def test_the_announcement_says_that_the_attempt_runs(one: Try) -> None:
    one.lineage.announce()
    events = [each["aspect"]["json"] for each in one.delivered if each["aspectName"] == "dataProcessInstanceRunEvent"]
    assert [(event["status"], event.get("attempt")) for event in events] == [("STARTED", 1)]
    assert not any(each["aspectName"] == "dataJobInputOutput" for each in one.delivered)


def test_without_a_sink_nothing_is_announced(tmp_path: Path) -> None:
    one = Try(tmp_path, sink_problem="connection 'x' cannot be used")
    one.lineage.announce()
    assert not one.sink_file.exists()


@pytest.mark.slow
def test_rejections_of_gms_are_reported_and_quarantined(tmp_path: Path) -> None:
    from airflow_provider_spark_datahub.delivery.sinks import RestSettings, RestSink

    with (
        GmsStandIn("token") as gms,
        RestSink(RestSettings.from_connection(ConnectionParts(gms.url, password="token"))) as sink,
    ):
        gms.reject(JOB)
        one = Try(tmp_path, sink=sink)
        path = one.job_writes("a_csv_join_agg")
        report = one.lineage.finish(ENDED)
        stored = len(gms.stored)
    (warning,) = (warning for warning in report.warnings if "were rejected" in warning)
    assert (report.delivered, report.rejected, report.pending) == (stored, 3, 0)
    assert report.delivered + report.rejected == report.proposals
    assert warning.startswith("3 proposals were rejected, and kept in the outbox's quarantine: 3 times HTTP 422")
    assert f"{JOB} was rejected" in warning
    assert not path.exists()
    assert len(list((tmp_path / "outbox" / "quarantined").rglob("*.jsonl"))) == 1


# -- why nothing, or not all


def test_a_listener_that_did_not_run_is_the_reason(one: Try, tmp_path: Path) -> None:
    one.inject()
    report = one.lineage.finish(ENDED)
    assert (report.events, report.inputs, report.jobs) == (0, [], [])
    assert str(report.reason).startswith("there is no event file: the OpenLineage listener did not run")
    assert str(tmp_path / "events" / "shop") in str(report.reason)
    assert report.delivered == report.proposals > 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the event file holds no event"),
        (b"\n\n", "the event file holds no event"),
        (b"{}\n", "none of 1 event could be converted: not a run event"),
        (b'{"run": {"runId": "x"}, "job": {}}\n', "none of 1 event could be converted: job.name is ''"),
    ],
)
def test_an_event_file_without_a_usable_event_is_the_reason(one: Try, content: bytes, reason: str) -> None:
    one.job_writes(content)
    report = one.lineage.finish(ENDED)
    assert str(report.reason).startswith(reason)
    assert report.jobs == []
    assert f"No lineage: {reason}" in report.sentence


def test_a_job_that_touches_no_dataset_says_so(one: Try) -> None:
    one.job_writes("i_no_lineage")
    report = one.lineage.finish(ENDED)
    assert report.events == 2
    assert len(report.jobs) == 1
    assert report.reason == "the job's events name no dataset: it read and wrote nothing that OpenLineage sees"


def test_a_query_whose_table_openlineage_does_not_name_is_the_reason(one: Try) -> None:
    wrote = query(job="shop.append_data.ice_sales_orders")
    one.job_writes("".join(f"{json.dumps(event)}\n" for event in whole_application(wrote)).encode())
    report = one.lineage.finish(ENDED)
    assert "does not name the tables that these queries wrote" in str(report.reason)
    assert "append_data.ice_sales_orders" in report.sentence


def test_a_folder_in_place_of_the_event_file_is_the_reason(one: Try) -> None:
    path = one.job_writes("a_csv_join_agg")
    path.unlink()
    path.mkdir()
    report = one.lineage.finish(ENDED)
    assert report.reason == f"the event file cannot be read ({path} is not a regular file (drwxr-xr-x))"
    assert report.events_file == str(path)
    assert report.is_complete


def test_an_event_file_that_cannot_be_removed_is_a_warning(one: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    path = one.job_writes("a_csv_join_agg")

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self), missing_ok)

    real = Path.unlink
    monkeypatch.setattr(
        Path, "unlink", lambda self, missing_ok=False: (refuse if self == path else real)(self, missing_ok)
    )
    report = one.lineage.finish(ENDED)
    assert (report.pending, report.events_file) == (0, str(path))
    assert report.warnings == [f"cannot remove the event file {path}: Permission denied"]


@contextlib.contextmanager
def disk_hangs(monkeypatch: pytest.MonkeyPatch, owner: Any, function: str, path: Path) -> Iterator[None]:
    """Let a function of files hang at one path while the body runs."""
    is_back, real = threading.Event(), getattr(owner, function)

    def hangs(name: Any, *arguments: Any, **options: Any) -> Any:
        if os.fspath(name) == str(path):
            is_back.wait(HANGS)
        return real(name, *arguments, **options)

    monkeypatch.setattr(owner, function, hangs)
    try:
        yield
    finally:
        is_back.set()


@pytest.mark.slow
def test_a_disk_that_hangs_when_events_are_removed_does_not_outlast_the_budget(
    one: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one.job_writes("a_csv_join_agg")
    with disk_hangs(monkeypatch, Path, "unlink", path), not_outlasting(2.0):
        report = one.lineage.finish(replace(ENDED, seconds=2.0))
    assert (report.pending, report.events_file) == (0, str(path))
    (warning,) = report.warnings
    assert f"cannot remove the event file {path}: the disk did not answer within " in warning


@pytest.mark.slow
def test_events_on_a_disk_that_hangs_are_converted_later(one: Try, monkeypatch: pytest.MonkeyPatch) -> None:
    path = one.job_writes("a_csv_join_agg")
    with disk_hangs(monkeypatch, os, "open", path), not_outlasting(0.5):
        report = one.lineage.finish(replace(ENDED, seconds=0.5))
    assert not report.is_complete
    assert "a read of them has not ended" in str(report.reason)
    (entry,) = outbox_at(one.folder / "outbox").entries()
    assert recover_entry(entry, Deadline.after(60.0), over=True) is not None


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["warn", "retry"])
def test_an_attempt_is_recorded_beside_an_outbox_whose_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """The submit waits a moment; the attempt is recorded beside the outbox, and comes in later."""
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__EVENTS_LOCATION", str(tmp_path / "events"))
    monkeypatch.setattr(delivery, "_BEGIN_SECONDS", 0.2)
    one = Try(tmp_path, 2, options={"on_failure": policy})
    with hanging_disk(tmp_path / "outbox") as asked, not_outlasting(2.0):
        with contextlib.suppress(OSError):
            one.lineage.handle_orphans()
        one.lineage.delivery.attempt_to_deliver(None)
        one.job_writes("a_csv_join_agg")
    assert asked
    warnings = " ".join(one.lineage.report.warnings)
    assert "not in the outbox before the submit: " in warnings
    assert "no answer within 0.5 s" in warnings
    assert len(files_below(tmp_path / "events/.unfinished")) == 1
    report = one.lineage.finish(ENDED)
    assert (report.is_complete, report.outbox_entry, entries(tmp_path)) == (True, None, [])


@pytest.mark.slow
@pytest.mark.parametrize("hangs", ["the outbox", "every disk"])
@pytest.mark.parametrize("drained", [False, True])
def test_an_entry_that_a_slow_disk_made_too_late_is_not_converted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str, drained: bool
) -> None:
    """Nobody takes it for the entry of an attempt that was killed."""
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__EVENTS_LOCATION", str(tmp_path / "events"))
    monkeypatch.setattr(delivery, "_BEGIN_SECONDS", 0.2)
    one = Try(tmp_path)
    overflow_of_it = tmp_path / ("elsewhere" if hangs == "the outbox" else "events/.unfinished")
    with hanging_disk(tmp_path / "outbox/pending", ["replace"]), hanging_disk(overflow_of_it, ["replace"]):
        one.job_writes("a_csv_join_agg")
    assert "not in the outbox before the submit: " in one.lineage.report.warnings[0]
    wait_until(lambda: list((tmp_path / "outbox/pending").rglob("*.jsonl")))
    if drained:
        one.sink_file.mkdir()
    assert one.lineage.finish(ENDED).is_complete is not drained
    if drained:
        one.sink_file.rmdir()
        monkeypatch.setattr(recovery, "is_gone", lambda *_: True)
        finish, settled = recovery.drain_callbacks(lambda _: "FAILURE", 60.0)
        Drain(
            outbox_at(tmp_path / "outbox"), lambda _: (FileSink(one.sink_file), None), finish=finish, settled=settled
        ).run()
    results = [
        (event["aspect"]["json"]["result"]["type"])
        for event in one.delivered
        if event["aspectName"] == "dataProcessInstanceRunEvent" and "result" in event["aspect"]["json"]
    ]
    assert set(results) == {"SUCCESS"}
    assert entries(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("sink_is_down", [False, True])
def test_lineage_is_delivered_past_an_outbox_whose_disk_hangs(tmp_path: Path, sink_is_down: bool) -> None:
    one = Try(tmp_path)
    path = one.job_writes("a_csv_join_agg")
    if sink_is_down:
        one.sink_file.mkdir()
    with hanging_disk(tmp_path / "outbox"), not_outlasting(2.0):
        report = one.lineage.finish(replace(ENDED, seconds=2.0))
    assert (report.delivered, report.pending) == ((0, report.proposals) if sink_is_down else (report.proposals, 0))
    warnings = " ".join(report.warnings)
    assert "not kept in the outbox before the delivery: " in warnings
    assert "no answer within" in warnings
    # The entry from before the submit could not be removed: whoever finds it needs the events.
    assert path.is_file()
    (entry,) = entries(tmp_path)
    assert report.outbox_entry == str(entry)
    recovered = recover_entry(entry, Deadline.after(60.0), over=True)
    assert recovered is not None
    assert recovered.manifest.pending == report.proposals


@pytest.mark.slow
@pytest.mark.parametrize("known", ["SUCCESS", "FAILURE"])
@pytest.mark.parametrize("later_attempt", [False, True])
def test_the_result_of_an_unrecorded_end_is_airflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: AttemptResult, later_attempt: bool
) -> None:
    """Airflow's result is that of the last attempt, so it is not an earlier one's."""
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__EVENTS_LOCATION", str(tmp_path / "events"))
    one = Try(tmp_path)
    one.job_writes("a_csv_join_agg")
    with hanging_disk(tmp_path / "outbox"), hanging_disk(tmp_path / "events/.unfinished"):
        one.lineage.finish(replace(ENDED, seconds=2.0))
    if later_attempt:
        (left,) = (tmp_path / "outbox/pending").rglob("try-*.jsonl")
        left.rename(tmp_path / "left")  # as if its worker's disk were away
        two = Try(tmp_path, 2)
        two.job_writes("a_csv_join_agg")
        two.lineage.finish(ENDED)
        left.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "left").rename(left)
    before = len(one.delivered)
    monkeypatch.setattr(recovery, "is_gone", lambda *_: True)
    monkeypatch.setattr(recovery.UnfinishedAttempt, "runs_here", False)
    finish, settled = recovery.drain_callbacks(lambda _: known, 60.0)
    sink = FileSink(one.sink_file)
    Drain(outbox_at(tmp_path / "outbox"), lambda _: (sink, None), finish=finish, settled=settled).run()
    assert entries(tmp_path) == []
    results = {
        event["aspect"]["json"]["result"]["type"]
        for event in one.delivered[before:]
        if event["aspectName"] == "dataProcessInstanceRunEvent" and "result" in event["aspect"]["json"]
    }
    assert results == {"FAILURE" if later_attempt else known}
    edges = {event["changeType"] for event in one.delivered[before:] if event["aspectName"] == "dataJobInputOutput"}
    assert edges == {"PATCH"}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["scandir", "open"])
def test_lineage_stays_pending_if_the_outboxs_disk_hangs_amid_the_delivery(tmp_path: Path, step: str) -> None:
    """Nothing is sent out of order: the entry is pending."""
    one = Try(tmp_path)
    path = one.job_writes("a_csv_join_agg")
    put = one.lineage.delivery._deliver_entries

    def deliver(deadline: Deadline, own: Entry) -> None:
        with hanging_disk(tmp_path / "outbox", [step]):
            put(deadline, own)

    one.lineage.delivery._deliver_entries = deliver  # type: ignore[method-assign]
    with not_outlasting(2.0):
        report = one.lineage.finish(replace(ENDED, seconds=2.0))
    assert (report.delivered, report.pending) == (0, report.proposals)
    assert "no answer within" in str(report.reason)
    assert path.is_file()
    (entry,) = entries(tmp_path)
    assert (entry.manifest.state, entry.manifest.pending) == ("pending", report.proposals)


@pytest.mark.slow
def test_a_job_runs_without_the_listener_if_the_disk_for_events_hangs(
    one: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener would hang in the driver, and with it the job: it runs without."""
    monkeypatch.setattr(submit_plan, "_BEGIN_SECONDS", 0.2)
    one.spark_submit()
    with hanging_disk(one.folder / "events"), not_outlasting(0.5), pytest.raises(TimeoutError, match="no answer"):
        one.inject()


@pytest.mark.slow
def test_a_disk_that_refuses_a_step_loses_no_lineage(tmp_path: Path) -> None:
    """As an NFS server that has forgotten its files. Nothing is raised, and nothing is lost."""
    for step in ("write", "fsync", "replace", "unlink", "scandir", "statvfs", "mkdir"):
        one = Try(tmp_path / step)
        path = one.job_writes("a_csv_join_agg")
        real = getattr(os, step)

        def refuse(of: Any, *arguments: Any, root: Path = one.folder, real: Any = real, **options: Any) -> Any:
            text = str(Path(f"/proc/self/fd/{of}").readlink()) if isinstance(of, int) else os.fspath(of)
            if text.startswith((f"{root}/outbox", f"{root}/events")):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), text)
            return real(of, *arguments, **options)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, step, refuse)
            report = one.lineage.finish(ENDED)
        left = {entry.manifest.state for entry in outbox_at(one.folder / "outbox").entries()}
        assert report.has_lineage, step
        assert report.delivered == report.proposals or (path.is_file() and left == {"pending"}), step


@pytest.mark.parametrize("for_good", [False, True])
def test_events_that_cannot_be_read_at_the_moment_are_converted_later(
    one: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_good: bool
) -> None:
    path = one.job_writes("a_csv_join_agg")
    real = os.open

    def fail(of: Any, *arguments: Any, **options: Any) -> int:
        if os.fspath(of) == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(of))
        return real(of, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        report = one.lineage.finish(ENDED)
        (entry,) = entries(tmp_path)
        with pytest.raises(OSError, match="cannot be read at the moment"):
            recover_entry(entry, Deadline.after(HANGS))
        assert (report.failed, report.delivered, entry.manifest.state) == (True, 0, "unfinished")
        assert f"{path}: Input/output error" in str(report.reason)
        if for_good:  # in the end, the attempt has its place in the run tree
            entry.outbox.limits = OutboxLimits(max_age=0.0)
            recover_entry(entry, Deadline.after(HANGS))
    if not for_good:
        recover_entry(entry, Deadline.after(HANGS))
    (recovered,) = entries(tmp_path)
    assert recovered.manifest.state == "pending"
    urns = {item.entity_urn for item in recovered.items() if isinstance(item, Proposal)}
    assert (JOB in urns) is not for_good
    assert path.is_file()


def test_the_events_before_a_torn_line_make_edges_that_are_only_added(one: Try) -> None:
    content = (CORPUS / "a_csv_join_agg.ndjson").read_bytes()
    one.job_writes(content[:-100])
    report = one.lineage.finish(FAILED)
    assert (report.events, report.bad_events) == (22, 1)
    assert any("cut off" in warning for warning in report.warnings)
    assert report.has_lineage
    (io,) = [each for each in one.delivered if (each["entityUrn"], each["aspectName"]) == (JOB, "dataJobInputOutput")]
    assert io["changeType"] == "PATCH"


def test_bad_lines_do_not_affect_other_events(one: Try) -> None:
    lines = (CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines(keepends=True)
    path = one.job_writes(b"".join([b"no json\n", *lines, b"[]\n", b"{}\n"]))
    report = one.lineage.finish(ENDED)
    assert (report.events, report.bad_events, len(report.outputs)) == (24, 3, 1)
    assert report.reason is None
    texts = "\n".join(report.warnings)
    assert f"{path}, line 1: not valid JSON" in texts
    assert "line 25: not a JSON object" in texts
    assert "not a run event" in texts


def test_events_that_there_is_no_time_to_read_are_left_to_a_drain(one: Try, tmp_path: Path) -> None:
    path = one.job_writes("a_csv_join_agg")
    report = one.lineage.finish(replace(ENDED, seconds=0.0))
    assert (report.events, report.delivered, report.pending) == (0, 0, report.proposals)
    assert "the time for reading events was used up" in str(report.reason)
    assert path.is_file()
    assert len(files_below(tmp_path / "outbox/pending")) == 1


@pytest.mark.slow
def test_proposals_that_there_is_no_time_to_deliver_stay_in_the_outbox(
    one: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proposals of a huge job are made just in time: they are kept, and not even read again."""
    made = JobEvents.lineage_in_time

    def just_in_time(self: JobEvents, succeeded: bool, attempt: TaskAttempt, deadline: Deadline) -> Any:
        lineage = made(self, succeeded, attempt, Deadline.after(HANGS))
        time.sleep(deadline.remaining())
        return lineage

    monkeypatch.setattr(JobEvents, "lineage_in_time", just_in_time)
    one.job_writes("a_csv_join_agg")
    report = one.lineage.finish(replace(ENDED, seconds=2.0))
    assert (report.delivered, report.pending) == (0, report.proposals)
    assert "the time for lineage was over before its delivery" in str(report.reason)
    assert [entry.manifest.pending for entry in entries(tmp_path)] == [report.proposals]


def test_a_job_without_the_listener_has_its_task_run_and_the_reason(one: Try) -> None:
    one.lineage.mark_not_injected("the jar is missing")
    report = one.lineage.finish(ENDED)
    assert report.reason == "the jar is missing"
    assert report.events_file is None
    results = [each["aspect"]["json"].get("result") for each in one.delivered if "RunEvent" in each["aspectName"]]
    assert {"type": "SUCCESS", "nativeResultType": "airflow"} in results
    assert not any(each["aspectName"] == "dataJobInputOutput" for each in one.delivered)


def test_an_application_without_a_name_of_its_own_is_a_warning(one: Try) -> None:
    content = (CORPUS / "a_csv_join_agg.ndjson").read_bytes().replace(b'"a_csv_join_agg', b'"arrow-spark')
    one.job_writes(content.replace(b"a_csv_join_agg", b"arrow_spark"))
    report = one.lineage.finish(ENDED)
    assert any("'arrow-spark'" in warning and "set 'name'" in warning for warning in report.warnings), report.warnings


def test_the_exit_of_spark_submit_decides_the_result_of_the_spark_run(one: Try) -> None:
    one.job_writes("a_csv_join_agg")
    one.lineage.finish(FAILED)
    results = {
        proposal["aspect"]["json"]["result"]["type"]
        for proposal in one.delivered
        if "RunEvent" in proposal["aspectName"] and "result" in proposal["aspect"]["json"]
    }
    assert results == {"FAILURE"}


# -- delivery


def test_undelivered_proposals_stay_in_the_outbox(one: Try, tmp_path: Path) -> None:
    path = one.job_writes("a_csv_join_agg")
    one.sink_file.mkdir()
    report = one.lineage.finish(ENDED)
    assert (report.delivered, report.pending, report.stored) == (0, report.proposals, None)
    assert f"Cannot write the file {one.sink_file}: Is a directory" in str(report.reason)
    assert not report.is_complete
    assert path.is_file()
    (entry,) = entries(tmp_path)
    assert report.outbox_entry == str(entry)
    assert len(entry.items()) == report.proposals
    assert (entry.manifest.spark_succeeded, entry.manifest.connection_id) == (True, "datahub_file")
    assert f"{report.pending} pending (datahub_file). Note: Cannot write" in report.sentence


def test_lineage_for_a_connection_that_cannot_be_used_stays_in_the_outbox(tmp_path: Path) -> None:
    one = Try(tmp_path, sink_problem="connection 'datahub_file' cannot be used: it is not defined")
    one.job_writes("a_csv_join_agg")
    report = one.lineage.finish(ENDED)
    assert (report.pending, report.reason) == (report.proposals, one.sink_problem)
    assert report.proposals == len(entries(tmp_path)[0].items())


def test_lineage_is_delivered_without_an_outbox(one: Try, tmp_path: Path) -> None:
    (tmp_path / "outbox").write_text("in the way")
    path = one.job_writes("a_csv_join_agg")
    report = one.lineage.finish(ENDED)
    assert (report.delivered, report.pending) == (report.proposals, 0)
    assert len(one.delivered) == report.proposals
    assert any(warning.startswith("not kept in the outbox before the delivery: ") for warning in report.warnings)
    assert not path.exists()


def test_the_lineage_of_an_earlier_attempt_goes_first(tmp_path: Path) -> None:
    first, second = Try(tmp_path, 1), Try(tmp_path, 2)
    first.job_writes("c_fail_midway")
    first.sink_file.mkdir()
    first.lineage.finish(replace(FAILED, result="UP_FOR_RETRY"))
    first.sink_file.rmdir()

    second.job_writes("a_csv_join_agg")
    report = second.lineage.finish(ENDED)

    assert (report.pending, report.reason) == (0, None)
    attempts = [
        (event["attempt"], event["status"])
        for event in (
            proposal["aspect"]["json"] for proposal in second.delivered if "RunEvent" in proposal["aspectName"]
        )
        if "attempt" in event
    ]
    assert attempts == [(1, "STARTED"), (1, "COMPLETE"), (2, "STARTED"), (2, "COMPLETE")]
    assert entries(tmp_path) == []


def test_the_next_attempt_delivers_what_a_killed_one_left(tmp_path: Path) -> None:
    """The killed attempt left its events, and its record from before the submit."""
    first, second = Try(tmp_path, 1), Try(tmp_path, 2)
    first.job_writes("c_fail_midway")
    (left,) = entries(tmp_path)
    assert (left.manifest.state, left.manifest.key.try_number) == ("unfinished", 1)

    second.job_writes("a_csv_join_agg")
    report = second.lineage.finish(ENDED)

    assert (report.pending, report.reason, report.warnings) == (0, None, [])
    attempts = [
        (event["attempt"], event.get("result", {}).get("type"))
        for event in (
            proposal["aspect"]["json"] for proposal in second.delivered if "RunEvent" in proposal["aspectName"]
        )
        if "attempt" in event
    ]
    assert attempts == [(1, None), (1, "FAILURE"), (2, None), (2, "SUCCESS")]
    assert entries(tmp_path) == []


def test_a_full_outbox_is_reported_and_keeps_the_record(tmp_path: Path) -> None:
    one = Try(tmp_path, options={"outbox_limits": OutboxLimits(max_bytes=4000)})
    path = one.job_writes("a_csv_join_agg")
    one.sink_file.mkdir()
    report = one.lineage.finish(ENDED)
    assert report.pending == report.proposals
    assert any("is full" in warning and "outbox_max_bytes" in warning for warning in report.warnings)
    assert path.is_file()

    one.sink_file.rmdir()
    outbox = outbox_at(tmp_path / "outbox")
    drained = Drain(
        outbox,
        lambda _: (FileSink(one.sink_file), None),
        finish=lambda entry, _: recover_entry(entry, Deadline.after(60.0)),
    ).run()
    assert (drained.settled, drained.delivered) == (1, report.proposals)


@pytest.mark.parametrize("ended", [True, False])
def test_an_attempt_that_neither_outbox_nor_sink_takes_is_converted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """The outbox is full from before the submit on, and the sink is down; the task is killed or not."""
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__EVENTS_LOCATION", str(tmp_path / "events"))
    undisturbed = Try(tmp_path / "undisturbed")
    undisturbed.job_writes("a_csv_join_agg")
    undisturbed.lineage.finish(ENDED)
    one = Try(tmp_path, options={"outbox_limits": OutboxLimits(max_bytes=1)})
    path = one.job_writes("a_csv_join_agg")
    one.sink_file.mkdir()
    if ended:
        report = one.lineage.finish(ENDED)
        assert (report.delivered, report.pending) == (0, report.proposals)
        assert any("is full" in warning and "outbox_max_bytes" in warning for warning in report.warnings)
        assert report.outbox_entry is not None
    assert path.is_file()
    assert entries(tmp_path) == []

    one.sink_file.rmdir()
    outbox = open_outbox(str(tmp_path / "outbox"))
    assert len(outbox.names()) == ended  # before, the process may still be at work
    if not ended:
        monkeypatch.setattr(lease, "is_gone", lambda *_: True)
        monkeypatch.setattr(lease, "process_start", lambda _: 1)
    drained = Drain(
        outbox,
        lambda _: (FileSink(one.sink_file), None),
        finish=lambda entry, _: recover_entry(entry, Deadline.after(60.0), over=True),
        settled=remove_delivered_events,
    ).run()
    assert (drained.settled, drained.problems) == (1, {})
    assert (one.delivered == undisturbed.delivered) == ended
    assert files_below(tmp_path / "events") == []


def test_earlier_lineage_is_delivered_while_the_next_job_runs(tmp_path: Path) -> None:
    first, second = Try(tmp_path, 1), Try(tmp_path, 2)
    first.job_writes("c_fail_midway")
    first.sink_file.mkdir()
    first.lineage.finish(replace(FAILED, result="UP_FOR_RETRY"))
    first.sink_file.rmdir()
    second.inject()
    second.lineage.announce()
    attempts = [
        (event["attempt"], event["status"])
        for event in (
            proposal["aspect"]["json"] for proposal in second.delivered if "RunEvent" in proposal["aspectName"]
        )
        if "attempt" in event
    ]
    assert attempts == [(1, "STARTED"), (1, "COMPLETE"), (2, "STARTED")]
    (own,) = entries(tmp_path)
    assert (own.manifest.state, own.name.try_number) == ("unfinished", 2)


def test_raw_events_are_kept_without_secrets_beside_pending_proposals(tmp_path: Path) -> None:
    one = Try(tmp_path)
    secret = b'{"run": {"runId": "x"}, "password": "canary", "job": {"sql": "OPTIONS (url \'jdbc:x://u:canary@h/d\')"}}'
    one.job_writes((CORPUS / "a_csv_join_agg.ndjson").read_bytes() + secret + b"\n")
    one.sink_file.mkdir()
    one.lineage.finish(ENDED)
    (entry,) = entries(tmp_path)
    assert entry.manifest.events == entry.name.events
    with gzip.open(tmp_path / "outbox" / entry.name.events) as file:
        kept = [json.loads(line) for line in file]
    written = [json.loads(line) for line in (CORPUS / "a_csv_join_agg.ndjson").read_bytes().splitlines()]
    assert kept[:-1] == written
    assert "canary" not in json.dumps(kept[-1])
    assert kept[-1]["run"] == {"runId": "x"}


class Rejecting(Sink):
    """Sink that rejects every proposal."""

    name = "rejecting"

    def describe(self) -> str:
        return "a sink"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (the sink's signature)
        for item in record.pending():
            record.reject(item, "no such aspect")


def test_raw_events_go_to_the_quarantine_with_rejected_proposals(tmp_path: Path) -> None:
    one = Try(tmp_path, sink=Rejecting())
    one.job_writes("a_csv_join_agg")
    one.lineage.finish(ENDED)
    raw, quarantined = sorted(files_below(tmp_path / "outbox/quarantined"), key=lambda path: path.suffix)
    assert raw.name.endswith(".events.ndjson.gz")
    assert len(gzip.decompress(raw.read_bytes()).splitlines()) == 23
    assert quarantined.suffix == ".jsonl"


class Refusing(Sink):
    """Takes nothing of a proposal that is in its words."""

    name = "refusing"

    def __init__(self, refuses: Callable[[str], bool]) -> None:
        self._refuses = refuses
        self.seen: list[str] = []

    def describe(self) -> str:
        return "a sink"

    def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (the sink's signature)
        for item in record.pending():
            text = json.dumps(item[1].to_obj())
            if self._refuses(text):
                record.stop("a sink refuses")
                return
            self.seen.append(text)
            record.confirm([item], stored=True)


def test_a_pending_earlier_attempt_holds_up_a_later_one(tmp_path: Path) -> None:
    sink = Refusing(lambda text: '"attempt": 1' in text)
    first, second = Try(tmp_path, 1, sink=sink), Try(tmp_path, 2, sink=sink)
    first.job_writes("c_fail_midway")
    first.lineage.finish(replace(FAILED, result="UP_FOR_RETRY"))
    second.job_writes("a_csv_join_agg")
    report = second.lineage.finish(ENDED)
    assert (report.delivered, report.pending) == (0, report.proposals)
    assert "the lineage of an earlier attempt goes first, and is pending" in str(report.reason)
    assert not any('"attempt": 2' in text for text in sink.seen)
    first_entry, second_entry = entries(tmp_path)
    assert (first_entry.name.try_number, second_entry.name.try_number) == (1, 2)
    assert report.outbox_entry == str(second_entry)


@pytest.mark.slow
def test_a_slow_sink_does_not_outlast_the_budget(tmp_path: Path) -> None:
    over = threading.Event()

    class Slow(Sink):
        name = "slow"

        def describe(self) -> str:
            return "a slow sink"

        def send(self, record: DeliveryRecord, deadline: Deadline) -> None:  # noqa: ARG002 (the sink's signature)
            over.wait(HANGS)

    one = Try(tmp_path, sink=Slow())
    one.job_writes("a_csv_join_agg")
    with not_outlasting(1):
        report = one.lineage.finish(replace(ENDED, seconds=1.0))
    over.set()
    assert report.pending == report.proposals
    assert "a slow sink did not acknowledge everything before the time for lineage was over" in str(report.reason)


def test_rejections_are_one_line_with_a_count(tmp_path: Path) -> None:
    one = Try(tmp_path, sink=Rejecting())
    one.job_writes("a_csv_join_agg")
    report = one.lineage.finish(ENDED)
    assert (report.rejected, report.pending, report.is_complete) == (report.proposals, 0, True)
    (warning,) = report.warnings
    count = f"{report.rejected} proposals were rejected, and kept in the outbox's quarantine: {report.rejected} times "
    assert warning.startswith(f"{count}no such aspect (e.g. ")


# -- a try after one that failed for its lineage alone


def waiting_for(tmp_path: Path, policy: str, number: int) -> Try:
    return Try(tmp_path, number, options={"on_failure": policy})


@pytest.mark.parametrize("policy", ["retry", "fail"])
def test_the_outbox_makes_the_next_attempt_deliver_only(tmp_path: Path, policy: str) -> None:
    first = waiting_for(tmp_path, policy, 1)
    assert first.lineage.delivery.attempt_to_deliver(None) is None
    first.job_writes("a_csv_join_agg")
    first.sink_file.mkdir()
    first.lineage.finish(ENDED)
    second = waiting_for(tmp_path, policy, 2)
    assert second.lineage.delivery.attempt_to_deliver(None) is None  # nobody said that the task failed for it
    first.lineage.delivery.leave_to_retry([])
    assert second.lineage.delivery.attempt_to_deliver(None) == 1
    assert waiting_for(tmp_path, "warn", 2).lineage.delivery.attempt_to_deliver(None) is None
    assert waiting_for(tmp_path, policy, 1).lineage.delivery.attempt_to_deliver(None) is None

    first.sink_file.rmdir()
    report = second.lineage.deliver_only(ENDED, 1)
    assert (report.pending, report.reason, report.jobs) == (0, None, [])
    assert any(proposal["entityUrn"] == JOB for proposal in second.delivered)
    assert second.lineage.delivery.attempt_to_deliver(None) is None


@pytest.mark.slow
def test_a_slow_disk_does_not_keep_an_attempt_from_failing_for_its_lineage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then, the time for lineage is over: the server that took none of it used it up."""
    first = waiting_for(tmp_path, "retry", 1)
    first.job_writes("a_csv_join_agg")
    first.sink_file.mkdir()
    first.lineage.finish(ENDED)
    first.lineage.delivery._outbox.deadline = Deadline.after(0)
    sync = os.fsync

    def slowly(descriptor: int) -> None:
        time.sleep(_LEAST_SECONDS + 0.2)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slowly)
    first.lineage.delivery.leave_to_retry([])
    assert waiting_for(tmp_path, "retry", 2).lineage.delivery.attempt_to_deliver(None) == 1


@pytest.mark.parametrize(
    ("remembered", "number", "awaited"),
    [
        ({"for_try": 2, "outbox": "/x"}, 2, 1),
        ({"for_try": 2, "outbox": "/x"}, 3, None),
        ({"for_try": 5}, 5, 4),
        ({}, 2, None),
        ("for_try 2", 2, None),
        (None, 2, None),
    ],
)
def test_the_tasks_state_names_the_attempt_whose_lineage_is_delivered(
    tmp_path: Path, remembered: object, number: int, awaited: int | None
) -> None:
    assert waiting_for(tmp_path, "retry", number).lineage.delivery.attempt_to_deliver(remembered) == awaited


# -- before the job


def test_the_job_gets_its_location_and_its_parent(one: Try, tmp_path: Path) -> None:
    properties = one.inject()
    location = Path(properties["spark.openlineage.transport.location"])
    assert location.is_relative_to(tmp_path / "events" / "shop")
    assert (properties["spark.openlineage.parentRunId"], properties["spark.openlineage.rootParentRunId"]) == (
        PARENT.run_id,
        ROOT.run_id,
    )
    assert properties["spark.openlineage.namespace"] == "default"
    assert properties["spark.driver.extraClassPath"] == str(tmp_path / "openlineage-spark_2.13-1.53.0.jar")
    assert one.lineage.report.events_file == str(location)
    assert one.lineage.report.warnings == []


def test_the_job_gets_an_archive_of_java_classes_if_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(tmp_path)
    one = Try(tmp_path, options={"class_archives": worker.archives.folder})
    with caplog.at_level("INFO"):
        assert "-XX:" not in one.inject(None, **worker.env)["spark.driver.extraJavaOptions"]
    assert "starts without an archive of Java classes" in caplog.text
    archive = worker.build()
    properties = one.inject(None, **worker.env)
    assert f"-XX:SharedArchiveFile={archive.path}" in properties["spark.driver.extraJavaOptions"]
    assert properties["spark.driver.extraClassPath"] == ":".join(archive.class_path)


@pytest.mark.parametrize(
    ("settings", "property_name", "value"),
    [
        (LineageSettings(), "spark.openlineage.facets.spark.logicalPlan.disabled", None),
        (LineageSettings(capture_spark_plan=True), "spark.openlineage.facets.spark.logicalPlan.disabled", "false"),
        (LineageSettings(), "spark.openlineage.facets.columnLineage.disabled", None),
        (
            LineageSettings(capture_column_level_lineage=False),
            "spark.openlineage.facets.columnLineage.disabled",
            "true",
        ),
    ],
)
def test_the_listener_sends_what_the_settings_want(
    tmp_path: Path, settings: LineageSettings, property_name: str, value: str | None
) -> None:
    assert Try(tmp_path, options={"settings": settings}).inject().get(property_name) == value


def test_a_file_that_a_cleared_task_left_is_not_appended_to(one: Try, tmp_path: Path) -> None:
    left = one.job_writes("a_csv_join_agg")
    again = Try(tmp_path).job_writes("i_no_lineage")
    assert again != left
    assert again.parent == left.parent


@pytest.mark.parametrize(
    ("properties", "env", "message"),
    [
        (
            {"spark.openlineage.disabled": "true"},
            {},
            "spark.openlineage.disabled switches the OpenLineage listener off",
        ),
        ({}, {"OPENLINEAGE_DISABLED": "true"}, "OPENLINEAGE_DISABLED switches the OpenLineage listener off"),
    ],
)
def test_a_listener_that_the_user_switched_off_is_not_injected(
    one: Try, properties: dict[str, str], env: dict[str, str], message: str
) -> None:
    with pytest.raises(InjectionError, match=message):
        one.inject(Submission(properties), **env)


def test_a_transport_from_outside_spark_is_reported(one: Try) -> None:
    one.inject(OPENLINEAGE__TRANSPORT__TYPE="console")
    (warning,) = one.lineage.report.warnings
    assert "OPENLINEAGE__TRANSPORT__TYPE gets none of this job's events" in warning


def test_a_parent_run_of_the_user_is_reported(one: Try) -> None:
    one.inject(Submission({"spark.openlineage.parentRunId": "01990000-0000-7000-8000-00000000000f"}))
    assert one.lineage.report.warnings == ["the job names an OpenLineage parent run of its own, which was kept"]


def test_a_jar_of_the_wrong_scala_version_is_not_injected(one: Try, tmp_path: Path) -> None:
    one.spark_submit()
    openlineage_jar(tmp_path / "openlineage-spark_2.13-1.53.0.jar", "2.12")
    with pytest.raises(InjectionError, match=r"is built for Scala 2\.12"):
        one.inject()


def test_a_transport_that_cannot_be_combined_with_ours_is_refused(one: Try) -> None:
    with pytest.raises(InjectionError, match="OpenLineage refuses that"):
        one.inject(Submission({"spark.openlineage.transport.url": "http://x"}))


def test_a_relative_events_location_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InjectionError, match="is a relative path"):
        Try(tmp_path, options={"events_location": Path("events")}).inject()


def test_a_missing_properties_file_raises(one: Try) -> None:
    spark = replace(one.spark_submit(), properties_file="/missing.conf")
    with pytest.raises(FileNotFoundError):
        one.lineage.inject(Submission(), spark, PARENT, ROOT)


def test_a_spark_of_unknown_layout_is_asked_for_its_version(one: Try, tmp_path: Path) -> None:
    one.spark_submit()
    banner = "echo 'Welcome to Spark version 4.3.0'; echo 'Using Scala version 2.13.18'"
    binary = executable(tmp_path / "wrapper" / "spark-submit", f"#!/bin/sh\n{banner}\n")
    spark = SparkSubmit(str(binary), {"PATH": "/usr/bin:/bin"}, local_driver=True)
    jars = one.lineage.inject(Submission(), spark, PARENT, ROOT).submission.effective_jars()
    assert jars == (str(tmp_path / "openlineage-spark_2.13-1.53.0.jar"),)

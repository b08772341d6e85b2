"""Managed Spark: the drop-ins against stand-ins of their services, whose runs log to real servers
of S3 and GCS.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout, TaskDeferred

from airflow_provider_spark_datahub.delivery.outbox.drain import DrainLimits
from airflow_provider_spark_datahub.hooks import airflow_connections
from airflow_provider_spark_datahub.hooks.storage import open_outbox, open_store
from airflow_provider_spark_datahub.operators.task_lineage import LineagePendingError, TaskLineage
from airflow_provider_spark_datahub.task.recovery import drain
from tests.cases import filled, tables
from tests.delivery.connections import connect
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered_text
from tests.operators.tries import TaskInstance, TaskState, context_of, dag, drop_in, raised_by
from tests.patience import HANGS, join, wait_until
from tests.servers.aws_spark import Aws
from tests.servers.databricks import Databricks
from tests.servers.dataproc import dataproc
from tests.servers.gcs import Gcs
from tests.servers.managed_spark import Json, Run, Runs, State
from tests.servers.s3 import S3
from tests.system.catalogue import Catalogue, Column, direct_columns, edges, file_dataset, spark_job
from tests.task.test_events_in_s3 import TRUTH, write_log

pytestmark = [
    pytest.mark.slow,
    # Of the provider of Databricks.
    pytest.mark.filterwarnings("ignore::airflow.utils.deprecation_tools.DeprecatedImportWarning"),
    pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning"),
]
_AMAZON, _GOOGLE = (f"airflow.providers.{name}" for name in ("amazon.aws", "google.cloud"))
OPERATORS = {
    "serverless": ("EmrServerlessStartJobOperator", f"{_AMAZON}.operators.emr.wait"),
    "steps": ("EmrAddStepsOperator", ""),
    "containers": (
        "EmrContainerOperator",
        f"{_AMAZON}.hooks.emr.EmrContainerHook.poll_query_status",
    ),
    "glue": ("GlueJobOperator", f"{_AMAZON}.hooks.glue.GlueJobHook.job_completion"),
    "job": ("DataprocSubmitJobOperator", f"{_GOOGLE}.hooks.dataproc.DataprocHook.wait_for_job"),
    "batch": (
        "DataprocCreateBatchOperator",
        f"{_GOOGLE}.hooks.dataproc.DataprocHook.wait_for_batch",
    ),
    "databricks": ("DatabricksSubmitRunOperator", ""),
}
LOGGED = [name for name in OPERATORS if name != "databricks"]
JOB = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
target = Path(next(word for word in sys.argv[1:] if word.startswith("/")))
spark = SparkSession.builder.appName(target.name).getOrCreate()
assert spark.conf.get("spark.app.note") == "noted"
orders = spark.read.option("header", True).csv(str(target.with_name("orders.csv")))
orders.selectExpr("id", "amount * 2 AS twice").write.parquet(str(target))
if target.name == "waits":
    time.sleep(2)
    target.with_name("done").touch()
    time.sleep(300)
spark.stop()
"""


def request_of(
    service: str, folder: Path, properties: dict[str, str], names: tuple[str, ...]
) -> Json:
    """Return the arguments of the operator that have the job write these names, with these
    properties.
    """
    script, conf = str(folder / "job.py"), [f"{name}={value}" for name, value in properties.items()]
    options = " ".join(f"--conf {one}" for one in conf)
    submit = ["spark-submit", *options.split(), "--deploy-mode", "cluster", script]
    commands = [["bash", "-c", "true"], *([*submit, f"{folder}/{name}"] for name in names)]
    jars = [{"Jar": "command-runner.jar", "Args": command} for command in commands]
    given = {
        "script": script,
        "argument": f"{folder}/{names[0]}",
        "options": options,
        "conf": " --conf ".join(conf),
        "properties": properties,
        "steps": [
            {"Name": "step", "ActionOnFailure": "CONTINUE", "HadoopJarStep": jar} for jar in jars
        ],
    }
    request: Json = filled(dict(tables("service_requests")["managed"][1:])[service], given)
    return request


class VanishedError(BaseException):
    """The worker of an attempt is lost."""


@dataclass
class Managed:
    """The services, and a task of one of them, which :meth:`task` sets."""

    folder: Path
    runs: Runs
    aws: Aws
    state: TaskState = field(default_factory=TaskState)
    make: Callable[[], Any] = object

    def task(
        self, service: str, *names: str, properties: Json | None = None, **arguments: Any
    ) -> Managed:
        self.store = f"{'gs://lake' if service in ('job', 'batch') else 's3://aws_default'}@managed"
        given = {
            "datahub_conn_id": "datahub_file",
            "events_location": f"{self.store}/{self.folder.name}",
        }
        operator = drop_in(OPERATORS[service][0])
        note = {"spark.app.note": "noted", **(properties or {})}

        def make() -> Any:
            request = request_of(service, self.folder, note, names or ("out",))
            return operator(task_id="build", dag=dag(), **{**request, **given, **arguments})

        self.make = make
        return self

    def run(self, number: int = 1, *, fails: Any = None, **instance: Any) -> Any:
        """Run an attempt as Airflow does, where a deferred one goes on in an operator of its own;
        return its report.
        """
        ti = TaskInstance(
            try_number=number, max_tries=2, id=f"01990000-0000-7000-8000-{number:012}", **instance
        )
        step, kwargs = "execute", dict[str, Any]()
        with pytest.raises(fails) if fails else nullcontext() as failure:
            while step:
                operator = self.operator = self.make()
                context = context_of(operator, ti, self.state)
                try:
                    resume = operator.resume_execution
                    resume(step, kwargs, context) if kwargs else operator.execute(context)
                    step = ""
                except TaskDeferred as deferral:
                    step, kwargs = (
                        deferral.method_name,
                        {**(deferral.kwargs or {}), "event": fired(deferral.trigger)},
                    )
        self.failure = failure and type(failure.value)
        return ti.xcoms.get("lineage_report")

    def vanish(self) -> None:
        """Run an attempt whose worker is lost while it waits for its job."""
        with pytest.MonkeyPatch.context() as patched:
            for wait in filter(None, (wait for _, wait in OPERATORS.values())):
                patched.setattr(wait, Mock(side_effect=VanishedError))
            patched.setattr(
                f"{_AMAZON}.operators.glue.GlueJobCompleteTrigger", Mock(side_effect=VanishedError)
            )
            patched.setattr(TaskLineage, "_conclude", lambda *_: None)
            self.run(fails=VanishedError)
        for entry in outbox_at(self.folder / "outbox").entries():
            entry.update(redo={**(entry.manifest.redo or {}), "process": 2**22 + 1})

    def drain(self) -> None:
        outbox = open_outbox(str(self.folder / "outbox"))
        drain(outbox, airflow_connections(lambda _: "FAILURE"), DrainLimits()).run()

    def left(self) -> list[str]:
        """Return the files of logs that are left; a failed attempt keeps its folder."""
        names = (
            name.rpartition("/")[2] for name in open_store(self.store).stored(self.folder.name)
        )
        return sorted(name for name in names if name != ".of-an-attempt")

    def assert_lineage(self, report: Json, *names: str) -> None:
        orders, written = (
            file_dataset(self.folder / "orders.csv"),
            {file_dataset(self.folder / name) for name in names},
        )
        assert (report["pending"], report["reason"], report["warnings"]) == (0, None, [])
        assert (set(report["inputs"]), set(report["outputs"])) == ({orders}, written)
        catalogue = Catalogue.of_folder(self.folder / "sink")
        catalogue.assert_strict()
        for name in names:
            job = catalogue.one(spark_job("shop", "build", name), "dataJobInputOutput")
            target = file_dataset(self.folder / name)
            assert (edges(job, "input"), edges(job, "output")) == ({orders}, {target})
            assert (Column(orders, "amount"), Column(target, "twice")) in direct_columns(job)
        assert len(catalogue.children(catalogue.task_run("shop", "build"))) == len(names)


def fired(trigger: Any) -> Any:
    """Return the event of a trigger after its way to the triggerer."""
    path, kwargs = trigger.serialize()
    module, _, name = path.rpartition(".")
    again = getattr(import_module(module), name)(**kwargs)

    async def events() -> list[Any]:
        return [event.payload async for event in again.run()]

    return asyncio.run(events())[0]


class Recorded(subprocess.Popen[bytes]):
    """A driver without Spark: it starts if the folder of its log is there, and a second after its
    end the log is, too.

    A killed one leaves none.
    """

    def __init__(self, target: str, log: Json, application: str) -> None:
        self._log, self._application = log, application
        can_start = not log or open_store(log["store"]).stored(log["folder"])
        command = (
            {"waits": "exec sleep 300", "fails": "exit 3"}.get(target, "sleep 0.5")
            if can_start
            else "exit 1"
        )
        super().__init__(["sh", "-c", command], start_new_session=True)

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        if self._log and code not in (1, -signal.SIGKILL):
            time.sleep(1)
            write_log(open_store(self._log["store"]), self._log["folder"], self._application)
        return code


def recorded_driver(run: Run) -> Recorded:
    words = list(run.command)
    options = (words[at + 1].split("=", 1) for at, word in enumerate(words) if word == "--conf")
    properties = {**run.defaults, **dict(options)}
    scheme, _, place = properties.get("spark.eventLog.dir", "").partition("://")
    bucket, _, folder = place.partition("/")
    log = {
        "store": f"{'gs://lake' if scheme == 'gs' else 's3://aws_default'}@{bucket}",
        "folder": folder,
    }
    target = next((word for word in reversed(words) if word.startswith("/")), "").rpartition("/")[2]
    return Recorded(target, log if place else {}, f"local-{run.id[-4:].replace('-', '')}")


@pytest.fixture
def managed(tmp_path: Path, s3: S3, gcs: Gcs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    """The services, with a real Spark."""
    if not (s3.folder / "managed").exists():
        s3.make_bucket("managed")
        gcs.make_bucket("managed")
    hooks = import_module(f"{_GOOGLE}.hooks.dataproc")
    monkeypatch.setattr(
        hooks, "time", SimpleNamespace(sleep=lambda _: time.sleep(0.2), monotonic=time.monotonic)
    )
    connect(monkeypatch, "lake", **gcs.connection())
    runs = Runs(tmp_path / "runs", s3, gcs)
    with runs, Aws(runs, s3) as aws, Databricks(runs) as databricks, dataproc(runs, monkeypatch):
        aws.jobs["job"] = {
            "Name": "job",
            "Command": {"Name": "glueetl", "ScriptLocation": str(tmp_path / "job.py")},
        }
        connect(monkeypatch, "aws_default", **aws.connection())
        connect(monkeypatch, "databricks_default", **databricks.connection())
        (tmp_path / "job.py").write_text(JOB)
        (tmp_path / "orders.csv").write_text("id,amount\n1,10\n2,3\n")
        yield Managed(tmp_path, runs, aws)


@pytest.fixture
def recorded(managed: Managed) -> Managed:
    """The services without Spark: their runs log what a real one did."""
    vars(managed.runs)["_begin"] = recorded_driver
    return managed


@pytest.mark.spark
@pytest.mark.parametrize(
    ("service", "deferrable"),
    [*zip(LOGGED, (True, False, False, True, True, False), strict=True)],
    ids=LOGGED,
)
def test_a_real_spark_has_lineage(service: str, deferrable: bool, managed: Managed) -> None:
    managed.aws.application_state = "STOPPED"  # a deferrable task begins again when it is started
    names = ("a", "b") if service == "steps" else ("out",)
    report = managed.task(service, *names, deferrable=deferrable).run()
    assert {run.state for run in managed.runs.all.values()} == {State.SUCCEEDED}
    managed.assert_lineage(report, *names)
    assert managed.left() == []


@pytest.mark.spark
def test_a_job_that_may_not_write_its_log_runs_without_it_the_next_time(managed: Managed) -> None:
    task = managed.task("serverless", properties={"spark.hadoop.fs.s3a.access.key": "another"})
    report = task.run(fails=Exception)
    assert "Spark left no event log in s3" in report["reason"]
    assert report["warnings"][-1].endswith("a next attempt writes no event log")
    second = task.run(2)
    assert [run.state for run in managed.runs.all.values()] == [State.FAILED, State.SUCCEEDED]
    assert "an earlier attempt failed: Spark left no event log in s3" in second["reason"]


@pytest.mark.spark
def test_the_log_of_glues_interface_is_read_and_stays(managed: Managed) -> None:
    store, history = open_store("s3://aws_default@managed"), f"{managed.folder.name}-ui"
    store.write(f"{history}/any", [b""])
    place = f"s3://managed/{history}/"
    managed.aws.jobs["job"]["DefaultArguments"] = {
        "--enable-spark-ui": "true",
        "--spark-event-logs-path": place,
    }
    managed.assert_lineage(managed.task("glue").run(), "out")
    assert any("/events_1_" in name for name in store.stored(history))
    assert managed.left() == []


def killed(
    managed: Managed, started: Callable[[Run], object], failure: type[BaseException] | None = None
) -> Any:
    """Run an attempt that Airflow kills when its job has started, or that ends by a failure then."""

    def kill() -> None:
        end = time.monotonic() + 4 * HANGS  # a real Spark starts
        while time.monotonic() < end and not (
            managed.runs.all and started(next(iter(managed.runs.all.values())))
        ):
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=kill)
    with raised_by(signal.SIGUSR1, lambda: failure() if failure else managed.operator.on_kill()):
        thread.start()
        report = managed.run(fails=BaseException)
        join(thread)
    return report


@pytest.mark.spark
@pytest.mark.parametrize("service", ["serverless", "job"])
def test_what_a_real_spark_did_before_it_was_killed_is_read(service: str, managed: Managed) -> None:
    """Dataproc's is killed at once: S3 would not show its log, and GCS does."""
    task, done = managed.task(service, "waits"), managed.folder / "done"
    report = killed(task, lambda _: done.exists())
    assert next(iter(managed.runs.all.values())).state is State.STOPPED
    assert report["outputs"] == [file_dataset(managed.folder / "waits")]
    assert managed.left() == []


def assert_recorded(report: Json) -> None:
    assert (report["pending"], report["reason"], report["warnings"]) == (0, None, [])
    assert (set(report["inputs"]), set(report["outputs"])) == (
        set(TRUTH["inputs"]),
        set(TRUTH["outputs"]),
    )


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("service", OPERATORS)
def test_a_task_fails_as_without_lineage(service: str, deferrable: bool, recorded: Managed) -> None:
    names = ("fails", "b") if service == "steps" else ("fails",)
    recorded.task(service, *names, deferrable=deferrable, enabled=False).run(fails=Exception)
    plain, recorded.state = recorded.failure, TaskState()
    report = recorded.task(service, *names, deferrable=deferrable).run(fails=plain)
    if service == "databricks":
        assert "Spark's own event log cannot be had from there" in report["reason"]
        return
    assert_recorded(report)
    wait_until(lambda: all(run.state >= State.SUCCEEDED for run in recorded.runs.all.values()))
    # Of later steps, too, or of the service's own retry: Spark does not start without the folder.
    assert open_store(recorded.store).stored(recorded.folder.name)
    assert (State.SUCCEEDED in {run.state for run in recorded.runs.all.values()}) == ("b" in names)


@pytest.mark.parametrize("failure", [None, AirflowTaskTimeout])
@pytest.mark.parametrize("service", ["serverless", "containers", "batch"])
def test_the_log_of_a_cancelled_job_is_read_when_it_is_closed(
    service: str, failure: Any, recorded: Managed
) -> None:
    task = recorded.task(service, "waits")
    assert_recorded(killed(task, lambda run: run.state is State.RUNNING, failure))
    assert [run.state for run in recorded.runs.all.values()] == [State.STOPPED]


@pytest.mark.parametrize(
    ("service", "deferrable"),
    [*((name, False) for name in LOGGED[2:]), ("serverless", False), ("glue", True)],
)
def test_a_lost_worker_costs_no_lineage(service: str, deferrable: bool, recorded: Managed) -> None:
    given: Json = {"batch_id": "one"} if service == "batch" else {}
    task = recorded.task(service, deferrable=deferrable, **given)
    task.vanish()
    if service == "job":
        wait_until(lambda: all(run.state is State.SUCCEEDED for run in recorded.runs.all.values()))
        task.drain()
        assert TRUTH["outputs"][0] in delivered_text(recorded.folder / "sink")
    assert_recorded(task.run(2))
    assert len(recorded.runs.all) == (1 if (reconnects := service in ("glue", "batch")) else 2)
    task.drain()
    catalogue = Catalogue.of_folder(recorded.folder / "sink")
    assert len(catalogue.children(catalogue.task_run("shop", "build"))) == len(recorded.runs.all)
    assert (recorded.left(), len(open_store(task.store).stored(recorded.folder.name))) == (
        [],
        int(not reconnects),
    )


def test_while_datahub_is_down_the_outbox_and_the_log_stay(recorded: Managed) -> None:
    (recorded.folder / "sink").write_text("in the way")
    task = recorded.task("job", lineage_on_failure="retry")
    task.run(fails=LineagePendingError)
    assert len(task.left()) == 3
    (recorded.folder / "sink").unlink()
    assert task.run(2)["pending"] == 0
    assert (len(recorded.runs.all), task.left()) == (1, [])

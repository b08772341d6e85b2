"""Tries of tasks as Airflow's context shows them, and a ``spark-submit`` that is a shell script."""

from __future__ import annotations

import gzip
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_spark_datahub.conversion.run_tree import (
    AirflowSite,
    DagRun as RunTreeDagRun,
    TaskAttempt,
)
from airflow_provider_spark_datahub.conversion.settings import LineageSettings
from airflow_provider_spark_datahub.delivery.outbox import Outbox
from airflow_provider_spark_datahub.delivery.sink import Sink
from airflow_provider_spark_datahub.hooks.datahub import open_sink
from airflow_provider_spark_datahub.hooks.storage import open_outbox
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.plugins.policy import DROP_INS
from airflow_provider_spark_datahub.task.options import Connections
from airflow_provider_spark_datahub.task.submitted import SubmittedJob, UnfinishedAttempt
from tests.capture.installations import executable, openlineage_jar, spark_at
from tests.delivery.outboxes import outbox_at
from tests.patience import HANGS

CORPUS = Path(__file__).parents[1] / "data" / "corpus" / "events"
RUN_ID = "scheduled__2026-01-01T00:00:00+00:00"
START = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
START_MS = 1_767_225_900_000

_JOBS = CORPUS.parents[1] / "more_jobs"
EVENTS, LOG = (
    gzip.decompress((_JOBS / kind / "udf_union-3.5.9.ndjson.gz").read_bytes())
    for kind in ("events", "logs")
)
"""What one job's listener and Spark's event log wrote."""
FAKE_SPARK = CORPUS.parents[1] / "fake_spark"
"""Scripts of a Spark that is made of shell scripts."""
SPARK_SUBMIT = (FAKE_SPARK / "spark-submit").read_text()


@dataclass
class DagRun:
    """The attributes of a context's ``dag_run`` that are read."""

    dag_id: str = "shop"
    run_id: str = RUN_ID
    run_type: str = "scheduled"
    logical_date: datetime | None = datetime(2026, 1, 1, tzinfo=UTC)
    run_after: datetime = datetime(2026, 1, 2, tzinfo=UTC)
    start_date: datetime | None = START
    end_date: datetime | None = None
    clear_number: int = 0
    conf: dict[str, Any] = field(default_factory=dict)
    dag: Any = None

    def get_dag(self) -> Any:
        return self.dag


@dataclass
class TaskInstance:
    """The attributes of a context's ``ti`` that are read. :attr:`xcoms` holds the pushed values."""

    task_id: str = "build"
    try_number: int = 1
    max_tries: int = 0
    map_index: int | None = -1
    dag_run: DagRun = field(default_factory=DagRun)
    start_date: datetime | None = START
    id: str = "01990000-0000-7000-8000-000000000001"
    log_url: str = "http://airflow/log"
    states: Mapping[str, Mapping[str, str]] | Exception = field(default_factory=dict)
    """The states of other tasks in the DAG run, by task, as Airflow names their task instances."""
    xcoms: dict[str, Any] = field(default_factory=dict)
    set_to: str | None = None
    """The state that somebody gave the running task."""
    others: str = "failed"
    """The state of all further task instances."""
    stats_tags: dict[str, str] = field(default_factory=dict)

    @property
    def dag_id(self) -> str:
        return self.dag_run.dag_id

    @property
    def run_id(self) -> str:
        return self.dag_run.run_id

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value

    def xcom_pull(self, **_: Any) -> None:
        """Return nothing: Airflow removes what an earlier attempt pushed."""

    def get_template_context(self) -> dict[str, Any]:
        return {"dag_run": self.dag_run}

    def get_task_states(
        self, dag_id: str, map_index: int | None, task_ids: Sequence[str], run_ids: Sequence[str]
    ) -> Mapping[str, Mapping[str, str | None]]:
        if isinstance(self.states, Exception):
            raise self.states
        (run_id,), (task_id,) = run_ids, task_ids
        assert dag_id == self.dag_id
        name = task_id if map_index is None else f"{task_id}_{map_index}"
        is_own = (run_id, task_id) == (self.run_id, self.task_id)
        return {run_id: self.states.get(task_id, {name: self.set_to if is_own else self.others})}


def drop_in(operator: str) -> Any:
    """Return the drop-in for an operator of a provider, by the operator's name."""
    module = import_module(f"airflow_provider_spark_datahub.operators.{DROP_INS[operator]}")
    return getattr(module, f"{operator.removesuffix('Operator')}DatahubOperator")


class TaskState:
    """Airflow's store of a task's state, which survives its tries."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        # Airflow refuses values that are not exactly JSON, such as a tuple.
        assert json.loads(json.dumps(value)) == value
        self._values[key] = value


def context_of(task: Any, ti: TaskInstance | None = None, state: TaskState | None = None) -> Any:
    """Return the context that Airflow passes to ``execute``; before 3.3 it has no task state."""
    ti = ti or TaskInstance(task_id=task.task_id)
    context = {
        "ti": ti,
        "task_instance": ti,
        "task": task,
        "dag_run": ti.dag_run,
        "dag": getattr(task, "dag", None),
    }
    return context if state is None else {**context, "task_state_store": state}


def dag() -> DAG:
    """Return an empty DAG."""
    return DAG("shop", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC))


def configure_airflow(folder: Path, environment: Callable[[str, str], None]) -> None:
    """Give Airflow connections, and the package's locations below a folder."""
    connections = {
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[1]"},
        "DATAHUB_FILE": {"conn_type": "datahub-file", "host": str(folder / "sink")},
    }
    for name, connection in connections.items():
        environment(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    for kind in ("events", "outbox"):
        environment(f"AIRFLOW__SPARK_DATAHUB__{kind.upper()}_LOCATION", str(folder / kind))


class FakeSpark:
    """A Spark whose ``spark-submit`` on the PATH is :data:`SPARK_SUBMIT`.

    :param folder: where it is laid out.
    """

    def __init__(self, folder: Path, environment: Callable[[str, str], None]) -> None:
        self._folder = folder / "fake-spark"
        self._environment = environment
        home = spark_at(folder / "spark")
        for command in ("spark-submit", "spark-sql", "spark-pipelines"):
            executable(home / "bin" / command, SPARK_SUBMIT)
        self._folder.mkdir()
        self.jar = str(openlineage_jar(folder / "openlineage-spark_2.13-1.53.0.jar"))
        self._commands = home / "bin"
        self.use()

    def use(self) -> None:
        """Make this the Spark on the PATH, which it is when it is made."""
        self._environment("FAKE_SPARK", str(self._folder))
        self._environment("PATH", f"{self._commands}{os.pathsep}{os.environ['PATH']}")

    def writes(self, events: str | bytes, argument: str | None = None) -> None:
        """Set the events of the next runs: a case of the corpus, or the content of the file.

        :param argument: only of runs with this last argument.
        """
        content = (CORPUS / f"{events}.ndjson").read_bytes() if isinstance(events, str) else events
        (self._folder / ("events" if argument is None else f"{argument}.events")).write_bytes(
            content
        )

    def writes_nothing(self) -> None:
        """Let the next runs write no events."""
        (self._folder / "events").unlink()

    def logs(self, event_log: bytes) -> None:
        """Set the Spark event log of the next runs, if they write one."""
        (self._folder / "event-log").write_bytes(event_log)

    def fails_once(self, argument: str) -> None:
        """Let the next run with this last argument fail."""
        (self._folder / f"{argument}.fails").touch()

    def plants(self, command: str) -> None:
        """Let the next runs make something else in the place of the event file, by a command that
        gets its path.
        """
        self._environment("FAKE_SPARK_PLANTS", command)

    def prints(self, output: str) -> None:
        """Set what the next runs write to their standard output."""
        (self._folder / "output").write_text(output)

    def exits(self, code: int) -> None:
        """Let the next runs end with this code."""
        self._environment("FAKE_SPARK_EXIT", str(code))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep runs that begin in this block from ending before it."""
        flag = self._folder / "runs-on"
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()

    def signals(self) -> None:
        """Let the next runs send their parent SIGUSR1, and continue."""
        self._environment("FAKE_SPARK_SIGNAL", "USR1")

    @property
    def runs(self) -> list[str]:
        """The arguments of each run."""
        path = self._folder / "runs"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def is_running(self) -> bool:
        """Whether the last run is still there."""
        try:
            os.kill(int((self._folder / "pid").read_text()), 0)
        except ProcessLookupError:
            return False
        return True


def execute(operator: Any, context: Any) -> object:
    """Call ``execute``; whatever is left of spark-submit ends."""
    call: Callable[[Any], object] = operator.execute
    try:
        return call(context)
    finally:
        process = getattr(getattr(operator, "_hook", None), "_submit_sp", None)
        if process is not None:
            process.kill()
            process.communicate(timeout=HANGS)


def report_of(
    operator: Any,
    ti: TaskInstance | None = None,
    *,
    fails: type[BaseException] | None = None,
    match: str | None = None,
    state: TaskState | None = None,
    **context: Any,
) -> dict[str, Any]:
    """Run an attempt, and return its report.

    :param fails: what the attempt must raise, with a text that contains ``match``.
    :param context: more of its context.
    """
    whole = {**context_of(operator, ti, state), **context}
    with pytest.raises(fails, match=match) if fails else nullcontext():
        execute(operator, whole)
    report: dict[str, Any] = whole["ti"].xcoms["lineage_report"]
    return report


@contextmanager
def raised_by(
    signal_number: signal.Signals, failure: Callable[[], BaseException | None]
) -> Iterator[None]:
    """Have the signal raise what ``failure`` makes, wherever the code is, as Airflow's own timeouts
    and kills do.
    """

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the handler's signature)
        error = failure()
        if error is not None:
            raise error

    before = signal.signal(signal_number, handle)
    try:
        yield
    finally:
        signal.signal(signal_number, before)


def operator_with_lineage(spark: FakeSpark, **arguments: Any) -> SparkSubmitDatahubOperator:
    """Return a task of a new DAG whose lineage goes to the connection ``datahub_file``."""
    given = {
        "task_id": "build",
        "application": "job.py",
        "datahub_conn_id": "datahub_file",
        "name": "build",
    }
    return SparkSubmitDatahubOperator(
        **{"dag": dag(), "openlineage_jar": spark.jar, **given, **arguments}
    )


def run_try(
    spark: FakeSpark,
    number: int = 1,
    state: TaskState | None = None,
    *,
    max_tries: int = 1,
    fails: type[BaseException] | None = None,
    match: str | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Run one try, by an operator of its own, as each try has, and return its report."""
    ti = TaskInstance(try_number=number, max_tries=max_tries)
    return report_of(
        operator_with_lineage(spark, **arguments), ti, fails=fails, match=match, state=state
    )


def connections_to(sink: Sink | None, problem: str | None = None) -> Connections:
    """Return this sink for every connection except OpenLineage's, which are Airflow's, and the real
    outbox.
    """

    def opened(connection_id: str) -> tuple[Sink | None, str | None]:
        return (
            open_sink(connection_id) if connection_id.startswith("openlineage") else (sink, problem)
        )

    return Connections(opened, open_outbox)


def unfinished_attempt(events_file: Path, run_id: str = "run") -> UnfinishedAttempt:
    """Return the record of an attempt of this process whose job writes this file."""
    attempt = TaskAttempt(RunTreeDagRun(AirflowSite(), "shop", run_id), "build", 1)
    return UnfinishedAttempt.begun(attempt, SubmittedJob(LineageSettings(), events_file))


def killed_last_attempt(
    folder: Path,
    *,
    connection: str = "datahub_file",
    run_id: str = "another",
    machine: str = "gone",
    task_id: str = "killed",
    process: int = 0,
) -> tuple[Outbox, Path]:
    """Leave what a task that was killed in its last attempt leaves: its entry, and the events of
    its job.

    :param machine: on which it ran; empty for this one.
    :param process: of the task; 0 for this one.
    """
    attempt = TaskAttempt(
        RunTreeDagRun(AirflowSite(), "shop", run_id), task_id, 1, start_ms=START_MS
    )
    events_file = folder / "events/shop/run/killed/try1-0.ndjson"
    events_file.parent.mkdir(parents=True, exist_ok=True)
    events_file.write_bytes((CORPUS / "a_csv_join_agg.ndjson").read_bytes())
    record = UnfinishedAttempt.begun(attempt, SubmittedJob(LineageSettings(), events_file))
    record = replace(record, machine=machine or record.machine, process=process or record.process)
    outbox = outbox_at(folder / "outbox")
    outbox.begin(
        attempt.key, connection_id=connection, events=str(events_file), redo=record.to_obj()
    )
    return outbox, events_file

"""The listener of DAG runs and of tasks, and its threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_provider_spark_datahub.conversion.run_tree import AirflowSite, DagRun as RunTreeDagRun
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.plugins import dag_run_listener, policy
from tests.airflow_versions import DagSerialization
from tests.cases import cases
from tests.delivery.connections import connect_to_files
from tests.delivery.outboxes import outbox_at
from tests.delivery.samples import delivered, delivered_text, run_events, upserts
from tests.operators.tries import RUN_ID, START_MS, DagRun, killed_last_attempt

# The DAG and the whole run are reported, since no task of the run may have been delivered.
END_OF_A_RUN = [
    "dataFlowInfo",
    "dataProcessInstanceProperties",
    "dataProcessInstanceRelationships",
    "dataProcessInstanceRunEvent",
    "dataProcessInstanceRunEvent",
    "ownership",
    "status",
    "status",
]
ROOT = Path(__file__).parents[2]
END = datetime(2026, 1, 1, 0, 6, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _own_threads() -> Iterator[None]:
    for threads in (dag_run_listener._keeper, dag_run_listener._deliveries):
        threads.cache_clear()
    yield
    let_threads_finish()
    for threads in (dag_run_listener._keeper, dag_run_listener._deliveries):
        threads.cache_clear()


def let_threads_finish() -> None:
    assert dag_run_listener._keeper().wait(300)
    assert dag_run_listener._deliveries().wait(300)


@pytest.fixture(autouse=True)
def sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Connections ``one`` and ``two`` to folders of the same name, and one to nowhere."""
    for name in ("one", "two", "datahub_rest_default"):
        connect_to_files(monkeypatch, name, tmp_path / "sinks" / name)
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__OUTBOX_LOCATION", str(tmp_path / "outbox"))
    return tmp_path


def lineage_task(task_id: str, **arguments: Any) -> SparkSubmitDatahubOperator:
    return SparkSubmitDatahubOperator(task_id=task_id, application="job.py", **arguments)


def new_dag(**arguments: Any) -> DAG:
    return DAG("shop", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), **arguments)


def dag_of_one(task_id: str = "a") -> DAG:
    """Return a DAG of one task, whose lineage goes to the connection ``one``."""
    with new_dag() as dag:
        lineage_task(task_id, datahub_conn_id="one")
    return dag


def as_the_scheduler_has_it(dag: DAG) -> Any:
    return DagSerialization.from_dict(DagSerialization.to_dict(dag))


@pytest.fixture(params=["as written", "serialized"])
def seen(request: pytest.FixtureRequest) -> Any:
    """A DAG as its file has it, or as the scheduler has it."""
    return as_the_scheduler_has_it if request.param == "serialized" else lambda dag: dag


def end(dag: Any, *, succeeded: bool = True, **more: Any) -> None:
    """End the DAG run, and wait until the listener's threads have done their work."""
    run = DagRun(dag=dag, end_date=END, **more)
    if succeeded:
        dag_run_listener.on_dag_run_success(run, "")
    else:
        dag_run_listener.on_dag_run_failed(run, "")
    let_threads_finish()


def notified(folder: Path) -> list[str]:
    """Return the connections that were notified."""
    return sorted(path.name for path in folder.glob("sinks/*"))


@pytest.mark.parametrize(("succeeded", "result"), [(True, "SUCCESS"), (False, "FAILURE")])
def test_the_end_of_a_dag_run_is_reported_with_its_result(
    sinks: Path, seen: Any, succeeded: bool, result: str
) -> None:
    with new_dag() as dag:
        EmptyOperator(task_id="start") >> lineage_task("build", datahub_conn_id="one")
    end(seen(dag), succeeded=succeeded)
    proposals = delivered(sinks / "sinks/one")
    flow = "urn:li:dataFlow:(airflow,shop,prod)"
    run = RunTreeDagRun(AirflowSite(), "shop", RUN_ID).urn
    assert {proposal["entityUrn"] for proposal in proposals} == {flow, run}
    events = run_events(sinks / "sinks/one")
    assert [event["status"] for event in events] == ["STARTED", "COMPLETE"]
    assert events[1]["result"] == {"type": result, "nativeResultType": "airflow"}
    assert (events[1]["timestampMillis"], events[1]["durationMillis"]) == (
        START_MS + 60_000,
        60_000,
    )
    assert not (sinks / "outbox/pending").exists()


@cases("airflow")
def test_the_end_of_a_dag_run_goes_to_each_connection_of_its_tasks_once(
    sinks: Path,
    seen: Any,
    defaults: dict[str, Any],
    tasks: list[dict[str, Any]],
    connections: list[str],
) -> None:
    with new_dag(default_args=defaults) as dag:
        for number, arguments in enumerate(tasks):
            expanded = arguments.get("expand")
            given = {name: value for name, value in arguments.items() if name != "expand"}
            make: Any = (
                SparkSubmitDatahubOperator.partial if expanded else SparkSubmitDatahubOperator
            )
            task = make(task_id=f"task{number}", application="job.py", **given)
            if expanded:
                task.expand(**expanded)
    end(seen(dag))
    assert notified(sinks) == connections
    for connection in connections:
        proposals = delivered(sinks / "sinks" / connection)
        assert sorted(proposal["aspectName"] for proposal in proposals) == END_OF_A_RUN


def test_a_dag_whose_lineage_is_switched_off_by_configuration_is_not_reported(
    sinks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__ENABLED", "False")
    end(dag_of_one())
    assert notified(sinks) == []


def test_a_scheduler_that_loads_no_links_reports_the_end_of_a_dag_run_with_lineage_by_policy(
    sinks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread must not read the database: that would end its own transaction."""
    monkeypatch.setenv("AIRFLOW__SPARK_DATAHUB__AUTO", "SparkSubmitOperator")
    monkeypatch.setattr(policy, "_wanted", lambda: frozenset({"SparkSubmitOperator"}))
    with new_dag(default_args={"datahub_conn_id": "two"}) as dag:
        policy.task_policy(SparkSubmitOperator(task_id="plain", application="job.py"))
        lineage_task("build", datahub_conn_id="one")
    stored, without_links = as_the_scheduler_has_it(dag), as_the_scheduler_has_it(dag)
    without_links.get_task("plain").operator_extra_links = []
    threads = []

    def read(dag_id: str) -> Any:
        threads.append(threading.current_thread())
        return stored if dag_id == "shop" else None

    monkeypatch.setattr("airflow.models.serialized_dag.SerializedDagModel.get_dag", read)
    end(without_links)
    assert notified(sinks) == ["one", "two"]
    assert threading.current_thread() not in threads


def test_a_dag_without_lineage_tasks_is_not_reported(sinks: Path, seen: Any) -> None:
    with new_dag() as dag:
        SparkSubmitOperator(task_id="plain", application="job.py")
        EmptyOperator(task_id="empty")
    end(seen(dag))
    assert notified(sinks) == []
    assert not (sinks / "outbox").exists()


def test_a_missing_connection_does_not_affect_others(
    sinks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with new_dag() as dag:
        lineage_task("a", datahub_conn_id="missing")
        lineage_task("b", datahub_conn_id="one")
    end(dag)
    assert notified(sinks) == ["one"]
    assert "of shop: connection 'missing' cannot be used" in caplog.text
    (entry,) = outbox_at(sinks / "outbox").entries()
    assert entry.manifest.connection_id == "missing"


@pytest.mark.parametrize("dag_run", [None, object(), DagRun(dag=object())])
def test_the_scheduler_never_sees_a_failure(dag_run: Any, caplog: pytest.LogCaptureFixture) -> None:
    dag_run_listener.on_dag_run_success(dag_run, "")
    dag_run_listener.on_dag_run_failed(dag_run, "")
    assert caplog.text.count("Could not report the end of DAG run") == 2


def test_all_ends_are_in_the_outbox_while_a_delivery_hangs(
    sinks: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def deliver(*_: object) -> None:
        began.set()
        goes_on.wait(timeout=300)

    monkeypatch.setattr(dag_run_listener, "_deliver", deliver)
    monkeypatch.setattr(dag_run_listener, "_BACKLOG", 1)
    for number in range(4):
        dag_run_listener.on_dag_run_success(
            DagRun(dag=dag_of_one(), end_date=END, run_id=f"manual__{number}"), ""
        )
        assert began.wait(300), "the first is delivered before the second is queued"
    assert dag_run_listener._keeper().wait(300)
    kept = {entry.manifest.key.run_id for entry in outbox_at(sinks / "outbox").entries()}
    assert kept == {f"manual__{number}" for number in range(4)}
    assert (
        "Did not deliver the end of DAG run manual__3 of shop: 1 other is already queued. It stays"
        in caplog.text
    )
    goes_on.set()


@pytest.mark.slow
def test_the_last_end_is_delivered_before_the_process_ends(sinks: Path) -> None:
    """``airflow dags test`` ends with its DAG run."""
    script = """
from datetime import datetime, UTC
from airflow.sdk import DAG
from airflow_provider_spark_datahub.operators.spark_submit import SparkSubmitDatahubOperator
from airflow_provider_spark_datahub.plugins import dag_run_listener
from tests.operators.tries import DagRun
with DAG("shop", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
    SparkSubmitDatahubOperator(task_id="a", application="job.py", datahub_conn_id="one")
dag_run_listener.on_dag_run_success(DagRun(dag=dag), "")
"""
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert notified(sinks) == ["one"]
    assert not (sinks / "outbox/pending").exists(), (
        "a process that ends starts no threads, e.g. to sync files"
    )


@pytest.fixture
def _kills_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dag_run_listener, "_KILL_SECONDS", 0.0)
    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "0")


def let_timers_finish() -> None:
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    let_threads_finish()


@pytest.mark.usefixtures("_kills_take_no_time")
def test_a_state_that_is_set_leaves_a_killed_attempt_to_the_end_of_the_run(
    sinks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = dag_of_one("killed")
    stored = as_the_scheduler_has_it(dag)
    monkeypatch.setattr(
        "airflow.models.serialized_dag.SerializedDagModel.get_dag", lambda _: stored
    )
    outbox, events = killed_last_attempt(
        sinks, connection="one", run_id=RUN_ID, machine="", process=2**22 + 1
    )
    dag_run_listener.on_task_instance_success(
        None, StoredTaskInstance(task_id="killed", try_number=1)
    )
    let_threads_finish()
    assert "unfinished" in [entry.manifest.state for entry in outbox.entries()]
    end(dag)
    let_timers_finish()
    assert list(outbox.entries()) == []
    assert not events.exists()


@pytest.mark.usefixtures("_kills_take_no_time")
@pytest.mark.parametrize("is_large", [False, True])
def test_the_end_of_the_run_delivers_what_a_killed_last_attempt_left(
    sinks: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    outbox, events_file = killed_last_attempt(sinks, connection="one", run_id=RUN_ID)
    if is_large:
        monkeypatch.setattr(dag_run_listener, "_CONVERTED_BYTES", events_file.stat().st_size - 1)
    earlier, others = (
        AttemptKey("shop", "earlier", "b", -1, 1),
        AttemptKey("shop!", "other", "b", -1, 1),
    )
    for key in (earlier, others):
        outbox.put(key, upserts(2), spark_succeeded=True, connection_id="one")
    end(dag_of_one("killed"), succeeded=False)
    let_timers_finish()
    left = {entry.manifest.key.run_id for entry in outbox.entries()}
    assert left == ({RUN_ID, "other"} if is_large else {"other"}), (
        "an entry of another DAG is not touched"
    )
    assert events_file.exists() is is_large
    text = delivered_text(sinks / "sinks/one")
    assert (f"shop_killed_{RUN_ID}" in text) is not is_large


@pytest.mark.usefixtures("_kills_take_no_time")
@pytest.mark.parametrize(("result", "left"), [(None, ["unfinished"]), ("FAILURE", [])])
def test_an_attempt_of_another_run_is_converted_if_airflow_is_done_with_it(
    sinks: Path, monkeypatch: pytest.MonkeyPatch, result: str | None, left: list[str]
) -> None:
    outbox, _ = killed_last_attempt(sinks, connection="one", machine="another", process=0)
    monkeypatch.setattr("airflow_provider_spark_datahub.hooks.stored_result", lambda _: result)
    end(dag_of_one())
    let_timers_finish()
    assert [entry.manifest.state for entry in outbox.entries()] == left


@pytest.mark.parametrize(
    ("machine", "process", "is_now"), [("", 0, False), ("another", 0, False), ("", 2**22 + 1, True)]
)
def test_a_task_whose_state_was_set_is_not_over_before_it_is_killed(
    sinks: Path, machine: str, process: int, is_now: bool
) -> None:
    """Its Spark still writes events when the DAG run has ended, and the entry of the set state
    waits behind its own.
    """
    outbox, events_file = killed_last_attempt(
        sinks, connection="one", run_id=RUN_ID, machine=machine, process=process
    )
    key = AttemptKey("shop", RUN_ID, "killed", -1, 1)
    outbox.put(key, upserts(1), spark_succeeded=False, connection_id="one")
    end(dag_of_one("killed"), succeeded=False)
    assert len([*outbox.entries()]) == (0 if is_now else 2)
    assert events_file.exists() is not is_now


@dataclass
class StoredTaskInstance:
    """What the API server hands to listeners when somebody sets the state of a task."""

    task_id: str = "build"
    dag_id: str = "shop"
    try_number: int = 2
    map_index: int = -1
    start_date: datetime | None = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
    dag_run: DagRun = field(default_factory=DagRun)


@pytest.mark.parametrize("changes", [{}, {"start_date": None}, {"task_id": "other"}])
def test_a_state_that_somebody_sets_is_the_end_of_the_task_run(
    sinks: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    # Not of one that never ran, nor of one without lineage.
    ti, notifies = StoredTaskInstance(**changes), not changes
    with new_dag() as dag:
        lineage_task("build", datahub_conn_id="one")
        lineage_task("another", datahub_conn_id="two")
        EmptyOperator(task_id="other")
    stored = as_the_scheduler_has_it(dag)
    monkeypatch.setattr(
        "airflow.models.serialized_dag.SerializedDagModel.get_dag", lambda _: stored
    )
    outbox, _ = killed_last_attempt(sinks, connection="one", run_id=RUN_ID)
    dag_run_listener.on_task_instance_success(None, ti)
    let_threads_finish()
    assert notified(sinks) == (["one"] if notifies else [])
    assert len(list(outbox.entries())) == 1, "the DAG run is not over"
    if notifies:
        (event,) = delivered(sinks / "sinks/one")
        assert event["entityUrn"] == AirflowSite().task_run_urn("shop", "build", RUN_ID)
        end = event["aspect"]["json"]
        assert (end["status"], end["attempt"], end["result"]["type"]) == ("COMPLETE", 2, "SUCCESS")


def test_a_set_state_of_a_dag_that_is_not_stored_is_not_reported(
    sinks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow.models.serialized_dag.SerializedDagModel.get_dag", lambda _: None)
    dag_run_listener.on_task_instance_failed(None, StoredTaskInstance(), "set by hand")
    let_threads_finish()
    assert notified(sinks) == []


FORK_AND_END = """
import os, sys, threading
from airflow_provider_spark_datahub.plugins.dag_run_listener import _WorkThread
def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()
thread, begun = _WorkThread('w', daemon=True), threading.Event()
thread.submit(lambda: (begun.set(), threading.Event().wait()))
begun.wait(60)
thread.submit(lambda: say('of the parent'))
if os.fork() == 0:
    thread.submit(lambda: say('forked, '))
    thread.wait(30)
    os._exit(0)
os.wait()
_WorkThread('w', daemon=False).submit(lambda: (threading.Event().wait(0.2), say('ended')))
"""


@pytest.mark.slow
def test_a_process_waits_for_its_steps_and_a_forked_one_has_none() -> None:
    """A fork has a thread and work of its own; the end waits for a thread unless it is a daemon,
    which hangs here.
    """
    command = [sys.executable, "-c", FORK_AND_END]
    said = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120
    ).stdout
    assert said == "forked, ended"

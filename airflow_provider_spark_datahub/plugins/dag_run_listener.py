"""Listener that reports to DataHub what no operator sees: ends of DAG runs, and tasks before and
after ``execute``.

Airflow calls it at the end of a task in the task's own process, and at the end of a DAG run in the
scheduler. There, it only collects the proposals. One thread puts them into the outbox and another
one delivers them, so that neither the scheduler nor the outbox waits for DataHub.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

import pendulum
from airflow.listeners import hookimpl

from airflow_provider_spark_datahub import conversion, delivery, hooks, task
from airflow_provider_spark_datahub.foundation.attempt_key import AttemptKey
from airflow_provider_spark_datahub.foundation.memory import grouped
from airflow_provider_spark_datahub.foundation.text import counted

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.delivery.outbox import (
        EdgeRecord,
        EdgeRecords,
        Entry,
        Manifest,
        Outbox,
    )

log = logging.getLogger(__name__)

_DELIVERY_SECONDS = 10.0
_DRAIN_SECONDS = 60.0
"""Time to deliver what tasks of a DAG left, after each of its runs."""
_CONVERTED_BYTES = 16 * 1024**2
"""Most events that are converted in the scheduler, in bytes."""
_KILL_SECONDS = 25.0
"""Time that Airflow may need to kill a task whose state was set, after the heartbeat that notices
it.

It sends SIGTERM and 5 s later SIGKILL; the rest is for a busy worker. Only the attempt's own record
says that the process has ended: Airflow keeps no more than its last heartbeat, and no process
writes to the outbox while a job runs.
"""
_BACKLOG = 100
"""Most ends of DAG runs that wait in memory for their delivery. ``spark-datahub emit`` delivers
further ones.
"""


@dataclass
class _WorkThread:
    """Thread that calls one step after the other, and exists only while there are steps to call.

    A forked process has neither the thread nor its steps.

    :param daemon: whether the process can exit without waiting for the thread.
    :param backlog: number of steps that may wait; ``None`` for no limit.
    """

    name: str
    daemon: bool
    backlog: int | None = None

    def __post_init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._steps: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, step: Callable[[], object]) -> bool:
        """Queue a step that does not raise; return False if the backlog is full."""
        with self._lock:
            if self.backlog is not None and len(self._steps) >= self.backlog:
                return False
            self._steps.append(step)
            if self._thread is not None and self._thread.is_alive():
                return True
            thread = threading.Thread(target=self._run, name=self.name, daemon=self.daemon)
            with suppress(
                RuntimeError
            ):  # from Python 3.12 on, a process that ends starts no thread
                thread.start()
                self._thread = thread
                return True
        self._run()
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until all steps are done, or the time is up; return whether they are."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        while (step := self._next()) is not None:
            step()

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if self._steps:
                return self._steps.popleft()
            # The next submit starts the next thread.
            self._thread = None
            return None


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:  # noqa: ARG001 (the hook's signature)
    """Report that a DAG run succeeded. Called by Airflow."""
    _report_guarded(dag_run, "SUCCESS")


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:  # noqa: ARG001 (the hook's signature)
    """Report that a DAG run failed. Called by Airflow."""
    _report_guarded(dag_run, "FAILURE")


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Report a task run that succeeded, if its operator could not. Called by Airflow."""
    _settle(previous_state, task_instance, "success")


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Report a task run that failed, if its operator could not. Called by Airflow."""
    _settle(previous_state, task_instance, "failed", error)


@hookimpl
def on_task_instance_skipped(previous_state: Any, task_instance: Any) -> None:
    """Report a task run that was skipped, if its operator could not. Called by Airflow since 3.1."""
    _settle(previous_state, task_instance, "skipped")


def _settle(previous_state: Any, task_instance: Any, state: str, error: Any = None) -> None:
    """Let the operator of a running task compare its report with Airflow's final state of the task.

    Without a previous state, the caller is the API server, because somebody has set the state.
    """
    problem = (
        f"Could not report the end of task {getattr(task_instance, 'task_id', '?')} to DataHub."
    )
    settle = getattr(getattr(task_instance, "task", None), "settle_lineage", None)
    if previous_state is None:
        _guarded(problem, partial(_report_set_state, task_instance, state))
    elif settle is not None:
        _guarded(problem, lambda: settle(task_instance.get_template_context(), state, error))


def _report_set_state(ti: Any, state: str) -> None:
    """Report the state that a user set for a task run in Airflow's UI or API."""
    from airflow.models.serialized_dag import SerializedDagModel

    dag = SerializedDagModel.get_dag(ti.dag_id)
    connections = (
        [connection for connection, task_id in _connections(dag) if task_id == ti.task_id]
        if dag
        else []
    )
    if not connections or ti.start_date is None or hooks.datahub_plugin_is_active():
        # A task that never started has no run in DataHub, and DataHub's own plugin reports set
        # states itself.
        return
    attempt = hooks.ended_attempt(ti, dag, round(pendulum.now("UTC").timestamp() * 1000), state)
    for connection in connections:
        _submit(_End(connection, attempt.key, attempt.end_events()))


def _report_guarded(dag_run: Any, result: Literal["SUCCESS", "FAILURE"]) -> None:
    problem = f"Could not report the end of DAG run {getattr(dag_run, 'run_id', '?')} to DataHub."
    _guarded(problem, partial(_report_end, dag_run, result, problem))


def _guarded(problem: str, step: Callable[[], None]) -> None:
    """Call a step, and only log its failure, so that the scheduler and the steps after it go on."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 (logged below as `exc_info` would, without its secrets)
        log.warning("%s\n%s", problem, conversion.redacted_trace(error))


def _report_end(dag_run: Any, result: Literal["SUCCESS", "FAILURE"], problem: str) -> None:
    dag = getattr(dag_run, "dag", None) or dag_run.get_dag()
    by_policy = hooks.configuration().read("auto")
    if not by_policy and not any(_connections(dag)):
        return
    run = hooks.dag_run_of(dag_run, dag)
    end = pendulum.instance(dag_run.end_date or pendulum.now("UTC"))
    end_ms = round(end.timestamp() * 1000)
    proposals = run.end_proposals(
        end_ms, result, written_by_plugin=hooks.datahub_plugin_is_active()
    )
    key = AttemptKey(run.dag_id, run.run_id, "", -1, 1)
    if not by_policy:
        _submit_ends(dag, key, proposals)
        return
    # In a thread of its own: to read the database here would end the scheduler's transaction.
    _keeper().submit(
        partial(_guarded, problem, partial(_submit_ends_by_policy, dag, key, proposals))
    )


def _submit_ends_by_policy(dag: Any, key: AttemptKey, proposals: list[conversion.Proposal]) -> None:
    """Submit the ends of the stored DAG: the scheduler's has no links, which show lineage by
    policy.
    """
    from airflow.models.serialized_dag import SerializedDagModel

    _submit_ends(SerializedDagModel.get_dag(key.dag_id) or dag, key, proposals)


def _submit_ends(dag: Any, key: AttemptKey, proposals: list[conversion.Proposal]) -> None:
    """Submit the end of a DAG run for each connection of the DAG's tasks."""
    tasks = grouped(_connections(dag))
    made = counted(len(proposals), "proposal")
    log.debug("DAG run %s of %s ended: %s for %s", key.run_id, key.dag_id, made, sorted(tasks))
    for connection, task_ids in sorted(tasks.items()):
        _submit(_End(connection, key, list(proposals), tuple(task_ids)))


def _submit(end: _End) -> None:
    """Queue an end for the threads that put it into the outbox and deliver it."""
    keep = partial(_keep, end, hooks.configured_outbox, _deliveries())
    _keeper().submit(partial(_guarded, f"Could not report {end} to DataHub.", keep))


def _connections(dag: Any) -> Iterator[tuple[str, str]]:
    """Yield connection and id of each lineage task of the DAG; not if the connection is a template
    or expanded.
    """
    configured = hooks.configuration()
    for operator in filter(partial(hooks.lineage_is_on, dag), dag.tasks):
        connection = (
            hooks.lineage_option(dag, operator, "datahub_conn_id") or configured.connection_id
        )
        if "{{" not in connection:
            yield connection, operator.task_id


@dataclass(frozen=True)
class _End:
    """End of a DAG run, for one connection and its tasks, or of one task run.

    :param key: of the attempt; without a task for a DAG run.
    :param task_ids: of the DAG run's tasks with lineage.
    """

    connection: str
    key: AttemptKey
    proposals: list[conversion.Proposal]
    task_ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        of_task = f"task {self.key.task_id} in " if self.key.task_id else ""
        return f"the end of {of_task}DAG run {self.key.run_id} of {self.key.dag_id}"


@cache
def _keeper() -> _WorkThread:
    """Return the thread that only writes to the outbox. The interpreter waits for it at exit, but
    not for long.
    """
    return _WorkThread("lineage-dag-runs", daemon=False)


@cache
def _deliveries() -> _WorkThread:
    """Return the thread that delivers. A process that exits waits for one delivery, as ``airflow
    dags test`` must.
    """
    deliveries = _WorkThread("lineage-dag-run-delivery", daemon=True, backlog=_BACKLOG)
    atexit.register(lambda: deliveries.wait(_DELIVERY_SECONDS))
    return deliveries


def _keep(end: _End, open_outbox: Callable[[], Outbox], deliveries: _WorkThread) -> None:
    from airflow_provider_spark_datahub.delivery.outbox import EdgeRecords, OutboxError

    entry = None
    try:
        outbox = open_outbox()
        records = EdgeRecords(outbox.storage)
        retractions, outdated = _outdated_edges(end, records)
        end.proposals.extend(retractions)
        entry = outbox.put(
            end.key, end.proposals, spark_succeeded=False, connection_id=end.connection
        )
        records.drop(outdated)
    except OutboxError as error:
        log.warning("Could not put %s into the outbox before its delivery: %s", end, error)
    deliver = partial(_deliver, end, entry)
    if not deliveries.submit(
        partial(_guarded, f"Could not deliver {end} to {end.connection}.", deliver)
    ):
        place = "It stays in the outbox" if entry is not None else "It is lost"
        log.warning(
            "Did not deliver %s: %s already queued. %s.",
            end,
            counted(_BACKLOG, "other is", "others are"),
            place,
        )


def _outdated_edges(
    end: _End, kept: EdgeRecords
) -> tuple[Sequence[conversion.Proposal], Sequence[EdgeRecord]]:
    """Return retractions of edges that only earlier DAG runs wrote (docs/decisions/0007), and the
    records of these.

    They are of tasks whose runs in this DAG run are all recorded.
    """
    try:
        records = [
            record
            for task_id in end.task_ids
            for record in kept.of_task(end.key.dag_id, task_id, end.connection)
        ]
    except OSError as error:
        log.warning(
            "Could not read which edges DAG runs before %s wrote, so they stay: %s",
            end.key.run_id,
            error,
        )
        return (), ()
    if all(record.key.run_id == end.key.run_id for record in records):
        return (), ()
    task_ids = sorted({record.key.task_id for record in records})
    task_runs = hooks.successful_task_runs(end.key.dag_id, end.key.run_id, task_ids)
    outdated = kept.outdated(records, end.key.run_id, task_runs)
    log.debug(
        "Records of edges: %d, %d of earlier DAG runs replaced; outdated: %s",
        len(records),
        len(outdated.records),
        outdated.paths,
    )
    for task_id in sorted({*task_ids} - {record.key.task_id for record in outdated.records}):
        log.info(
            "Edges that earlier DAG runs of %s.%s wrote stay in DataHub: not every run of this task in %s is known "
            "to be complete.", end.key.dag_id, task_id, end.key.run_id,
        )  # fmt: skip
    retractions = conversion.retractions(outdated.paths, ())
    for urn in outdated.unused_jobs:
        # Its edges are removed one by one, since a later DAG run may have added others.
        retractions += conversion.retired_job(urn)[1:]
    return retractions, outdated.records


def _deliver(end: _End, entry: Entry | None) -> None:
    from airflow_provider_spark_datahub.delivery.outbox import DrainLimits

    if entry is None:
        sink = hooks.sink_of(end.connection)
        outcome = sink.deliver(end.proposals, delivery.Deadline.after(_DELIVERY_SECONDS))
        if outcome.pending:
            log.warning(
                "Could not deliver %s, and it is not in the outbox: %s", end, outcome.problem
            )
        return
    limits = DrainLimits(entry_seconds=_DELIVERY_SECONDS)
    # Attempts of the task that never finished are left to the end of the DAG run.
    drained = task.drain(
        entry.outbox, hooks.airflow_connections(), limits, converts=lambda _: False
    ).run([entry.name])
    if drained.waiting:
        reasons = "; ".join(problem.rstrip(".") for problem in drained.problems)
        log.warning("Could not deliver %s: %s. It stays in the outbox.", end, reasons)
    elif not end.key.task_id:
        _deliver_rest(end, entry.outbox)


def _deliver_rest(end: _End, outbox: Outbox, *, at_last: bool = False) -> None:
    """Deliver what tasks of the DAG left in this outbox: pending entries, and events of killed last
    attempts.

    :param at_last: no task of the run can still be running. Before that time, tasks on other
        machines may run, since Airflow kills a task some seconds after somebody has set its state.
    """
    from airflow.providers.common.compat.sdk import conf

    from airflow_provider_spark_datahub.delivery.outbox import DrainLimits, EntryName

    digest, prefix = (
        EntryName.connection_hash(end.connection),
        AttemptKey.dag_prefix(end.key.dag_id),
    )
    names = [
        name
        for name in outbox.names()
        if name.connection == digest and name.instance.startswith(prefix)
    ]
    others_may_run = False

    def converts(entry: Entry) -> bool:
        # Leave a large conversion to other drains: here it would slow down the scheduler.
        is_over = (
            at_last
            or entry.manifest.key.run_id != end.key.run_id
            or not task.may_run(entry.manifest)
        )
        return is_over and task.event_bytes(entry) <= _CONVERTED_BYTES

    def is_wanted(manifest: Manifest) -> bool:
        nonlocal others_may_run
        if manifest.key.dag_id != end.key.dag_id:
            return False
        if manifest.key.run_id != end.key.run_id:
            return task.is_ready(manifest, hooks.stored_result)
        is_now = task.is_ready(manifest, lambda _: at_last or not task.may_run(manifest))
        others_may_run |= not is_now
        return is_now

    limits = DrainLimits(_DRAIN_SECONDS, _DELIVERY_SECONDS)
    connections = hooks.airflow_connections(lambda key: hooks.stored_result(key) or "FAILURE")
    task.drain(outbox, connections, limits, converts=converts, wanted=is_wanted).run(names)
    if others_may_run and not at_last:
        again = partial(_deliver_rest, end, outbox, at_last=True)
        step = partial(
            _guarded, f"Could not deliver the entries that tasks before {end} left.", again
        )
        seconds = _KILL_SECONDS + conf.getfloat("workers", "min_heartbeat_interval", fallback=5.0)
        timer = threading.Timer(seconds, _deliveries().submit, [step])
        timer.daemon = True
        timer.start()

"""A thread that does one thing after the other, and is there only while there is something to do.

Tells DataHub how DAG runs with lineage tasks ended, which no operator sees.

Runs in the scheduler: it only looks at the DAG there. One thread puts what is to be told into the outbox, and another
delivers it, so that neither the scheduler nor what is durable waits for DataHub.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow_provider_spark_datahub.conversion import Proposal
    from airflow_provider_spark_datahub.delivery.outbox import Entry, Outbox

log = logging.getLogger(__name__)


class WorkThread:
    """Calls what it is given, in this order, beside the thread that gives it.

    A forked process has neither the thread nor its work, and begins one of its own with the first thing to do.

    :param name: of the thread.
    :param daemon: a process that ends does not wait for it.
    :param backlog: how many things may wait; ``None`` for any number.
    """

    def __init__(self, name: str, *, daemon: bool, backlog: int | None = None) -> None:
        self._name = name
        self._daemon = daemon
        self._backlog = backlog
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def give(self, step: Callable[[], object]) -> bool:
        """Have it called, which must not raise.

        :returns: whether there was room for it.
        """
        with self._lock:
            if self._backlog is not None and len(self._waiting) >= self._backlog:
                return False
            self._waiting.append(step)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=self._daemon)
                self._thread.start()
            return True

    def wait(self, seconds: float) -> bool:
        """Wait until everything is done, or the time is over.

        :returns: whether everything is done.
        """
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        while (step := self._next()) is not None:
            step()

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            # Whoever gives the next thing begins the next thread.
            self._thread = None
            return None


DELIVERY_SECONDS = 10.0
BACKLOG = 100
"""How many ends may wait for their delivery in memory; further ones are left to ``spark-datahub emit``."""
_LINEAGE_FIELD = "lineage_on_failure"


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:  # noqa: ARG001 (the hook's signature)
    """Called by Airflow when a DAG run succeeded."""
    _guarded(_untold(dag_run), partial(_ended, dag_run, "SUCCESS"))


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:  # noqa: ARG001 (the hook's signature)
    """Called by Airflow when a DAG run failed."""
    _guarded(_untold(dag_run), partial(_ended, dag_run, "FAILURE"))


def _untold(dag_run: Any) -> str:
    return f"The end of DAG run {getattr(dag_run, 'run_id', '?')} is not told to DataHub."


def _guarded(failed: str, step: Callable[[], None]) -> None:
    """The scheduler goes on, and what waits after this step too."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 (told below, as `exc_info` would, but for its secrets)
        from airflow_provider_spark_datahub.conversion import redacted_trace

        log.warning("%s\n%s", failed, redacted_trace(error))


def _ended(dag_run: Any, result: Literal["SUCCESS", "FAILURE"]) -> None:
    dag = getattr(dag_run, "dag", None) or dag_run.get_dag()
    connections = sorted(set(_connections(dag)))
    if not connections:
        return
    from airflow_provider_spark_datahub.conversion.run_tree import dag_run_ended
    from airflow_provider_spark_datahub.hooks.airflow_context import configuration, dag_run_of, epoch_ms
    from airflow_provider_spark_datahub.hooks.storage import open_outbox

    end_ms = epoch_ms(dag_run.end_date or datetime.now(tz=UTC)) or 0
    run = dag_run_of(dag_run, dag)
    proposals = dag_run_ended(run, end_ms, result)
    configured = configuration()
    outbox = partial(open_outbox, configured.outbox_location(), configured.outbox_limits())
    for connection in connections:
        told = _End(connection, run.dag_id, run.run_id, proposals)
        keep = partial(_keep, told, outbox, _deliveries())
        _keeper().give(partial(_guarded, f"{told} is not told to DataHub.", keep))


def _connections(dag: Any) -> Iterator[str]:
    """The connections of the DAG's lineage tasks; one that is a template or expanded can't be told here."""
    from airflow_provider_spark_datahub.hooks.airflow_context import configuration

    configured = configuration()
    for task in dag.tasks:
        if _LINEAGE_FIELD not in (getattr(task, "template_fields", None) or ()):
            continue
        named = _argument(dag, task, "datahub_conn_id") or configured.connection_id
        enabled = _argument(dag, task, "enabled")
        if "{{" not in named and ("{{" in str(enabled) or configured.is_enabled(enabled)):
            yield named


def _argument(dag: Any, task: Any, name: str) -> Any:
    """What the task's author gave for an argument: a mapped task is not made yet, its defaults are not applied."""
    expanded = getattr(getattr(task, "expand_input", None), "value", None)
    if isinstance(expanded, Mapping) and name in expanded:
        return "{{ expanded }}"
    given = getattr(task, "partial_kwargs", None)
    if given is None:
        return getattr(task, name, None)
    defaults = {**(getattr(dag, "default_args", None) or {}), **(given.get("default_args") or {})}
    return given.get(name, defaults.get(name))


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a DAG run, for one connection."""

    connection: str
    dag_id: str
    run_id: str
    proposals: list[Proposal]

    def __str__(self) -> str:
        return f"The end of DAG run {self.run_id} of {self.dag_id}"


@cache
def _keeper() -> WorkThread:
    """Writes to the outbox only, so the interpreter, which waits for it at exit, does not wait long."""
    return WorkThread("lineage-dag-runs", daemon=False)


def _keep(told: _End, open_outbox: Callable[[], Outbox], deliveries: WorkThread) -> None:
    from airflow_provider_spark_datahub.attempt_key import AttemptKey
    from airflow_provider_spark_datahub.delivery.outbox import OutboxError

    entry = None
    try:
        key = AttemptKey(told.dag_id, told.run_id, "", -1, 1)
        entry = open_outbox().put(key, told.proposals, spark_succeeded=False, connection_id=told.connection)
    except OutboxError as error:
        log.warning("%s is not kept before its delivery: %s", told, error)
    deliver = partial(_deliver, told, entry)
    if not deliveries.give(partial(_guarded, f"{told} did not reach {told.connection}.", deliver)):
        place = "stays in the outbox" if entry is not None else "is lost"
        log.warning("%s %s: %d others already wait for their delivery.", told, place, BACKLOG)


@cache
def _deliveries() -> WorkThread:
    """A scheduler that stops does not wait for all of it, but at exit as long as one delivery may take: ``airflow dags
    test`` ends with its DAG run.
    """
    deliveries = WorkThread("lineage-dag-run-delivery", daemon=True, backlog=BACKLOG)
    atexit.register(lambda: deliveries.wait(DELIVERY_SECONDS))
    return deliveries


def _deliver(told: _End, entry: Entry | None) -> None:
    from airflow_provider_spark_datahub.delivery.outbox import Drain, DrainLimits
    from airflow_provider_spark_datahub.hooks.datahub import open_sink

    if entry is None:
        _deliver_unkept(told)
        return
    drained = Drain(entry.outbox, open_sink, DrainLimits(entry_seconds=DELIVERY_SECONDS)).run([entry.name])
    if drained.waiting:
        log.warning("%s is pending: %s", told, "; ".join(drained.problems))


def _deliver_unkept(told: _End) -> None:
    from airflow_provider_spark_datahub.delivery import Deadline
    from airflow_provider_spark_datahub.hooks.datahub import sink_of

    with sink_of(told.connection) as sink:
        delivery = sink.deliver(told.proposals, Deadline.after(DELIVERY_SECONDS))
    if delivery.pending:
        log.warning("%s is lost: %s", told, delivery.problem)
